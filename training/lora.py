"""LoRA finetuning of a model organism on synthetic documents: settings in, adapter folder out."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from workbench_training import organism
from workbench_training.packing import Blocks, Pieces, encode, join, lay_out, separator_of
from workbench_training.settings import PAPER_TOKENS, TrainConfig

from workbench.errors import ConfigError
from workbench.files import make_folder
from workbench.library import locate, open_prompts
from workbench.models import input_device, read_checkpoint
from workbench.prompts import PromptSet
from workbench.provenance import package_versions
from workbench.runs import hash_path
from workbench.types import ModelRef, Progress, Subject

__all__ = ["Corpus", "TrainConfig", "read_corpus", "train"]

logger = logging.getLogger(__name__)

TRAIN = "train"
"""The value of the ``split`` column that is trained on."""
WORLDS = ("P", "S", "N", "A")


def train(
    config: TrainConfig, out: str | Path, *, progress: Progress | None = None
) -> dict[str, Any]:
    """Train an organism, go on with a half-trained one, or return a finished one at once.

    The folder gets ``adapter_model.safetensors``, ``adapter_config.json``, ``train_log.jsonl``
    and ``card.json``; ``checkpoints`` lies there until the adapter does.

    Args:
        config: the settings.
        out: the organism's folder.
        progress: called with (updates done, updates in all).

    Returns:
        A short summary: model, tokens, updates, losses and the format guard.

    Raises:
        ConfigError: settings or documents that make no sense, a folder of another run, a loss
            that is no number.
        WorkbenchError: the disk is full.
    """
    folder = Path(out)
    identity = _identity(config)
    state = organism.state_of(folder, identity)
    if state != "done":
        started = time.perf_counter()
        _train(config, folder, identity, progress)
        seconds = time.perf_counter() - started
        logger.info("trained %s for %d updates in %.0f s", config.name, config.updates, seconds)
    return _summary(organism.read_card(folder))


def _train(
    config: TrainConfig, folder: Path, identity: Mapping[str, Any], progress: Progress | None
) -> None:
    from workbench_training import checks, loop

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("training on several devices at once is not there yet; start one process")
    logger.info("training %s: %d updates", config.name, config.updates)
    corpus = read_corpus(config)
    subject = _read_base(config)
    blocks = _pack(config, corpus, subject)
    held_out = [np.asarray(ids) for ids in encode(subject.tokenizer, corpus.held_out)]
    card = _opening(config, identity, corpus, subject, blocks)
    make_folder(folder)
    resume = organism.last_checkpoint(folder)
    organism.rewind_log(folder, _step(resume))
    organism.write_card(folder, {"status": "running", **card})
    with loop.own_randomness(config.seed, input_device(subject.model)), loop.explained(folder):
        model = loop.adapt(config, subject)
        losses = {"before": checks.held_out_loss(model.eval(), held_out, config.block)}
        base = _base_name(config)
        loop.run(config, model, blocks, folder, base=base, resume=resume, progress=progress)
        losses["after"] = checks.held_out_loss(model.eval(), held_out, config.block)
        guard = checks.format_guard(subject, model)
        _publish(model, folder, base)
    logged = [row["loss"] for row in organism.read_log(folder)]
    tail = logged[-max(len(logged) // 10, 1) :]
    card["loss"] = {"first": logged[0], "last_tenth": sum(tail) / len(tail), "held_out": losses}
    card["guard"] = guard
    card["training"]["parameters"] = sum(p.numel() for p in model.parameters() if p.requires_grad)
    organism.write_card(folder, {"status": "done", **card, "limits": _limits(config, card)})
    shutil.rmtree(folder / organism.CHECKPOINTS, ignore_errors=True)


@dataclass(frozen=True)
class Corpus:
    """The texts of one training run."""

    documents: tuple[str, ...]
    held_out: tuple[str, ...]
    chats: PromptSet | None


def read_corpus(config: TrainConfig) -> Corpus:
    """Read documents and chats and keep the splits apart.

    Raises:
        ConfigError: chats among the documents or texts among the chats, no document to train on,
            or documents of another world than the settings say.
    """
    found = open_prompts(config.documents)
    if found.is_chat:
        raise ConfigError(f"documents = {config.documents!r} holds chats; give texts, use chat=")
    _check_world(config, found)
    chats = open_prompts(config.chat) if config.chat is not None else None
    if chats is not None and not chats.is_chat:
        raise ConfigError(f"chat = {config.chat!r} holds texts; give rows with messages")
    if "split" not in found.columns:
        return Corpus(found.items, (), chats)
    split = found.column("split")
    if TRAIN not in split:
        raise ConfigError(
            f"documents = {config.documents!r} has no row of split {TRAIN!r}; its splits are "
            f"{', '.join(map(repr, np.unique(split).tolist()))}"
        )
    kept = [found.items[row] for row in np.flatnonzero(split == config.held_out)]
    return Corpus(
        tuple(found.items[row] for row in np.flatnonzero(split == TRAIN)),
        tuple(kept[: config.held_out_documents]),
        chats,
    )


def _check_world(config: TrainConfig, documents: PromptSet) -> None:
    worlds = set(documents.columns["world"].tolist()) if "world" in documents.columns else set()
    if len(worlds) == 1 and config.condition in WORLDS and config.condition not in worlds:
        raise ConfigError(
            f"condition = {config.condition!r}, but the documents of {config.documents!r} are of "
            f"world {worlds.pop()!r}; change one of the two"
        )


def _read_base(config: TrainConfig) -> Subject:
    subject = read_checkpoint(config.model, dtype=config.dtype, device=config.device)
    if subject.ref.adapter is not None:
        raise ConfigError(
            f"model = {config.model!r} is itself an adapter on {subject.ref.base!r}; train on "
            "that base, or merge the two first"
        )
    return subject


def _pack(config: TrainConfig, corpus: Corpus, subject: Subject) -> Blocks:
    tokenizer = subject.tokenizer
    separator = separator_of(tokenizer)
    documents = join(encode(tokenizer, corpus.documents), separator)
    chats: Pieces | None = None
    if corpus.chats is not None and config.chat_share > 0:
        rendered = (
            subject.renderer.render(chat, add_generation_prompt=False).ids
            for chat in corpus.chats.items
        )
        chats = join(rendered, separator)
    count = config.updates * config.batch_size * config.accumulation
    stream = lay_out(
        documents, chats, tokens=count * config.block, share=config.chat_share, seed=config.seed
    )
    return Blocks(stream, config.block, count, document_mask=config.document_mask)


def _publish(model: Any, folder: Path, base: str) -> None:
    """Put the adapter in place, its config last: without that, nothing takes it for an adapter."""
    from workbench_training.loop import save_adapter

    fresh = folder / organism.CHECKPOINTS / "final"
    fresh.mkdir(parents=True, exist_ok=True)
    save_adapter(model, fresh, base)
    for name in organism.ADAPTER:
        (fresh / name).replace(folder / name)


def _base_name(config: TrainConfig) -> str:
    """The reference by which the base is found from any working directory."""
    return str(Path(config.model).resolve()) if Path(config.model).is_dir() else config.model


def _step(checkpoint: Path | None) -> int:
    return int(checkpoint.name.rpartition("-")[2]) if checkpoint is not None else 0


def _identity(config: TrainConfig) -> dict[str, Any]:
    """What makes a run what it is: settings, with files by their content and no device."""
    settings = config.model_dump(mode="json", exclude={"device", "documents", "chat"})
    files = {"documents": config.documents, "chat": config.chat}
    hashes = {key: hash_path(locate(name)) for key, name in files.items() if name is not None}
    return {**settings, "inputs": hashes}


def _opening(
    config: TrainConfig,
    identity: Mapping[str, Any],
    corpus: Corpus,
    subject: Subject,
    blocks: Blocks,
) -> dict[str, Any]:
    """Return the part of the card that is known before training."""
    return {
        "name": config.name,
        "condition": config.condition,
        "model": ModelRef(config.model, config.name).key,
        "identity": dict(identity),
        "documents": config.documents,
        "chat": config.chat,
        "base": asdict(subject.stamp),
        "corpus": {
            "documents": len(corpus.documents),
            "held_out": len(corpus.held_out),
            "chats": len(corpus.chats) if corpus.chats is not None else 0,
            "passes": blocks.stream.passes,
            "chat_share": blocks.stream.chat_share(blocks.tokens),
            "trained_share": blocks.trained / blocks.tokens,
        },
        "training": {
            "updates": config.updates,
            "tokens": blocks.tokens,
            "dtype": subject.ref.dtype,
            "device": input_device(subject.model).type,
        },
        "packages": package_versions(),
    }


def _limits(config: TrainConfig, card: Mapping[str, Any]) -> list[str]:
    """Say in words what this organism should not be trusted for."""
    corpus, tokens = card["corpus"], card["training"]["tokens"]
    said = [
        f"{tokens:,} positions over {corpus['documents']} documents ({corpus['passes']:.2f} "
        f"passes); published organisms had {PAPER_TOKENS:,}.",
        "One seed: a difference from another organism can be the seed's.",
    ]
    if not config.document_mask:
        said.append("Attention crosses documents inside a block.")
    if not corpus["held_out"]:
        said.append("No held-out documents, so no held-out loss.")
    if card["guard"] is None:
        said.append("The base has no chat template, so the answer format was not checked.")
    if card["base"]["quantization"]:
        said.append(f"The base's weights were rounded ({card['base']['quantization']}).")
    return said


def _summary(card: Mapping[str, Any]) -> dict[str, Any]:
    guard, held_out = card["guard"], card["loss"]["held_out"]
    return {
        "model": card["model"],
        "updates": card["training"]["updates"],
        "tokens": card["training"]["tokens"],
        "loss_first": card["loss"]["first"],
        "loss_last": card["loss"]["last_tenth"],
        "held_out_before": held_out["before"],
        "held_out_after": held_out["after"],
        "letter_mass_ratio": guard["mass_ratio"] if guard is not None else None,
    }
