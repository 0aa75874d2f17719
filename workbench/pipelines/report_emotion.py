"""What runs of emotion vectors say: tables for a terminal, a page each, rows of a headline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.pipelines.report_truth import Row
from workbench.pipelines.study import Unit
from workbench.pipelines.verb import Done
from workbench.plain import number

if TYPE_CHECKING:
    import pandas as pd

REPORT = "report.md"
PLAIN, ALL, PEAK, FIRST, SECOND = "denoised", "all", "peak", "first", "second"
FIXED = "fixed"
"""Says of a window that nothing chose it."""
NO_TOPICS = (
    "no topics are left to choose a window without those that are scored; deal three folds or "
    "more, or give fixed = [LAYERS]"
)
VARIANTS = ("denoised", "raw", "random control")
BEFORE = "95% bootstrap over items"
"""The item brackets of runs from before their tables named them."""
SUMS = ("composite", "contrast")
"""Directions that a headline tells of whatever they show; emotions where they show something."""


def vectors_text(folder: Path, told: Mapping[str, Any]) -> str:
    """Say how well the vectors tell emotions apart, where, and whether they know valence."""
    curves = read(folder, "curves")
    lines = [_held_out(told, curves)]
    lines += [f"    {line}" for line in _by_variant(curves)]
    if (folder / "geometry.parquet").exists():
        lines += [f"  {line}" for line in _valence(read(folder, "geometry"))]
    return "\n".join(lines)


def gaps_text(folder: Path) -> str:
    """Say by direction how far two conditions lie apart on both halves of the items."""
    gaps = read(folder, "gaps")
    first = gaps.iloc[0]
    high, low = first["high_condition"], first["low_condition"]
    peak = gaps[gaps["window"] == PEAK].set_index("emotion")
    before = peak[peak["half"] == FIRST]["zgap"]
    second = peak[peak["half"] == SECOND].reset_index()
    beyond = second[[_beyond(row, before[row["emotion"]]) for row in second.to_dict("records")]]
    named = ", ".join(beyond["emotion"]) or "none"
    reads = [_reads(beyond)] if "reads" in gaps else []
    said = [
        f"{high} minus {low} in pooled standard deviations; peaks chosen on the first half",
        f"beyond both random bands on the second half, with the first half's sign: "
        f"{len(beyond)} of {len(second)} ({named})",
        *reads,
        _pivot(gaps).to_string(index=False, float_format=lambda value: f"{value:+.2f}", na_rep="-"),
    ]
    return "\n".join(said)


def vectors_page(folder: Path, told: Mapping[str, Any]) -> str:
    """Return the page of an emotions run as Markdown."""
    curves, counts = read(folder, "curves"), read(folder, "counts")
    by_emotion = counts.groupby("emotion", sort=False)["stories"].agg(["sum", "min"])
    own = curves[(curves["variant"] == PLAIN) & curves["chosen"] & (curves["emotion"] != ALL)]
    at = own.groupby("emotion", sort=False)["auc"].mean()
    each = by_emotion.assign(auc=at).reset_index()
    each.columns = ["emotion", "stories", "fewest on a topic", "AUC in the window"]
    how = "The window was chosen by it alone."
    if told["chosen"] == FIXED:
        how = "The window was fixed by the settings, so none of it was chosen."
    parts = [
        "# Emotion vectors",
        "\n".join(f"- {line.strip()}" for line in vectors_text(folder, told).split("\n")),
        "AUC: of one emotion's stories against the other stories on the same topic, along vectors "
        f"of other topics. {how}",
        "## By emotion",
        grid(each),
        "## By layer, mean over emotions",
        grid(_layers(curves)),
    ]
    if (folder / "geometry.parquet").exists():
        columns = ["variant", "component", "against", "r", "p", "n", "explained", "planned"]
        parts += [
            "## Principal components against marks of valence and arousal",
            "The marks are one author's coarse judgment, not ratings. Two pairs were planned.",
            grid(read(folder, "geometry")[columns]),
        ]
    return "\n\n".join(parts) + "\n"


def gaps_page(folder: Path) -> str:
    """Return the page of a profiles run as Markdown."""
    gaps, profiles = read(folder, "gaps"), read(folder, "profiles")
    told = gaps.iloc[0]
    whole = profiles[(profiles["half"] == ALL)]
    wide = whole.pivot_table(
        index=["window", "emotion"], columns="model", values="value", sort=False
    )
    columns = ["emotion", "window", "layer", "half", "zgap", "low", "high", "item_low",
               "item_high", "random95", "matched95", "seed_gap"]  # fmt: skip
    columns += [name for name in ("auc", "auc_low", "reads") if name in gaps]
    parts = [
        f"# Emotions in organisms, {told['high_condition']} minus {told['low_condition']}",
        "\n".join(gaps_text(folder).split("\n")[: 3 if "reads" in gaps else 2]),
        f"Brackets: {told['interval']} (n = {told['n']}); item brackets: "
        f"{told.get('item_interval', BEFORE)}, paired. Bands: 95% of isotropic and of "
        "covariance-matched random directions at the same layers, of the largest over layers where "
        "the layer was chosen on the same items.",
        "## Gaps",
        grid(gaps[columns]),
        "## Profiles, from the reference, all items",
        grid(wide.reset_index()),
    ]
    return "\n\n".join(parts) + "\n"


def emotion_rows(units: Sequence[tuple[Unit, Done]]) -> Iterator[Row]:
    """Give a study's headline the held-out AUC, the planned correlations, and the gaps."""
    kinds = {"emotions": _vector_rows, "profiles": _gap_rows}
    for unit, done in units:
        if done.verb in kinds:
            for row in kinds[done.verb](done):
                yield replace(row, stage=unit.stage)


