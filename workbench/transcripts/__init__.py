"""Rollouts as they are kept: conversations, their origin, and judges' scores; Parquet on disk."""

from workbench.transcripts.container import Scores, Transcripts, join_transcripts
from workbench.transcripts.file import (
    FILE,
    is_transcripts,
    read_transcripts,
    write_transcripts,
)

__all__ = [
    "FILE",
    "Scores",
    "Transcripts",
    "is_transcripts",
    "join_transcripts",
    "read_transcripts",
    "write_transcripts",
]
