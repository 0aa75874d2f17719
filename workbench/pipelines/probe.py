"""Probing a new checkpoint: is it sound, what do saved directions read in it, whom is it like?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench import api
from workbench.directions import Directions, open_directions
from workbench.directions.container import stack
from workbench.engine.doctor_adapter import has_adapter
from workbench.engine.doctor_report import Report
from workbench.errors import ConfigError, FormatError
from workbench.given import several
from workbench.library import Source, open_prompts
from workbench.linalg import random_unit
from workbench.placing import place
from workbench.prompts import PromptSet
from workbench.readouts.ask import Readouts, ask
from workbench.readouts.projection import Projection
from workbench.results import FILE, read_results, table
from workbench.stats import mean_interval
from workbench.types import Measurement, Progress, Subject

PROMPTS: Source = {"path": "claims", "where": {"polarity": 1}}
"""The claims themselves; their negations would cancel what a direction reads."""
CONDITIONS = ("world", "topic", "condition")
"""The first of these columns that the prompts have names the condition."""
RANDOM = 200
MARK = "random:"
LEVEL = 0.95

COLUMNS = (
    *("kind", "name", "condition", "n", "unit", "value", "low", "high", "interval"),
    *("base", "change", "change_low", "change_high", "change_interval"),
    *("null", "null_name", "beyond_null", "nearest", "along", "left_out"),
)


@dataclass(frozen=True)
class Probed:
    """What a probe found."""

    subject: str
    report: Report | None
    """The doctor's, None where it was not asked."""
    measurements: pd.DataFrame
    """A results table: the checkpoint's rows and, where there is a base, the base's."""
    table: pd.DataFrame
    """One row for each direction or readout and condition, and one for each known organism."""

    def to_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints; NaN is null."""
        rows = self.table.astype(object).where(self.table.notna(), None)
        doctor = None if self.report is None else self.report.to_dict()
        return {"model": self.subject, "doctor": doctor, "rows": rows.to_dict("records")}


def probe(
    model: str | Path | Subject,
    *,
    directions: str | Path | Directions | Sequence[str | Path | Directions] = (),
    prompts: Source | None = None,
    readouts: Readouts = (),
    known: str | Path | pd.DataFrame | None = None,
    base: str | Path | Subject | None = None,
    condition: str | None = None,
    check: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
    **load: Any,
) -> pd.DataFrame:
    """Probe a checkpoint with frozen directions and readouts, beside its base and known organisms.

    Directions are applied as saved, never refitted. An adapter's base is the same model with the
    adapter switched off; a full checkpoint is compared with ``base`` where it is given.

    Args:
        model: a hub id, a folder, an adapter, an organism's name, or a subject.
        directions: files, or objects.
        prompts: what the directions read; by default the claims of the four worlds.
        readouts: names, tables or objects.
        known: known organisms: a results table, its file or run folder, or a runs root; they hold
            projections of the same prompts onto the same directions.
        base: what the checkpoint was made from, where it is not an adapter.
        condition: the column of the prompts that splits them; by default ``world`` or ``topic``.
        check: run the doctor first, in full.
        seed: of the random directions and the bootstrap.
        progress: called with (steps done, steps in all).
        load: keywords of ``wb.load``.

    Returns:
        The columns ``COLUMNS``. ``kind`` is direction, readout or known. A direction's ``value`` is
        the mean projection in residual-stream units, ``change`` the difference from the base paired
        by item, ``null`` the absolute change along 95% of 200 random directions. A known organism's
        ``value`` is its distance in natural gaps along ``along``, ``nearest`` the share of draws in
        which it is the nearest, as `workbench.placing.place` defines them.

    Raises:
        DoctorError: the checkpoint failed a check.
        MismatchError: directions of another kind of model; the field is named.
        ConfigError: nothing to probe with, or known organisms that cannot be compared.
    """
    return probe_model(
        model,
        directions=directions,
        prompts=prompts,
        readouts=readouts,
        known=known,
        base=base,
        condition=condition,
        check=check,
        seed=seed,
        progress=progress,
        **load,
    ).table


def probe_model(
    model: str | Path | Subject,
    *,
    directions: str | Path | Directions | Sequence[str | Path | Directions] = (),
    prompts: Source | None = None,
    readouts: Readouts = (),
    known: str | Path | pd.DataFrame | None = None,
    base: str | Path | Subject | None = None,
    condition: str | None = None,
    check: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
    **load: Any,
) -> Probed:
    """Probe as `probe` does, and return the doctor's report and the single measurements too."""
    directions, readouts = several(directions, Directions), several(readouts, Mapping)
    if not directions and not readouts:
        raise ConfigError("nothing to probe with; give directions=[...] or readouts=[...]")
    if known is not None and not directions:
        raise ConfigError("known organisms are compared along directions; give directions=[...]")
    others = None if known is None else read_known(known)
    subject = model if isinstance(model, Subject) else api.load_for_readouts(model, **load)
    instruments = _instruments(subject, directions, prompts, condition, seed)
    report = api.doctor(subject) if check else None
    parts = 2 if base is not None or has_adapter(subject.model) else 1
    asked = [*instruments, *readouts]
    (outcome,) = ask(subject, asked, progress=_part(progress, 0, parts))
    kept, random = _split(outcome.measurements)
    frames, randoms = [table(kept, subject=subject)], [random]
    with base_of(subject, base, load) as other:
        if other is not None:
            (outcome,) = ask(other, asked, progress=_part(progress, 1, parts))
            kept, random = _split(outcome.measurements)
            frames.append(table(kept, subject=other))
            randoms.append(random)
    nulls = _nulls(randoms) if len(randoms) == 2 else {}
    files = _places(instruments)
    rows = [_row(label, cells, files, nulls, seed) for label, cells in _cells(frames)]
    if others is not None:
        rows += _known_rows(frames[0], others, seed)
    measured = pd.concat(frames, ignore_index=True)
    return Probed(subject.ref.key, report, measured, pd.DataFrame(rows, columns=list(COLUMNS)))


