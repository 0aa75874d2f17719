"""The page of a study of emotions: what holds and what does not, then every table behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.files import write_bytes
from workbench.pipelines.report_emotion import (
    ALL,
    FIRST,
    FIXED,
    PEAK,
    PLAIN,
    SECOND,
    auc_told,
    between_seeds,
    gaps_page,
    grid,
    read,
    vectors_page,
    window_mean,
)
from workbench.pipelines.report_words import at_blocks, one_dose, with_runs
from workbench.pipelines.study import Unit
from workbench.pipelines.verb import Done
from workbench.plain import number
from workbench.runs import read_result

if TYPE_CHECKING:
    import pandas as pd

    from workbench.pipelines.report_effects import Effects

FILE = "emotions.md"
LEVEL = 0.05
SLOPES = (
    *("direction", "layers", "scope", "readout", "measure", "condition", "slope", "low", "high"),
    *("n", "unit", "band", "monotone", "share_of_gap", "verdict"),
)
DOSES = ("direction", "layers", "dose", "realised", "realised_gap", "mass", "guarded")


def write_study_page(
    units: Sequence[tuple[Unit, Done]], effects: Mapping[str, Effects], folder: Path
) -> Path | None:
    """Write the page where a study made emotion vectors; None where it made none."""
    if not any(done.verb == "emotions" for _, done in units):
        return None
    path = folder / FILE
    write_bytes(path, study_page(units, effects).encode())
    return path


def study_page(units: Sequence[tuple[Unit, Done]], effects: Mapping[str, Effects]) -> str:
    """Return the page as Markdown."""
    own = {verb: [d for _, d in units if d.verb == verb] for verb in ("emotions", "profiles")}
    swept = {unit.title: done for unit, done in units if done.verb == "sweep"}
    lines = [line for done in own["emotions"] for line in vector_verdicts(done)]
    lines += [line for done in own["profiles"] for line in gap_verdicts(done)]
    lines += [line for title, done in swept.items() for line in gap_clear(title, done)]
    lines += [line for title, found in effects.items() for line in dose_verdicts(title, found)]
    parts = ["# Emotions: what holds and what does not", "\n".join(f"- {line}" for line in lines)]
    parts += [_below(vectors_page(done.path, done.result)) for done in own["emotions"]]
    parts += [_below(gaps_page(done.path)) for done in own["profiles"]]
    parts += [_dose_section(title, found) for title, found in effects.items()]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def vector_verdicts(done: Done) -> Iterator[str]:
    """Judge the vectors: held-out topics, the planned correlations, and what denoising did."""
    told, curves = done.result, read(done.path, "curves")
    yield _held_out(told)
    each = curves[(curves["variant"] == PLAIN) & curves["chosen"] & (curves["emotion"] != ALL)]
    low = each.groupby("emotion", sort=False)["low"].mean()
    yield (
        f"{int((low > 0.5).sum())} of {len(low)} emotions have an AUC interval above 0.5 in the "
        f"window {told['window']} ({', '.join(low[low > 0.5].index) or 'none'})."
    )
    if (done.path / "geometry.parquet").exists():
        found = read(done.path, "geometry")
        for row in found[(found["variant"] == PLAIN) & found["planned"]].to_dict("records"):
            yield (
                f"{_word(row['p'] < LEVEL)}: PC{row['component']} goes with {row['against']}. r = "
                f"{row['r']:+.2f}, permutation p = {row['p']:.4f}, n = {row['n']} emotions, "
                f"coarse marks of one author."
            )
    plain, control = (window_mean(curves, name) for name in (PLAIN, "random control"))
    yield (
        f"removing neutral components changes the window's AUC by {plain - control:+.3f} over "
        "removing as many random directions."
    )


def _held_out(told: Mapping[str, Any]) -> str:
    fixed = told["chosen"] == FIXED
    where = "the fixed window" if fixed else "a window chosen without these topics"
    low, reached = number(told["low"]), number(told["null_largest"])
    lacking = "" if low == low and reached == reached else "not judged: no interval over topics"
    return (
        f"{_verdict(lacking, low > 0.5 and number(told['auc']) > reached)} vectors tell emotions "
        f"apart on topics they were not made from. {auc_told(told)}, at {where}; rule: interval "
        f"above 0.5 and above what shuffled emotions reach at the best layer, {reached:.3f}."
    )


def gap_verdicts(done: Done) -> Iterator[str]:
    """Judge the gaps: beyond random directions and seeds, along vectors that read.

    Nothing is judged where no two seeds of both conditions say how far training alone moves.
    """
    gaps = read(done.path, "gaps")
    peak = gaps[gaps["window"] == PEAK].set_index("emotion")
    first, second = (peak[peak["half"] == half] for half in (FIRST, SECOND))
    sign = second["zgap"] * first["zgap"].reindex(second.index) > 0
    beyond = sign & (second["zgap"].abs() > second[["random95", "matched95"]].max(axis=1))
    lacking = _no_seeds(second)
    seeds = beyond & (not lacking) & (second["zgap"].abs() > second["seed_gap"])
    clear = seeds & (second["low"] * second["high"] > 0)
    row = gaps.iloc[0]
    high = row["high_condition"]
    said = lacking or (
        f"{int(seeds.sum())} of them also beyond what two seeds of one condition differ by, and "
        f"{int(clear.sum())} of these with an interval over seeds off zero "
        f"({', '.join(second.index[clear]) or 'none'})"
    )
    yield (
        f"{high} minus {row['low_condition']}, second half of items at the first half's peak "
        f"layer: {int(beyond.sum())} of {len(second)} directions are beyond both random bands with "
        f"the same sign, {said}."
    )
    if "reads" in second:
        kept = second.index[clear & second["reads"].astype(bool)]
        asked = "organisms differ along vectors that read their emotion on held-out stories"
        names = "" if lacking else f": {', '.join(kept) or 'none of these'}"
        yield f"{_verdict(lacking, len(kept) > 0)} {asked}{names}."
    if "composite" in second.index:
        held = bool(clear["composite"] and second["zgap"]["composite"] > 0)
        (own,) = second.loc[["composite"]].to_dict("records")
        yield f"{_verdict(lacking, held)} the composite lies higher in {high}. {_composite(own)}"


def _no_seeds(gaps: pd.DataFrame) -> str:
    """Say why no seeds tell what training alone moves; empty where they do."""
    if (gaps["unit"] == "seed").all() and gaps["seed_gap"].notna().any():
        return ""
    one = gaps["seed_gap"].isna().all()
    return f"not judged: {'one seed a condition' if one else 'no two seeds in both conditions'}"


def _verdict(lacking: str, holds: bool) -> str:
    return f"{lacking}, so nothing says whether" if lacking else f"{_word(holds)}:"


def _composite(row: Mapping[Any, Any]) -> str:
    return (
        f"{row['zgap']:+.2f} pooled SD on the second half (items {row['item_low']:+.2f} to "
        f"{row['item_high']:+.2f}; {row['interval']} {row['low']:+.2f} to {row['high']:+.2f}, "
        f"n = {row['n']}), random {row['random95']:.2f}, matched {row['matched95']:.2f}, "
        f"{between_seeds(row['seed_gap'])}."
    )


def gap_clear(title: str, done: Done) -> Iterator[str]:
    """Say whether a sweep's natural gap is clear, once for each sweep that measured one."""
    gap = read_result(done.path).get("gap")
    if gap is not None:
        clear = "clear" if gap["clear"] else "under two standard errors, so doses are not in gaps"
        yield (
            f"{title}: natural gap {number(gap['value']):+.3f} residual units, standard error "
            f"{number(gap['standard_error']):.3f} over n = {gap['n']} {gap['unit']}s: {clear}."
        )


