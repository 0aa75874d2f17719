"""The command line: each verb turns its words into settings, makes one library call, and prints."""

from workbench.cli import (  # noqa: F401 (their decorators fill the app)
    batch,
    capping,
    corpora,
    emotions,
    look,
    persona_vectors,
    personas,
    steer,
    trust,
)
from workbench.cli.app import INTERRUPTED as INTERRUPTED
from workbench.cli.app import app as app
from workbench.cli.app import main as main