def _vector_rows(done: Done) -> Iterator[Row]:
    told, model = done.result, str(done.result["model"])
    curves = read(done.path, "curves")
    best = {name: window_mean(curves, name) for name in VARIANTS[1:]}
    others = ", ".join(f"{name} {value:.2f}" for name, value in best.items())
    null = f"shuffled, largest over layers {number(told['null_largest']):.2f}"
    yield Row(
        f"AUC of emotion against emotion, held-out topics, blocks {told['window']}", model,
        number(told["auc"]), number(told["low"]), number(told["high"]), told["n"], told["unit"],
        told["interval"] if told["n"] else f"not judged: {NO_TOPICS}",
        f"{null}; whole window {window_mean(curves, PLAIN):.2f}, {others}",
    )  # fmt: skip
    if not (done.path / "geometry.parquet").exists():
        return
    found = read(done.path, "geometry")
    for row in found[(found["variant"] == PLAIN) & found["planned"]].to_dict("records"):
        part = found[(found["variant"] != PLAIN) & (found["component"] == row["component"])]
        part = part[part["against"] == row["against"]]
        others = ", ".join(f"{r['variant']} {r['r']:+.2f}" for r in part.to_dict("records"))
        yield Row(
            f"correlation of PC{row['component']} with marks of {row['against']}", model, row["r"],
            float("nan"), float("nan"), row["n"], "emotion", f"permutation p = {row['p']:.4f}",
            f"{row['explained']:.0%} of the variance; {others}",
        )  # fmt: skip


def _gap_rows(done: Done) -> Iterator[Row]:
    gaps = read(done.path, "gaps")
    first = gaps[gaps["half"] == FIRST].set_index(["emotion", "window"])
    for row in gaps[gaps["half"] == SECOND].to_dict("records"):
        before = first.loc[(row["emotion"], row["window"])]
        if row["emotion"] not in SUMS and not _beyond(row, before["zgap"]):
            continue  # all of them stand in the run's own page
        place = f"block {row['layer']}" if row["window"] == PEAK else f"blocks {row['window']}"
        yield Row(
            f"{row['high_condition']} minus {row['low_condition']} along {row['emotion']}, "
            f"{place}, second half of items, in pooled SD",
            "organisms", row["zgap"], row["low"], row["high"], row["n"], row["unit"],
            row["interval"],
            f"first half {before['zgap']:+.2f}; items {row['item_low']:+.2f} to "
            f"{row['item_high']:+.2f}; random {row['random95']:.2f}, matched "
            f"{row['matched95']:.2f}; {between_seeds(row['seed_gap'])}" + _auc(row),
            planned=row["emotion"] in SUMS,
        )  # fmt: skip


