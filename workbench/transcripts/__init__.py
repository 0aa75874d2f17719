"""Rollouts as they are kept: conversations, their origin, and judges' scores; Parquet on disk."""

from workbench.transcripts.container import Scores, Transcripts, join_transcripts
from workbench.transcripts.file import TranscriptParts, read_transcripts, write_transcripts

__all__ = [
    "Scores",
    "TranscriptParts",
    "Transcripts",
    "join_transcripts",
    "read_transcripts",
    "write_transcripts",
]