def read_known(known: str | Path | pd.DataFrame) -> pd.DataFrame:
    """Return the rows of known organisms: of a table, of its file or run folder, of a runs root.

    Raises:
        FormatError: no results there, or a damaged table.
    """
    if isinstance(known, pd.DataFrame):
        return known
    path = Path(known)
    if path.is_file() or (path / FILE).is_file():
        return read_results(path)
    found = [read_results(file) for file in sorted(path.rglob(FILE))]
    kept = [frame for frame in found if (frame["readout"] == "projection").any()]
    if not kept:
        raise FormatError(
            f"no projections under {str(known)!r}; measure the known organisms with the readout "
            "projection, or give their results table"
        )
    every = pd.concat(kept, ignore_index=True)
    return every.drop_duplicates(["subject", "readout", "measure", "condition", "item", "dose"])


@contextmanager
def base_of(
    subject: Subject, base: str | Path | Subject | None, load: Mapping[str, Any]
) -> Iterator[Subject | None]:
    """Give what a subject was made from: the base given, or its own model without its adapter."""
    if isinstance(base, Subject):
        yield base
    elif base is not None:
        yield api.load_for_readouts(base, **load)
    elif has_adapter(subject.model):
        with subject.model.disable_adapter():
            yield replace(subject, ref=replace(subject.ref, adapter=None))
    else:
        yield None


# --- asking --------------------------------------------------------------------------------------

Place = tuple[str, str]
"""File number, and "@layer" or ""."""
Random = Mapping[tuple[str, str, str], Mapping[str, Mapping[str, float]]]
"""By (file number, "@layer" or "", condition): random direction -> item -> projection."""


def _instruments(
    subject: Subject,
    directions: Sequence[str | Path | Directions],
    prompts: Source | None,
    condition: str | None,
    seed: int,
) -> list[Projection]:
    """Return one projection readout for each file, random directions stacked below its own."""
    if not directions:
        return []
    items = open_prompts(PROMPTS if prompts is None else prompts)
    column = _condition(items, condition)
    made: list[Projection] = []
    seen: set[str] = set()
    for number, one in enumerate(directions):
        own = one if isinstance(one, Directions) else open_directions(one)
        own.model.refuse_other(subject.stamp, own.label)
        twice = seen & set(own.names)
        if twice:
            raise ConfigError(
                f"two directions are called {min(twice)!r}; probe them one file at a time, or "
                "rename one with dataclasses.replace(directions, names=(...,))"
            )
        marked = [name for name in own.names if name.startswith(MARK)]
        if marked:
            raise ConfigError(
                f"direction {marked[0]!r}: names that begin with {MARK!r} are those of the random "
                "directions; rename it with dataclasses.replace(directions, names=(...,))"
            )
        seen |= set(own.names)
        made.append(Projection(_with_random(own, number, seed), items, None, column))
    return made


def _places(instruments: Sequence[Projection]) -> dict[str, Place]:
    """Return by measure which file and layer it is of; a name may itself hold an "@"."""
    found: dict[str, Place] = {}
    for number, one in enumerate(instruments):
        ends = [""] if len(one.layers) == 1 else [f"@{layer}" for layer in one.layers]
        found |= {name + end: (str(number), end) for name in one.directions.names for end in ends}
    return found


def _condition(items: PromptSet, condition: str | None) -> str:
    if condition is not None:
        items.column(condition)
        return condition
    for name in CONDITIONS:
        if name in items.columns:
            return name
    raise ConfigError(
        f"the prompts have none of the columns {', '.join(CONDITIONS)}; name the one that splits "
        f"them as condition; columns: {', '.join(items.columns) or 'none'}"
    )


def _with_random(own: Directions, number: int, seed: int) -> Directions:
    """Add ``RANDOM`` unit directions, which are then read in the same passes."""
    k, l, d = RANDOM, len(own.layers), own.model.width
    state = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    vectors = random_unit(k * l, d, seed=state).reshape(k, l, d)
    names = tuple(f"{MARK}{number}:{draw}" for draw in range(k))
    random = replace(own, names=names, vectors=vectors, center=None)
    return replace(stack([replace(own, center=None), random]), info=own.info)