def dose_verdicts(title: str, found: Effects) -> Iterator[str]:
    """Say what a sweep moved beyond random directions, of how much it could judge."""
    slopes = found.slopes
    judged = slopes[slopes["slope"].notna()]
    moved = judged[judged["beyond_band"].astype(bool) & (judged["low"] * judged["high"] > 0)]
    named = [
        f"{row['direction']}{_place(row, slopes)} on {row['measure']} ({row['condition']}) "
        f"{row['slope']:+.3g}"
        for row in moved.to_dict("records")
    ]
    told = f"{len(moved)} of {len(judged)} judged slopes are off zero and beyond the random band"
    rest = len(slopes) - len(judged)
    out = f"; {rest} not judged, since no dose keeps the answer mass" if rest else ""
    yield f"{title}: {told}{out}{': ' + '; '.join(named) if named else ''}."


def _place(row: Mapping[Any, Any], slopes: pd.DataFrame) -> str:
    return f" at {at_blocks(row['layers'])}" if slopes["layers"].nunique() > 1 else ""


def _dose_section(title: str, found: Effects) -> str:
    slopes, doses = found.slopes, found.doses
    parts = [
        f"## Doses: {title}",
        f"Intervals: {', '.join(dict.fromkeys(map(str, slopes['interval'])))}; band: "
        f"{', '.join(dict.fromkeys(map(str, slopes['band_name'])))}; per {_one_dose(slopes)}.",
        grid(with_runs(slopes[[name for name in SLOPES if name in slopes]])),
        grid(with_runs(doses[[name for name in DOSES if name in doses]])),
    ]
    if len(found.controls):
        columns = [
            "direction",
            "control",
            "readout",
            "measure",
            "condition",
            "slope",
            "low",
            "high",
        ]
        parts += ["Controls, the same slopes:", grid(found.controls[columns])]
    if len(found.sensitivity):
        parts += [
            f"Largest change at doses -{found.endpoint:g} and {found.endpoint:g}, a sensitivity "
            "and no estimate of mediation:",
            grid(with_runs(found.sensitivity)),
        ]
    return "\n\n".join(parts)


def _one_dose(slopes: pd.DataFrame) -> str:
    kinds = slopes[["dose_unit", "edit"]].drop_duplicates().itertuples(index=False)
    return ", ".join(dict.fromkeys(one_dose(unit, edit) for unit, edit in kinds))


def _word(holds: bool) -> str:
    return "holds" if holds else "does not hold"


def _below(page: str) -> str:
    """Move a page's headings one level down."""
    return "\n".join(f"#{line}" if line.startswith("#") else line for line in page.split("\n"))
