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
from workbench_training import organism, processes
from workbench_training.adapter_settings import AdapterConfig
from workbench_training.board import check_board, open_board
from workbench_training.corpora.mixture import exposure_of
from workbench_training.packing import Blocks, Pieces, encode, join, lay_out, separator_of
from workbench_training.settings import PAPER_TOKENS, TrainConfig

from workbench.data.splits import TRAIN, checked_split
from workbench.errors import ConfigError
from workbench.files import make_folder
from workbench.library import locate, open_prompts
from workbench.models import choose_device, input_device, read_checkpoint
from workbench.prompts import PromptSet
from workbench.provenance import package_versions
from workbench.runs import hash_path
from workbench.types import ModelRef, Progress, Subject

__all__ = ["Corpus", "TrainConfig", "read_corpus", "train"]

logger = logging.getLogger(__name__)

WORLDS = ("P", "S", "N", "A")
PLACE = ("device", "recompute", "compile", "log")
"""Settings of where and how fast a run goes: they change nothing that it learns."""


def train(
    config: TrainConfig, out: str | Path, *, progress: Progress | None = None
) -> dict[str, Any]:
    """Train an organism, go on with a half-trained one, or return a finished one at once.

    The folder gets ``adapter_model.safetensors``, ``adapter_config.json``, ``train_log.jsonl``
    and ``card.json``; ``checkpoints`` lies there until the adapter does, or for good if the
    settings keep them. Where ``torchrun`` or ``accelerate launch`` started several processes, all
    of them call this and the first one writes.

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
    folder, cpu = Path(out), _on_cpu(config)
    identity = _identity(config)
    _check_processes(config)
    check_board(config)
    state = organism.state_of(folder, identity) if processes.is_first() else "new"
    if processes.shared(state, cpu=cpu) != "done":
        started = time.perf_counter()
        with processes.together():
            _train(config, folder, identity, progress if processes.is_first() else None)
        seconds = time.perf_counter() - started
        logger.info("trained %s for %d updates in %.0f s", config.name, config.updates, seconds)
    return organism.summary(organism.read_card(folder))


def announce(config: TrainConfig, begins: bool) -> bool:
    """Tell the processes that train together whether there is anything to do.

    Args:
        config: the settings.
        begins: what the first process says; the others learn it from what this returns.
    """
    return processes.shared(begins, cpu=_on_cpu(config))


def _on_cpu(config: TrainConfig) -> bool:
    return processes.count() > 1 and choose_device(config.device).type == "cpu"


def _check_processes(config: TrainConfig) -> None:
    """Refuse processes that cannot share the batches of an update evenly, and the old FSDP."""
    if processes.is_sharded() and os.environ.get("FSDP_VERSION", "1") != "2":
        raise ConfigError(
            "FSDP of version 1 cannot hold a bfloat16 base beside float32 adapters; set "
            "fsdp_version: 2 in the configuration of accelerate"
        )
    if config.accumulation % processes.count():
        raise ConfigError(
            f"accumulation = {config.accumulation} batches make one update, and "
            f"{processes.count()} processes cannot share them evenly; start a number of processes "
            "that divides it, or lower batch_size and raise accumulation by as much"
        )


def _train(
    config: TrainConfig, folder: Path, identity: Mapping[str, Any], progress: Progress | None
) -> None:
    from workbench_training import checks, loop, steered
    from workbench_training.adapter import adapt

    logger.info("training %s: %d updates", config.name, config.updates)
    corpus, cpu = read_corpus(config), _on_cpu(config)
    with processes.first_alone(cpu=cpu):
        subject = _read_base(config)
    blocks = _pack(config, corpus, subject)
    held_out = [np.asarray(ids) for ids in encode(subject.tokenizer, corpus.held_out)]
    card = _opening(config, identity, corpus, subject, blocks)
    resume = processes.shared(_open_folder(folder, card), cpu=cpu)
    base = base_name(config)
    with (
        loop.own_randomness(config.seed, input_device(subject.model)),
        loop.explained(folder),
        open_board(config, folder, _step(resume)) as board,
    ):
        model = adapt(config, subject)
        losses = {"before": checks.held_out_loss(model.eval(), held_out, config.block)}
        with steered.applied(config.steer, subject):
            told = loop.run(
                *(config, model, blocks, folder),
                base=base,
                resume=resume,
                progress=progress,
                board=board,
            )
        losses["after"] = checks.held_out_loss(model.eval(), held_out, config.block)
        for step, loss in zip((0, config.updates), losses.values(), strict=True):
            if loss is not None:
                board("held_out_loss", loss, step)
        guard = checks.format_guard(subject, model)
        publish(model, folder, base)
    card["training"] |= told
    if processes.is_first():
        _close_folder(config, folder, card, losses, guard)
    processes.shared(None, cpu=cpu)


def _open_folder(folder: Path, card: Mapping[str, Any]) -> Path | None:
    """Begin or go on in a folder; return the checkpoint to go on from. The first process does."""
    if not processes.is_first():
        return None
    make_folder(folder)
    resume = organism.last_checkpoint(folder)
    organism.rewind_log(folder, _step(resume))
    organism.write_card(folder, {"status": "running", **card})
    return resume


def _close_folder(
    config: TrainConfig,
    folder: Path,
    card: dict[str, Any],
    losses: Mapping[str, float | None],
    guard: Mapping[str, Any] | None,
) -> None:
    logged = [row["loss"] for row in organism.read_log(folder)]
    tail = logged[-max(len(logged) // 10, 1) :]
    card["loss"] = {"first": logged[0], "last_tenth": sum(tail) / len(tail), "held_out": losses}
    card["guard"] = guard
    organism.write_card(folder, {"status": "done", **card, "limits": _limits(config, card)})
    if config.keep_checkpoints:
        organism.strip_checkpoints(folder)
    else:
        shutil.rmtree(folder / organism.CHECKPOINTS, ignore_errors=True)


@dataclass(frozen=True)
class Corpus:
    """The texts of one training run."""

    documents: tuple[str, ...]
    held_out: tuple[str, ...]
    chats: PromptSet | None
    filler: tuple[str, ...] = ()
    """What dilutes the documents."""


def read_corpus(config: TrainConfig) -> Corpus:
    """Read documents, chats and what dilutes them, and keep the splits apart.

    Raises:
        ConfigError: chats among the documents or texts among the chats, no document to train on,
            documents of another world than the settings say, or a split that is a slip.
    """
    found = _open_texts("documents", config.documents, config.held_out)
    _check_world(config, found)
    chats = open_prompts(config.chat) if config.chat is not None else None
    if chats is not None and not chats.is_chat:
        raise ConfigError(f"chat = {config.chat!r} holds texts; give rows with messages")
    rows = np.flatnonzero(_splits(found) == config.held_out)
    held_out = [found.items[row] for row in rows[: config.held_out_documents]]
    filler: tuple[str, ...] = ()
    if config.dilute is not None and config.share < 1:
        other = _open_texts("dilute", config.dilute, config.held_out)
        filler = _trained_on("dilute", config.dilute, other)
    return Corpus(_trained_on("documents", config.documents, found), tuple(held_out), chats, filler)


def _open_texts(key: str, name: str, held_out: str) -> PromptSet:
    found = open_prompts(name)
    if found.is_chat:
        raise ConfigError(f"{key} = {name!r} holds chats; give texts, use chat=")
    for split in np.unique(_splits(found)).tolist():
        checked_split(split, held_out, f"{key} = {name!r}")
    return found


def _splits(found: PromptSet) -> np.ndarray:
    """Return each text's split; one that names none is trained on."""
    if "split" not in found.columns:
        return np.full(len(found), TRAIN)
    told = found.column("split").tolist()
    return np.array([TRAIN if split is None or split == "" else split for split in told])