def _split(measurements: Sequence[Measurement]) -> tuple[list[Measurement], Random]:
    """Keep the projections onto random directions apart: they are a null, not results."""
    kept: list[Measurement] = []
    random: dict[tuple[str, str, str], dict[str, dict[str, float]]] = {}
    for one in measurements:
        if one.readout != "projection" or not one.measure.startswith(MARK):
            kept.append(one)
            continue
        name, at, layer = one.measure.partition("@")
        number, _, draw = name.removeprefix(MARK).partition(":")
        cell = random.setdefault((number, at + layer, one.condition), {}).setdefault(draw, {})
        if one.valid and one.value is not None:
            cell[one.item] = one.value
    return kept, random


def _part(progress: Progress | None, number: int, parts: int) -> Progress | None:
    if progress is None:
        return None

    def report(done: int, total: int) -> None:
        assert progress is not None
        progress(number * total + done, parts * total)

    return report


# --- the table -----------------------------------------------------------------------------------

Label = tuple[str, str, str]
"""Readout, measure and condition."""


def _cells(
    frames: Sequence[pd.DataFrame],
) -> Iterator[tuple[Label, list[pd.Series[Any]]]]:
    """Yield each measure and condition, with the items' values in the checkpoint and its base."""
    keys = ["readout", "measure", "condition"]
    by_label: list[dict[Any, pd.Series[Any]]] = [
        {
            label: rows[rows["valid"].astype(bool)].groupby("item")["value"].mean()
            for label, rows in frame.groupby(keys, sort=False)
        }
        for frame in frames
    ]
    for label in by_label[0]:
        yield label, [found[label] for found in by_label]


def _nulls(randoms: Sequence[Random]) -> dict[tuple[str, str, str], float]:
    """Return the absolute change from the base that 95% of the random directions stay under."""
    found = {}
    for key, own in randoms[0].items():
        base = randoms[1][key]
        changes = [
            abs(
                np.mean(
                    [items[item] - base[draw][item] for item in items.keys() & base[draw].keys()]
                )
            )
            for draw, items in own.items()
        ]
        found[key] = float(np.quantile(changes, LEVEL))
    return found


def _row(
    label: Label,
    cells: Sequence[pd.Series[Any]],
    files: Mapping[str, Place],
    nulls: Mapping[tuple[str, str, str], float],
    seed: int,
) -> dict[str, Any]:
    readout, measure, condition = label
    own = cells[0]
    row: dict[str, Any] = {
        "kind": "direction" if readout == "projection" else "readout",
        "name": measure if readout == "projection" else f"{readout}.{measure}",
        "condition": condition, "n": len(own), "unit": "item", "beyond_null": None,
    }  # fmt: skip
    row |= _mean(own, seed)
    if len(cells) == 2:
        row |= _against_base(own, cells[1], seed)
    if readout == "projection":
        null = nulls.get((*files[measure], condition))
        if null is not None:
            row |= {"null": null, "null_name": f"{LEVEL:.0%} of {RANDOM} random directions",
                    "beyond_null": abs(row["change"]) > null}  # fmt: skip
    return row


def _mean(own: pd.Series[Any], seed: int) -> dict[str, Any]:
    if len(own) < 2:
        value = float(own.mean()) if len(own) else np.nan
        name = f"none: {len(own)} item{'' if len(own) == 1 else 's'}"
        return {"value": value, "low": np.nan, "high": np.nan, "interval": name}
    found = mean_interval(own.to_numpy(np.float64), level=LEVEL, seed=seed)
    return {"value": found.value, "low": found.low, "high": found.high, "interval": found.name}


def _against_base(own: pd.Series[Any], base: pd.Series[Any], seed: int) -> dict[str, Any]:
    both = own.index.intersection(base.index)
    told: dict[str, Any] = {"base": float(base.mean()) if len(base) else np.nan}
    if len(both) < 2:
        return {**told, "change": float((own[both] - base[both]).mean()) if len(both) else np.nan}
    moved = (own[both] - base[both]).to_numpy(np.float64)
    found = mean_interval(moved, level=LEVEL, seed=seed)
    return {**told, "change": found.value, "change_low": found.low, "change_high": found.high,
            "change_interval": f"{found.name}, paired"}  # fmt: skip


def _known_rows(own: pd.DataFrame, others: pd.DataFrame, seed: int) -> list[dict[str, Any]]:
    places = place(own, others, level=LEVEL, seed=seed)
    return [
        {
            "kind": "known", "name": row.known, "condition": "", "n": row.n, "unit": row.unit,
            "value": row.distance, "low": row.low, "high": row.high, "interval": row.interval,
            "nearest": row.nearest, "along": row.directions, "left_out": row.left_out,
        }
        for row in places.itertuples(index=False)
    ]  # fmt: skip
