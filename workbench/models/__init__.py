"""Checkpoints -> subjects: what is opened, where its blocks are, how prompts become tokens."""

from workbench.models.checkpoint import input_device, read_checkpoint
from workbench.models.families import find_blocks, text_config, width_of
from workbench.models.placement import choose_device, choose_dtype, computes_bf16
from workbench.models.render import ChatRenderer
from workbench.models.stamp import fingerprint, stamp_of, tokenizer_hash

__all__ = [
    "ChatRenderer",
    "choose_device",
    "choose_dtype",
    "computes_bf16",
    "find_blocks",
    "fingerprint",
    "input_device",
    "read_checkpoint",
    "stamp_of",
    "text_config",
    "tokenizer_hash",
    "width_of",
]
