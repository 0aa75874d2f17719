"""From pairs of replies to directions or a map that a model's own gradients trained."""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from workbench_training import organism
from workbench_training.pair_loop import PairLoop
from workbench_training.pair_method import Learned, PairMethod
from workbench_training.pair_settings import SCOPES, PairFitConfig
from workbench_training.pair_state import Reference, State
from workbench_training.pairs import Pair, PairRows, PairSet, read_pairs
from workbench_training.reply_scores import frozen

from workbench.config import parse
from workbench.directions import Directions, LinearMap
from workbench.engine.blocks import check_layers
from workbench.errors import ConfigError
from workbench.plain import plain
from workbench.registry import METHODS, needs_model
from workbench.types import Progress, Subject, ndarray

logger = logging.getLogger(__name__)

POSITIONS = {
    "user": "mean:user",
    "last_user": "mean:content",
    "user+tool": "mean:user",
    "assistant": "mean:assistant",
}
"""Where the norms stand for, as a capture would say it."""


@dataclass(frozen=True)
class Trained:
    """What training on pairs gives."""

    found: Directions | LinearMap
    log: list[dict[str, Any]]
    """A row an update."""
    told: dict[str, Any]
    """Counts, and the held-out margin without the edit and with it."""
    state: State


def fit_trained(
    subject: Subject,
    pairs: PairRows,
    *,
    method: str = "bipo",
    out: str | Path | None = None,
    progress: Progress | None = None,
    params: dict[str, Any] | None = None,
    **settings: Any,
) -> Directions | LinearMap:
    """Train directions or a map on pairs of replies; the model's weights stay as they are.

    Args:
        subject: the model whose replies are scored.
        pairs: a JSONL file or an item set's name, or rows ``prompt, chosen, rejected``.
        method: a registered method that needs a model: ``bipo``, ``loreft``, ``reps``.
        out: a folder for checkpoints: the same call goes on from the last one. None keeps none.
        progress: called with (updates done, updates in all).
        params: of the method.
        settings: as `workbench_training.pair_settings.PairFitConfig` has them: ``layers``,
            ``span``, ``epochs``, ``batch_size``, ``learning_rate``, ``seed``, ``shuffle``, ...

    Raises:
        UnknownNameError: no such method or file.
        ConfigError: settings or pairs that make no sense, a loss that is no number, a folder of
            another run.
    """
    name = str(pairs) if isinstance(pairs, str | Path) else "rows"
    data = {"pairs": name, "method": method, "params": params or {}, **settings}
    config = parse(PairFitConfig, data, "fit_trained")
    folder = None if out is None else Path(out)
    return train_on_pairs(subject, pairs, config, folder, progress).found


def train_on_pairs(
    subject: Subject,
    source: PairRows,
    config: PairFitConfig,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Train, or go on with a run that was interrupted.

    Args:
        subject: the model.
        source: the pairs.
        config: the settings.
        folder: for checkpoints and the log; they stay until ``state.discard()``.
        progress: called with (updates done, updates in all).

    Raises:
        UnknownNameError: no such method or file.
        ConfigError: as `fit_trained`.
    """
    method = make_method(config)
    layers = layers_of(subject, config)
    _refuse_unread(subject, layers, config)
    pairs = read_pairs(source, subject, config)
    state = State(folder, _identity(subject, pairs, config), config.save_every)
    with frozen(subject):
        loop = PairLoop(subject, method, config, layers, pairs.trained, pairs.held_out)
        reference = state.reference()
        if reference is None:
            reference = _observed(loop, pairs)
            state.keep_reference(reference)
        rows = loop.train(reference, state, progress)
        log = rows if folder is None else organism.read_log(folder)
        told = {**_counts(pairs), "updates": loop.updates, "joined": loop.joined, **_tail(log)}
        told |= _held_out(loop, pairs, reference)
        _warn(told)
        shift = loop.shift(pairs.trained) if method.gives == "map" else None
    found = method.result(_learned(loop, reference, told, shift), config.name or config.method)
    return Trained(found, log, told, state)


def _observed(loop: PairLoop, pairs: PairSet) -> Reference:
    """Measure the unedited model on all pairs; norms are of those that are trained on."""
    reference = loop.observe(pairs.trained)
    if not pairs.held_out:
        return reference
    held_out = loop.observe(pairs.held_out).logprobs
    return replace(reference, logprobs=np.hstack([reference.logprobs, held_out]))


def _learned(
    loop: PairLoop,
    reference: Reference,
    told: dict[str, Any],
    shift: Float[ndarray, "l d"] | None,
) -> Learned:
    """Return what was learned, without the blocks whose edit does nothing.

    Under the user's tokens the top block is one: nothing reads its output there.

    Raises:
        ConfigError: no block is left.
    """
    method, config = loop.method, loop.config
    sizes = method.sizes(loop.parameters).cpu()
    rows = torch.nonzero(sizes)[:, 0].tolist()
    if not rows:
        raise ConfigError(
            f"method {config.method!r} learned nothing: every block's edit is zero; edit blocks "
            f"below the top one, lower a lasso, or use another span than {config.span!r}"
        )
    empty = [layer for row, layer in enumerate(loop.layers) if row not in rows]
    return Learned(
        parameters={name: value.detach()[rows] for name, value in loop.parameters.items()},
        layers=tuple(loop.layers[row] for row in rows),
        model=loop.subject.stamp,
        norms=reference.norms[rows],
        position=POSITIONS[config.span],
        info={**_info(config, method, told), "left_out_layers": empty},
        shift=None if shift is None else shift[rows],
    )


def make_method(config: PairFitConfig) -> PairMethod:
    """Return the method of the settings.

    Raises:
        UnknownNameError: no such method.
        ConfigError: a method that a model does not train, or parameters that it refuses.
    """
    factory = METHODS.factory(config.method)
    if not needs_model(factory):
        raise ConfigError(
            f"method {config.method!r} is fitted to activations, not trained by a model; give it "
            "acts in place of model and pairs"
        )
    known = list(inspect.signature(factory).parameters)
    for name in config.params:
        if name not in known:
            raise ConfigError(
                f"method {config.method!r} has no parameter {name!r}; it has {', '.join(known)}"
            )
    try:
        made: PairMethod = factory(**config.params)
        made.check()
    except (ValueError, TypeError) as error:
        raise ConfigError(f"method {config.method!r}: {error}") from error
    return made


def layers_of(subject: Subject, config: PairFitConfig) -> tuple[int, ...]:
    """Return the blocks to edit.

    Raises:
        ConfigError: none, or one named twice.
        WorkbenchError: a block that the model does not have.
    """
    if config.layers == "all":
        return tuple(sorted(subject.blocks))
    if not config.layers or len(set(config.layers)) < len(config.layers):
        raise ConfigError(f"layers = {config.layers}; name at least one block, each once")
    check_layers(subject, config.layers)
    return tuple(sorted(config.layers))


def _refuse_unread(subject: Subject, layers: Sequence[int], config: PairFitConfig) -> None:
    """Refuse to edit the top block alone where nothing reads its output."""
    top = max(subject.blocks)
    if config.span != "assistant" and list(layers) == [top]:
        raise ConfigError(
            f"layers = [{top}] is the top block, and nothing reads its output on the tokens of "
            f"span = {config.span!r}; edit blocks below it, or use span = 'assistant'"
        )


def _identity(subject: Subject, pairs: PairSet, config: PairFitConfig) -> str:
    """Return 12 hex digits over settings, all pairs as tokens, and the model's weights."""
    settings = config.model_dump(mode="json", exclude={"pairs", "save_every"})
    tokens = [
        [[(r.ids, r.first, r.marked) for r in (p.chosen, p.rejected)] for p in own]
        for own in (pairs.trained, pairs.held_out)
    ]
    parts = (settings, tokens, subject.fingerprint, subject.ref.dtype)
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=plain).encode()).hexdigest()[
        :12
    ]