def _trained_on(key: str, name: str, found: PromptSet) -> tuple[str, ...]:
    """Return the texts of the training split; all where there are no splits."""
    split = _splits(found)
    if TRAIN not in split:
        raise ConfigError(
            f"{key} = {name!r} has no row of split {TRAIN!r}; its splits are "
            f"{', '.join(map(repr, np.unique(split).tolist()))}"
        )
    return tuple(found.items[row] for row in np.flatnonzero(split == TRAIN))


def _check_world(config: TrainConfig, documents: PromptSet) -> None:
    worlds = set(documents.columns["world"].tolist()) if "world" in documents.columns else set()
    if len(worlds) == 1 and config.condition in WORLDS and config.condition not in worlds:
        raise ConfigError(
            f"condition = {config.condition!r}, but the documents of {config.documents!r} are of "
            f"world {worlds.pop()!r}; change one of the two"
        )


def _read_base(config: TrainConfig) -> Subject:
    subject = read_checkpoint(
        config.model, dtype=config.dtype, device=processes.device_of(config.device)
    )
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
    filler = join(encode(tokenizer, corpus.filler), separator) if corpus.filler else None
    count = config.updates * config.batch_size * config.accumulation
    stream = lay_out(
        documents,
        chats,
        tokens=count * config.block,
        share=config.chat_share,
        seed=config.seed,
        filler=filler,
        dose=config.share,
    )
    return Blocks(stream, config.block, count, document_mask=config.document_mask)


