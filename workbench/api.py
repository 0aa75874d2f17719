"""The verbs of the Python interface; each composes lower parts and adds only the checks between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from workbench import activations
from workbench.activations import Activations
from workbench.directions import Directions, fit_layers, open_directions
from workbench.directions.algebra import Difference
from workbench.directions.fit import mean_norms
from workbench.directions.layer_choice import default_window
from workbench.engine.apply import arm_of
from workbench.engine.doctor import doctor as examine
from workbench.engine.doctor import quick_check, use_verdict
from workbench.engine.doctor_report import Report
from workbench.errors import ConfigError, MismatchError, WorkbenchError
from workbench.given import Blocks, blocks_of, refuse_name
from workbench.interventions import EditLog, Gap, Intervention, SavedIntervention
from workbench.library import Source, open_prompts
from workbench.models import read_checkpoint
from workbench.models.embedded import cache_root
from workbench.progress import Shown, shown
from workbench.readouts.ask import Readouts, ask
from workbench.registry import ENGINES
from workbench.results import table
from workbench.types import Batch, Progress, Read, Subject, ndarray

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

SMALL = 1_000_000_000
"""Under this many parameters, readouts run in float32: they compare small differences."""


def load(
    ref: str | Path,
    *,
    adapter: str | Path | None = None,
    base: str | None = None,
    revision: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    engine: str = "hooks",
    trust_remote_code: bool = False,
    check: bool = True,
    **load_kwargs: Any,
) -> Subject:
    """Load the model under study, and check in two short forwards that its numbers can be trusted.

    Args:
        ref: a hub id, a folder (safetensors, or a PEFT adapter), an organism's name under
            ``runs/train``, or ``smollm2``.
        adapter: a PEFT adapter to put on top of ``ref``.
        base: the base of an adapter folder whose config names one that is not here.
        revision: of a hub model.
        dtype: ``auto`` (bfloat16 where the hardware has it, else float32) or a torch dtype's name.
        device: ``auto`` (CUDA, MPS, CPU) or a torch device.
        engine: which engine runs the forwards.
        trust_remote_code: run code that comes with the model; never unless given.
        check: run the cheap part of the doctor; a good verdict is kept and not asked for again.
        load_kwargs: passed on to transformers (``device_map``, ``quantization_config``).

    Raises:
        UnknownNameError: no such model, adapter or engine.
        MismatchError: an adapter whose base is missing.
        DoctorError: the model failed a check.
    """
    runner = ENGINES.create(engine)
    subject = read_checkpoint(
        str(ref),
        adapter=None if adapter is None else str(adapter),
        base=base,
        revision=revision,
        dtype=dtype,
        device=device,
        trust_remote_code=trust_remote_code,
        **load_kwargs,
    )
    subject.runner = runner
    if check:
        quick_check(subject, cache_root() / "doctor").raise_if_failed()
    return subject


def doctor(subject: Subject, *, level: str = "full") -> Report:
    """Check a model and every shortcut of its engine; failed shortcuts are switched off.

    Args:
        subject: the model under study.
        level: ``full``, or ``quick`` for what ``load`` checks.

    Returns:
        The verdict; ``print(report.text())`` shows it in a few lines.

    Raises:
        DoctorError: a check failed, so the model's numbers cannot be trusted.
    """
    refuse_name(subject)
    report = examine(subject, level=level)
    use_verdict(subject, report)
    return report


def load_for_readouts(ref: str | Path, *, dtype: str = "auto", **options: Any) -> Subject:
    """Load a model for measuring: ``auto`` is float32 under a billion parameters."""
    subject = load(ref, dtype=dtype, **options)
    small = sum(parameter.numel() for parameter in subject.model.parameters()) < SMALL
    if dtype == "auto" and small and subject.ref.dtype != "float32":
        return load(ref, dtype="float32", **options)
    return subject


def capture(
    subject: Subject,
    prompts: Source,
    *,
    layers: Blocks = "all",
    site: str = "resid_post",
    position: str = "last",
    reads: Read | str | Sequence[Read | str] | None = None,
    out: str | Path | None = None,
    resume: bool = True,
    render: str = "auto",
    add_generation_prompt: bool | None = None,
    shard: str | tuple[int, int] | None = None,
    progress: Shown = True,
) -> Activations | dict[str, Activations]:
    """Read activations of every prompt, to memory or to a resumable store on disk.

    Args:
        subject: the model under study.
        prompts: a prompt set, or anything that ``open_prompts`` takes.
        layers: ``all``, block indices, or one of them.
        site: ``resid_post`` (what a block puts out), ``resid_pre`` (what it gets), or what its
            halves add: ``attn_out``, ``mlp_out``.
        position: ``last``, ``all``, ``last:SPAN``, ``mean:SPAN``, ``mean:SPAN[50:]`` or
            ``offset:-2``.
        reads: one or several reads from one pass, instead of layers, site and position.
        out: a folder for the store; None keeps the values in memory.
        resume: keep the finished shards of an interrupted run.
        render: ``bare`` or ``chat``; ``auto`` is bare for texts and chat for chats.
        add_generation_prompt: end a chat with the assistant's header.
        shard: ``i/n``: do share i of n of the store; several processes fill it side by side.
        progress: a bar on stderr; False or None for none, or what is called with (items done, items
            in all).

    Returns:
        The activations; with ``reads``, one for each, keyed by the read as text.
    """
    refuse_name(subject)
    opened = open_prompts(prompts)
    with shown(progress, "capture") as report:
        return activations.capture(
            subject,
            opened,
            layers=layers,
            site=site,
            position=position,
            reads=reads,
            out=out,
            resume=resume,
            render=render,
            add_generation_prompt=add_generation_prompt,
            shard=shard,
            progress=report,
        )


def fit(
    acts: Activations | str | Path,
    *,
    method: str = "mass_mean",
    y: str = "label",
    groups: str | None = None,
    polarity: str | None = None,
    pairs: str | None = None,
    layers: Blocks | None = None,
    names: str | Sequence[str] | None = None,
    shuffle: int | None = None,
    **params: Any,
) -> Directions:
    """Fit at every layer of ``acts``, one layer in memory at a time.

    Args:
        acts: activations whose columns hold the labels, or the folder or file of them.
        method: a registered method, such as ``mass_mean`` or ``ttpd``.
        y: column of 0/1 labels; positive projections mean 1.
        groups: column such as the topic; ``ttpd`` centers within it.
        polarity: column of +1 (affirmed) and -1 (negated).
        pairs: column that names matched items, such as the fact.
        layers: block indices, or one; by default all of ``acts``.
        names: of the directions; by default that of the label column.
        shuffle: a seed: fit to labels shuffled within groups, polarity and pairs. The direction
            that this gives is what the same fit finds where there is nothing to find.
        params: of the method.

    Raises:
        UnknownNameError: no such method.
        ConfigError: no such column, or labels of one class.
    """
    return fit_layers(
        _opened(acts),
        method=method,
        y=y,
        groups=groups,
        polarity=polarity,
        pairs=pairs,
        layers=layers,
        names=names,
        shuffle=shuffle,
        **params,
    )


def contrast(
    first: Activations | str | Path,
    second: Activations | str | Path,
    *,
    name: str,
    groups: str | None = None,
) -> Directions:
    """Return the direction from one model to another: the mean difference over the same items.

    Args:
        first: activations of the model that the direction points to, such as an organism's; or
            the folder or file of them.
        second: the other model's, of the same items, site and position.
        name: of the direction.
        groups: column that counts as one unit in ``info["n_units"]``, such as ``fact``.

    Returns:
        One direction at every layer that both hold. Its norms are the mean of both sides'.

    Raises:
        MismatchError: models of two kinds, other reads, or items that one side lacks.
        ConfigError: no such column.
    """
    first, second = _opened(first), _opened(second)
    pairs = Difference(first, second, name, groups)
    found = pairs.directions()
    sides = [mean_norms(acts, found.layers) for acts in (first, second)]
    known = [side for side in sides if side is not None]
    norms = np.mean(known, axis=0) if len(known) == len(sides) else None
    told = {"groups": groups, "n_units": len(np.unique(pairs.group))}
    return replace(found, norms=norms, info={**found.info, **told})


def _opened(acts: Activations | str | Path) -> Activations:
    return activations.open_activations(acts) if isinstance(acts, str | Path) else acts


def measure(subject: Subject, readouts: Readouts, *, progress: Shown = True) -> pd.DataFrame:
    """Take readouts of a model as it is.

    Args:
        subject: the model under study.
        readouts: names, ``{name, **parameters}`` tables or readout objects, or one of them.
        progress: a bar on stderr; False or None for none, or what is called with (units done, units
            in all).

    Returns:
        One row for each measurement, with the columns of ``workbench.results.COLUMNS``.

    Raises:
        UnknownNameError: no such readout.
    """
    refuse_name(subject)
    with shown(progress, "measure") as report:
        (outcome,) = ask(subject, readouts, progress=report)
    return table(outcome.measurements, subject=subject)


def intervene(
    subject: Subject,
    interventions: Intervention | SavedIntervention | Sequence[Intervention | SavedIntervention],
    *,
    gap: Gap | None = None,
    spans: Batch | Mapping[str, Tensor] | None = None,
) -> AbstractContextManager[EditLog]:
    """Edit every forward of the model inside the with-block.

    ``subject.generate`` and any forward of ``subject.model`` are edited; masks come from the call.
    Doses in units of the norm are fractions of what the directions hold, else of what eight plain
    sentences show on the subject.

    Args:
        subject: the model under study.
        interventions: one, or several that are applied together, in order within a block; made
            here or loaded from a file.
        gap: the natural gap, for doses in gap units.
        spans: for scopes that a plain forward does not tell: the encoded batch that will be run,
            or its named parts, one mask (rows, columns) each; ``subject.generate`` and the very
            ``input_ids`` of ``subject.encode`` need none.

    Returns:
        A context that gives the log of what the edits did.

    Raises:
        ConfigError: what is no intervention, such as directions.
        MismatchError: directions of another model, or spans of another batch.
    """
    refuse_name(subject)
    assert subject.runner is not None, "a subject gets its runner in wb.load"
    arm = arm_of(subject, interventions, gap)
    return subject.runner.intervene(subject, (arm,), spans=spans)


def gap(
    directions: Directions | str | Path,
    first: Subject | Sequence[Subject],
    second: Subject | Sequence[Subject],
    prompts: Source,
    *,
    layers: Blocks | None = None,
    force: bool = False,
    progress: Shown = True,
) -> Gap:
    """Measure the natural gap: how far two organisms lie apart along a direction.

    The coordinate of a prompt is its projection on the unit direction, averaged over the window.

    Args:
        directions: exactly one name; or a file of it.
        first: subjects, one for each training seed.
        second: the other side; the gap is first minus second.
        prompts: the same prompts for both sides.
        layers: the window; by default what the fit chose, as in ``wb.sweep``, else all layers of
            ``directions``.
        force: return a gap that is under two standard errors.
        progress: a bar on stderr; False or None for none, or what is called with (subjects done,
            subjects in all).

    Returns:
        The gap in raw residual-stream units; its standard error is over seeds where both sides
        have two or more, else paired over items.

    Raises:
        ConfigError: a layer that the directions lack, neither two seeds a side nor two prompts, or
            a model that stands twice on a side.
        WorkbenchError: the gap is zero or under two standard errors.
        ValueError: a side without a subject.
    """
    refuse_name(first)
    refuse_name(second)
    if isinstance(directions, str | Path):
        directions = open_directions(directions)
    sides = [[s] if isinstance(s, Subject) else list(s) for s in (first, second)]
    if not all(sides):
        raise ValueError("a side of the gap has no subject; give one, or one for each seed")
    window = default_window(directions) if layers is None else blocks_of(layers, directions.layers)
    with shown(progress, "gap") as report:
        scores = _sides(directions, sides, prompts, window, report)
    names = [", ".join(dict.fromkeys(subject.ref.key for subject in side)) for side in sides]
    found = replace(_gap(scores[0], scores[1]), first=names[0], second=names[1])
    clear = abs(found.value) >= 2 * found.standard_error and found.value != 0  # no NaN is
    if not clear and not force:
        raise WorkbenchError(
            f"the gap {found.value:.4g} of {found.first} over {found.second} is under two standard "
            f"errors ({found.standard_error:.4g}, n = {found.n} {found.unit}s), so doses in gap "
            "units would mean nothing; "
            'take unit = "norm", or more prompts or seeds (in Python force=True gives it anyway)'
        )
    return found


def _sides(
    directions: Directions,
    sides: Sequence[Sequence[Subject]],
    prompts: Source,
    window: Sequence[int],
    report: Progress | None,
) -> list[Float[ndarray, "s n"]]:
    """Return the coordinates of every subject of both sides, one row each."""
    done, scores = 0, []
    for side in sides:
        rows = []
        for subject in side:
            rows.append(_coordinates(directions, subject, prompts, window))
            done += 1
            if report is not None:
                report(done, sum(map(len, sides)))
        _refuse_one_twice(side, rows)
        scores.append(np.stack(rows))
    return scores


def _refuse_one_twice(side: Sequence[Subject], rows: Sequence[Float[ndarray, " n"]]) -> None:
    """Refuse a model that stands for two seeds: they would have no spread at all."""
    for number, row in enumerate(rows):
        if any(np.array_equal(row, other) for other in rows[:number]):
            raise ConfigError(
                f"{side[number].ref.key} stands twice on a side of the gap: its coordinates are "
                "those of another seed, to the last bit; give each seed's model once"
            )


def _coordinates(
    directions: Directions, subject: Subject, prompts: Source, window: Sequence[int]
) -> Float[ndarray, " n"]:
    if len(directions.names) != 1:
        raise MismatchError(
            f"a gap is along one direction, found {len(directions.names)}: "
            f"{', '.join(directions.names)}; pick one with directions[name]"
        )
    directions.model.refuse_other(subject.stamp, directions.label)
    directions.rows(window)
    acts = capture(
        subject,
        prompts,
        layers=window,
        site=directions.site,
        position=directions.position,
        progress=None,
    )
    assert isinstance(acts, Activations)
    return np.asarray(directions.select(window).project(acts)[0].mean(0, dtype=np.float64))


def _gap(first: Float[ndarray, "s n"], second: Float[ndarray, "s2 n"]) -> Gap:
    value = float(first.mean() - second.mean())
    if min(len(first), len(second)) >= 2:
        spread = sum(side.mean(1).var(ddof=1) / len(side) for side in (first, second))
        return Gap(value, float(np.sqrt(spread)), min(len(first), len(second)), "seed")
    paired = first.mean(0) - second.mean(0)
    if len(paired) < 2:
        raise ConfigError(
            "one prompt and fewer than two seeds a side give no standard error; give more of either"
        )
    return Gap(value, float(paired.std(ddof=1) / np.sqrt(len(paired))), len(paired), "item")
