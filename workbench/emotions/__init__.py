"""Emotion vectors: stories asked for and sifted, directions, their geometry, what organisms show.

After Sofroniew et al. (2026). Nothing here needs a model: requests and texts are data, the rest is
functions of activations and arrays.
"""

from workbench.emotions.items import Emotion as Emotion
from workbench.emotions.items import Topic as Topic
from workbench.emotions.items import choose as choose
from workbench.emotions.items import read_emotions as read_emotions
from workbench.emotions.items import read_templates as read_templates
from workbench.emotions.items import read_topics as read_topics
from workbench.emotions.requests import dialogue_requests as dialogue_requests
from workbench.emotions.requests import story_requests as story_requests
from workbench.emotions.sift import Sifted as Sifted
from workbench.emotions.sift import sift as sift