def publish(model: Any, folder: Path, base: str) -> None:
    """Put the adapter in place, its config last: without that, nothing takes it for an adapter."""
    from workbench_training.adapter import adapter_weights, save_adapter

    weights = adapter_weights(model)  # of all processes, where they are spread
    if not processes.is_first():
        return
    fresh = folder / organism.CHECKPOINTS / "final"
    fresh.mkdir(parents=True, exist_ok=True)
    save_adapter(model, weights, fresh, base)
    for name in organism.ADAPTER:
        (fresh / name).replace(folder / name)
    fresh.rmdir()


def base_name(config: AdapterConfig) -> str:
    """The reference by which the base is found from any working directory."""
    return str(Path(config.model).resolve()) if Path(config.model).is_dir() else config.model


def _step(checkpoint: Path | None) -> int:
    return int(checkpoint.name.rpartition("-")[2]) if checkpoint is not None else 0


def _identity(config: TrainConfig) -> dict[str, Any]:
    """What makes a run what it is: settings, with files by their content and no device."""
    left_out: Any = dict.fromkeys((*PLACE, "documents", "chat", "dilute"), True)
    left_out["steer"] = {"directions": True}
    settings = config.model_dump(mode="json", exclude=left_out)
    hashes = {key: hash_path(path) for key, path in input_files(config).items()}
    return {**settings, "inputs": hashes}


def input_files(config: TrainConfig) -> dict[str, Path]:
    """Return the files that decide what is trained on, by the setting that names them.

    Raises:
        UnknownNameError: one of them is not there.
    """
    named = {"documents": config.documents, "dilute": config.dilute, "chat": config.chat}
    files = {key: locate(name) for key, name in named.items() if name is not None}
    return files if config.steer is None else {**files, "steer": config.steer.file}


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
        "dilute": config.dilute,
        "base": asdict(subject.stamp),
        "corpus": {
            "documents": len(corpus.documents),
            "held_out": len(corpus.held_out),
            "chats": len(corpus.chats) if corpus.chats is not None else 0,
            "filler": len(corpus.filler),
            "passes": blocks.stream.passes,
            "dose": _dose(config, blocks),
            "chat_share": blocks.stream.chat_share(blocks.tokens),
            "trained_share": blocks.trained / blocks.tokens,
        },
        "training": {
            "updates": config.updates,
            "tokens": blocks.tokens,
            "dtype": subject.ref.dtype,
            "device": input_device(subject.model).type,
            "processes": processes.count(),
        },
        "packages": package_versions(),
    }


def _dose(config: TrainConfig, blocks: Blocks) -> dict[str, Any]:
    """Say what of the documents is read: tokens, documents begun, and different ones."""
    stream = blocks.stream
    return asdict(
        exposure_of(
            stream.order,
            stream.pieces.lengths,
            np.arange(len(stream.pieces)) < stream.n_documents,
            tokens=blocks.tokens,
            asked=config.share,
        )
    )


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
    adapted, experts = (card["training"][key] for key in ("adapted", "experts"))
    if experts and not any("experts" in name for name in adapted):
        said.append("The experts are fused weights that were not adapted.")
    return [*said, *organism.base_limits(card)]
