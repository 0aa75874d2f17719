"""Story and dialogue activations with known emotion vectors, topics and neutral components."""

from dataclasses import dataclass

import numpy as np

from workbench.activations import Activations
from workbench.types import ModelStamp

D, LAYERS, EMOTIONS, TOPICS = 48, 4, 6, 6
NAMES = ("joy", "calm", "surprise", "anger", "fear", "sadness")


def stamp(key="m", fingerprint="f"):
    return ModelStamp(key, "qwen3", LAYERS, D, "t", fingerprint)


@dataclass(frozen=True)
class Planted:
    """What the activations were made from."""

    stories: Activations
    neutral: Activations
    emotion: np.ndarray
    """(k, l, d): sums to zero over emotions; zero at layers without any."""
    basis: np.ndarray
    """(l, r, d): what neutral dialogues vary along."""


def plant(seed=0, noise=0.5, per_topic=2, strength=3.0, active=(1, 2, 3), leak=0.0, drop=0.0):
    """Stories = common part + topic + emotion + noise; emotions live at the ``active`` layers.

    ``leak`` adds a neutral component to every emotion vector; ``drop`` is the share of stories that
    are left out at random.
    """
    rng = np.random.default_rng(seed)
    basis = np.stack([np.linalg.qr(rng.standard_normal((D, 2)))[0].T for _ in range(LAYERS)])
    emotion = rng.standard_normal((EMOTIONS, LAYERS, D))
    emotion -= np.einsum("kld,lrd,lre->kle", emotion, basis, basis)
    emotion -= emotion.mean(axis=0)
    emotion *= strength / np.linalg.norm(emotion, axis=-1, keepdims=True).mean()
    emotion *= np.isin(np.arange(LAYERS), active)[None, :, None]
    leaked = rng.standard_normal((EMOTIONS, LAYERS, 2))
    leaked -= leaked.mean(axis=0)
    mixed = emotion + leak * np.einsum("klr,lrd->kld", leaked, basis)
    topic = 4 * rng.standard_normal((TOPICS, LAYERS, D))
    common = 10 * rng.standard_normal((LAYERS, D))
    cells = [(k, t) for k in range(EMOTIONS) for t in range(TOPICS) for _ in range(per_topic)]
    if drop:
        cells = [cell for cell in cells if rng.random() >= drop]
    k, t = map(np.array, zip(*cells, strict=True))
    values = common[:, None] + mixed[k].swapaxes(0, 1) + topic[t].swapaxes(0, 1)
    values = values + noise * rng.standard_normal(values.shape)
    columns = {
        "emotion": np.array(NAMES)[k],
        "topic": np.array([f"topic{n}" for n in range(TOPICS)])[t],
    }
    loads = 5 * rng.standard_normal((LAYERS, 40, 2))
    dialogues = common[:, None] + np.einsum("lnr,lrd->lnd", loads, basis)
    dialogues = dialogues + 0.05 * rng.standard_normal(dialogues.shape)
    return Planted(
        Activations.from_values(
            values.astype(np.float32), columns, model=stamp(), position="mean:content[24:]"
        ),
        Activations.from_values(
            dialogues.astype(np.float32), {}, model=stamp(), position="mean:content"
        ),
        emotion,
        basis,
    )