def between_seeds(gap: float) -> str:
    """Say how far two seeds of one condition lie apart, where a condition has two."""
    return "between seeds: one seed" if gap != gap else f"between seeds {gap:.2f}"


def _held_out(told: Mapping[str, Any], curves: pd.DataFrame) -> str:
    return (
        f"held-out {auc_told(told)} at blocks {told['window']}, {told['chosen']}; shuffled "
        f"emotions reach {_digits(told['null_largest'])} at the best of "
        f"{curves['layer'].nunique()} layers"
    )


def auc_told(told: Mapping[str, Any]) -> str:
    """Say the AUC of an emotions run with its interval, or why there is none."""
    if told["auc"] is None:
        return f"AUC not judged: {NO_TOPICS}"
    ends = ", ".join(_digits(told[end]) for end in ("low", "high"))
    return f"AUC {told['auc']:.3f} [{ends}] ({told['interval']}, n = {told['n']})"


def _digits(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _by_variant(curves: pd.DataFrame) -> Iterator[str]:
    for name in VARIANTS:
        yield f"{name}: {window_mean(curves, name):.3f} in the window, all topics"


def window_mean(curves: pd.DataFrame, variant: str) -> float:
    """Return the mean AUC over emotions, topics and the window's layers."""
    own = curves[(curves["variant"] == variant) & curves["chosen"] & (curves["emotion"] == ALL)]
    return float(own["auc"].mean())


def _valence(found: pd.DataFrame) -> Iterator[str]:
    for row in found[(found["variant"] == PLAIN) & found["planned"]].to_dict("records"):
        yield (
            f"PC{row['component']} ({row['explained']:.0%} of the variance) and {row['against']}: "
            f"r = {row['r']:+.2f}, permutation p = {row['p']:.4f}, n = {row['n']} emotions"
        )


def _beyond(row: dict[Any, Any], before: float) -> bool:
    """Whether a second half's gap passes both bands with the sign that the first half had."""
    kept = row["zgap"] * before > 0
    return bool(kept and abs(row["zgap"]) > max(row["random95"], row["matched95"]))


def _auc(row: dict[Any, Any]) -> str:
    return f"; held-out AUC {row['auc']:.2f}" if row.get("auc", 0) > 0 else ""


def _reads(beyond: pd.DataFrame) -> str:
    """Say which of those gaps are along vectors that tell their emotion apart."""
    own = beyond[beyond["reads"].astype(bool)]["emotion"]
    return (
        f"of these, vectors that tell their emotion from others there (AUC interval above 0.5): "
        f"{len(own)} ({', '.join(own) or 'none'})"
    )


def _pivot(gaps: pd.DataFrame) -> pd.DataFrame:
    """Return one row a direction: both halves at the peak and over the window, with bands."""
    keys = ["emotion", "window", "layer"]
    table = gaps.pivot_table(index=keys, columns="half", values="zgap", sort=False)
    second = gaps[gaps["half"] == SECOND].set_index(keys)
    for name in ("item_low", "item_high", "random95", "matched95"):
        table[name] = second[name]
    return table.reset_index().sort_values("window", kind="stable", ascending=False)


def _layers(curves: pd.DataFrame) -> pd.DataFrame:
    own = curves[curves["emotion"] == ALL]
    table = own.pivot_table(index="layer", columns="variant", values="auc")[list(VARIANTS)]
    null = own[own["variant"] == PLAIN].set_index("layer")[["null", "chosen"]]
    return table.join(null).reset_index()


def grid(table: pd.DataFrame) -> str:
    """Lay a table out as Markdown; numbers in three digits, nothing for what is not there."""
    rows = [list(map(str, table.columns)), ["---"] * len(table.columns)]
    rows += [list(map(_cell, row)) for row in table.itertuples(index=False)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "-" if value != value else f"{value:.3f}"
    return str(value)


def read(folder: Path, name: str) -> pd.DataFrame:
    """Read one of a run's tables."""
    import pandas as pd

    return pd.read_parquet(folder / f"{name}.parquet")