def _counts(pairs: PairSet) -> dict[str, int]:
    return {
        "pairs": len(pairs.trained),
        "held_out": len(pairs.held_out),
        "neutral_left_out": pairs.neutral,
        "other_splits_left_out": pairs.other_splits,
    }


def _tail(log: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the means of the last tenth of all updates."""
    rows = log[-max(len(log) // 10, 1) :]
    names = [n for n in ("loss", "margin", "reward_chosen", "accuracy", "nll") if n in rows[0]]
    told = {f"{name}_last": float(np.mean([row[name] for row in rows])) for name in names}
    return {"loss_first": float(log[0]["loss"]), **told}


def _held_out(loop: PairLoop, pairs: PairSet, reference: Reference) -> dict[str, float]:
    """Return the log-odds of the chosen reply by token, without the edit and at full strength."""
    if not pairs.held_out:
        return {}
    before = reference.logprobs[:, len(pairs.trained) :]
    after = loop.measure(pairs.held_out, 1.0)
    return {
        "margin_before": float(_margins(pairs.held_out, before).mean()),
        "margin_after": float(_margins(pairs.held_out, after).mean()),
        "accuracy_before": float((_margins(pairs.held_out, before) > 0).mean()),
        "accuracy_after": float((_margins(pairs.held_out, after) > 0).mean()),
        "chosen_change": float((after[0] - before[0]).mean()),
    }


def _margins(pairs: Sequence[Pair], logprobs: Float[ndarray, "2 n"]) -> Float[ndarray, " n"]:
    sizes = np.array([[p.chosen.size for p in pairs], [p.rejected.size for p in pairs]])
    by_token = logprobs / sizes
    return np.asarray(by_token[0] - by_token[1])


def _warn(told: dict[str, Any]) -> None:
    """Say where a margin grows because both replies became less likely."""
    told["displaced"] = told.get("margin_last", 0) > 0 and told.get("reward_chosen_last", 0) < 0
    if told["displaced"]:
        logger.warning(
            "likelihood displacement: the margin grew (%.3g) while the chosen replies became less "
            "likely (reward %.3g); give params = {gamma = ...}, more of it, or fewer epochs",
            told["margin_last"],
            told["reward_chosen_last"],
        )


def _info(config: PairFitConfig, method: PairMethod, told: dict[str, Any]) -> dict[str, Any]:
    """Return what the header says: how it was trained, and where it may be used."""
    kept = ("epochs", "batch_size", "learning_rate", "weight_decay", "seed", "shuffle")
    settings = {name: getattr(config, name) for name in kept}
    return {
        "method": config.method,
        "params": method.get_params(),
        "span": config.span,
        "scope": SCOPES[config.span],
        "trained": {k: v for k, v in settings.items() if v is not None},
        **told,
    }
