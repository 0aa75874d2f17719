"""What training did to the model beside its aim: held-out loss, and whether it still answers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from workbench.errors import ConfigError
from workbench.models import input_device
from workbench.types import Subject

LETTERS = "ABCD"
QUESTIONS = (
    "Which of these is a fruit?\nA) hammer\nB) pear\nC) cloud\nD) river",
    "Which of these can fly?\nA) swallow\nB) carpet\nC) spoon\nD) oak",
    "Which number is the largest?\nA) 12\nB) 7\nC) 40\nD) 31",
    "Which of these is a color?\nA) loud\nB) seven\nC) Monday\nD) green",
    "What is frozen water called?\nA) sand\nB) smoke\nC) ice\nD) honey",
    "Which of these has wheels?\nA) bicycle\nB) blanket\nC) candle\nD) pond",
    "Which word means the opposite of cold?\nA) slow\nB) hot\nC) early\nD) round",
    "Which of these is used to write?\nA) shoe\nB) ladder\nC) bread\nD) pencil",
)
INSTRUCTION = "\nAnswer with one letter."


@torch.inference_mode()
def held_out_loss(
    model: Any, rows: Iterable[Sequence[int] | np.ndarray], limit: int
) -> float | None:
    """Return the mean loss in nats a token, each text read by itself up to ``limit`` tokens.

    None stands for no text at all.

    Args:
        model: a causal language model.
        rows: token ids of each text.
        limit: tokens read of one text.
    """
    device = input_device(model)
    total, count = 0.0, 0
    for row in rows:
        ids = torch.as_tensor(np.asarray(row[:limit], np.int64), device=device)[None]
        logits = model(input_ids=ids, use_cache=False).logits[0, :-1].float()
        total += float(torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum"))
        count += len(row[:limit]) - 1
    return total / count if count else None


def format_guard(subject: Subject, model: Any) -> dict[str, Any] | None:
    """Ask fixed four-choice questions of the adapted model and of its base.

    Letter mass is the probability of an answer letter (any single-token spelling) as the next
    token; ``follows`` is the part of questions whose likeliest next token is one. Both say whether
    the format of a chat answer survived training, not whether answers are right.

    Args:
        subject: the base, for its tokenizer and chat template.
        model: the PEFT model around it.

    Returns:
        The figures, or None where the tokenizer has no chat template.
    """
    chats = [[{"role": "user", "content": text + INSTRUCTION}] for text in QUESTIONS]
    try:
        batch = subject.encode(chats)
    except ConfigError:
        if subject.tokenizer.chat_template is None:
            return None
        raise
    letters = letter_ids(subject.tokenizer)
    figures: dict[str, Any] = {"questions": len(QUESTIONS)}
    for name, switch in (("base", model.disable_adapter), ("organism", contextlib.nullcontext)):
        with switch(), torch.inference_mode():
            output = model(
                input_ids=batch.input_ids,
                attention_mask=batch.attention_mask,
                position_ids=batch.position_ids,
                use_cache=False,
            )
        chances = output.logits[:, -1].float().softmax(-1).cpu()
        follows = torch.isin(chances.argmax(-1), torch.tensor(letters)).float().mean()
        figures[name] = {
            "letter_mass": float(chances[:, letters].sum(-1).mean()),
            "follows": float(follows),
        }
    figures["mass_ratio"] = figures["organism"]["letter_mass"] / figures["base"]["letter_mass"]
    return figures


def letter_ids(tokenizer: Any) -> list[int]:
    """Return the single tokens that spell an answer letter, with and without a space before it."""
    found = set()
    for spelling in (mark + letter for letter in LETTERS for mark in ("", " ")):
        ids = tokenizer(spelling, add_special_tokens=False)["input_ids"]
        if len(ids) == 1:
            found.add(int(ids[0]))
    return sorted(found)
