"""What a run, a table or a study found, in few lines: the result first, then what was set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import FormatError, unknown
from workbench.plain import as_json
from workbench.runs import read_result, read_run
from workbench.types import Run

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
EVIDENCE, RESULTS, HEADLINE = "evidence.parquet", "results.parquet", "headline.csv"
MOST = 12
"""So many answers of a fit are each told."""
LINES = 30
"""So many rows of a table are shown; the file has them all."""


def run_row(path: Path, describe_store: Callable[[Path], Row]) -> Row:
    """Describe a run folder: what became of it, what it found, and the settings that are set."""
    run = read_run(path)
    named = {key: getattr(run, key) for key in ("id", "verb", "status", "started", "finished")}
    error = {"error": run.error} if run.error else {}
    found = _found(path, run, describe_store) if run.status == "done" else {}
    more = {"models": ", ".join(run.models), "outputs": ", ".join(run.outputs)}
    config = {"config": as_json(_set(dict(run.config)), indent=2)}
    return {**named, **error, **found, **more, **config}


def _found(path: Path, run: Run, describe_store: Callable[[Path], Row]) -> Row:
    """Say what a finished run found, by its verb, else by the tables it left."""
    if run.verb == "cache":
        return describe_store(path)
    if run.verb == "corpus":
        from workbench.pipelines.corpora import describe_corpus

        return describe_corpus(path)
    if run.verb == "compare":
        from workbench.pipelines.report_organisms import verdict_text

        return {"verdicts": verdict_text(read_result(path)["verdicts"])}
    if run.verb == "sweep":
        from workbench.pipelines.report_effects import effects_of

        return {"effects": effects_of(path).text()}
    if run.verb == "fit" and (path / EVIDENCE).exists():
        return {"found": fit_text(path)}
    for name in (EVIDENCE, RESULTS):
        if (path / name).exists():
            return table_row(path / name)
    return {"result": as_json(_set(dict(read_result(path) or {})), indent=2)}


def _set(settings: Any) -> Any:
    """Leave out what is not set: null and what is empty."""
    if isinstance(settings, Mapping):
        kept = {key: _set(value) for key, value in settings.items()}
        return {key: value for key, value in kept.items() if value not in (None, {}, [], "")}
    return settings


def table_row(path: Path) -> Row:
    """Describe a table: evidence and results by what they say, others by their columns."""
    import pandas as pd

    frame = pd.read_parquet(path)
    told: Row = {"rows": len(frame)}
    if path.name == EVIDENCE and "auc" in frame.columns:
        return {**told, **_evidence(frame, path)}
    if {"readout", "measure", "value"} <= set(frame.columns):
        return {**told, "means": _means(path)}
    return {**told, "columns": ", ".join(map(str, frame.columns))}


def fit_text(run: Path) -> str:
    """Say what a fit gave: chosen layer, held-out AUC beside both nulls, gate; many as a table.

    Empty where the run left no evidence, as a map or a fit to shuffled labels does.
    """
    import pandas as pd

    if not (run / EVIDENCE).exists():
        return ""
    evidence = pd.read_parquet(run / EVIDENCE)
    return "\n".join([_fitted(evidence, run), _next(evidence, run)])


def _next(evidence: pd.DataFrame, run: Path) -> str:
    """Name the command that goes on from here."""
    every = f"workbench show {run / EVIDENCE}"
    if "job" in evidence.columns:
        return f"each layer and topic: {every}"
    model, file = evidence["model"].iloc[0], run / "directions.safetensors"
    return (
        f"each block: {every}\nnext: workbench generate {model} --directions {file} "
        '--doses=-0.1,0.1 --prompt "...", or a sweep of it'
    )


def _evidence(evidence: pd.DataFrame, path: Path) -> Row:
    """Held-out AUC at the chosen layer, then by layer over all topics together."""
    if "job" in evidence.columns:
        return {"jobs": evidence["job"].nunique(), "AUC by job": _by_job(evidence, path.parent)}
    from workbench.pipelines.report_truth import evidence_text
    from workbench.pipelines.report_words import fitted_of

    fitted = fitted_of(path.parent)
    together = evidence["topic"] == "all"
    shown = evidence[together] if together.any() else evidence
    text = evidence_text(shown, fitted).splitlines()
    most = 4 * LINES
    left = len(evidence_text(evidence, fitted).splitlines()) - min(len(text), most)
    more = [f"{left} more lines by topic: {path}, or the explorer's Truth page"] if left else []
    told = {"held-out AUC": _fitted(evidence, path.parent)}
    return {**told, "AUC by layer (* chosen)": "\n".join([*text[:most], *more])}


def _fitted(evidence: pd.DataFrame, run: Path) -> str:
    """Lay out the held-out AUC at the chosen layer beside both nulls, and the gate."""
    import pandas as pd

    from workbench.pipelines.report import as_text
    from workbench.pipelines.report_truth import truth_rows
    from workbench.pipelines.report_words import fitted_of

    if "job" in evidence.columns:
        return _by_job(evidence, run)
    rows = list(truth_rows(evidence, fitted_of(run)))
    lines = [as_text(pd.DataFrame([vars(row) for row in rows[:MOST]]))] if rows else []
    if len(rows) > MOST:
        lines.append(f"{len(rows) - MOST} more answers in {run / EVIDENCE}")
    return "\n".join([*lines, _gate(evidence)])


def _gate(evidence: pd.DataFrame) -> str:
    """Say whether the chosen layer reaches the recipe's gate, of which readings."""
    chosen = evidence[evidence["chosen"]]
    chosen = chosen[chosen["topic"] == "all"] if (chosen["topic"] == "all").any() else chosen
    passed = chosen.groupby(["split", "topic", "rendering"], sort=False)["usable"].all()
    gate = evidence["gate"].iloc[0]
    return (
        f"gate: {int(passed.sum())} of {len(passed)} readings at the chosen layer reach AUC "
        f"{gate:g} at their lower polarity"
    )


def _by_job(evidence: pd.DataFrame, run: Path) -> str:
    """Lay the held-out AUC of many jobs out, a line for each reading at its chosen layer."""
    kept = evidence[evidence["chosen"]] if evidence["chosen"].any() else evidence
    for column, value in (("polarity", 0), ("topic", "all")):
        whole = kept[column] == value
        kept = kept[whole] if whole.any() else kept
    names = ["job", "acts", "method", "items", "layer", "split", "topic", "n", "auc", "low", "high"]
    names += ["interval", "null_shuffled", "null_random", "usable"]
    return bounded(kept[[name for name in names if name in kept.columns]], run / EVIDENCE)


def _means(path: Path) -> str:
    """Average a results table, with n, unit and interval; of a sweep, its dose beside it."""
    from workbench.results import BY, read_results, summarize

    table = summarize(read_results(path))
    keys = ["dose_unit" if name == "unit" else name for name in BY]
    same = [name for name in keys if table[name].nunique(dropna=False) == 1]
    same = [name for name in same if name not in ("readout", "measure", "condition")]
    told = [f"{name} {table[name].iloc[0]}" for name in same if table[name].notna().all()]
    text = bounded(table.drop(columns=same), path)
    return f"{text}\nin every row: {', '.join(told)}" if told else text


def bounded(table: pd.DataFrame, path: Path) -> str:
    """Write the first rows of a table, and how many more there are in which file."""
    text = table.head(LINES).to_string(
        index=False, float_format=lambda value: f"{value:.3f}", na_rep="-"
    )
    left = len(table) - LINES
    return text if left <= 0 else f"{text}\n{left} more rows in {path}"


def study_row(path: Path) -> Row:
    """Describe the folder that a study's run left: its headline, then its tables."""
    import pandas as pd

    from workbench.pipelines.report import BRIEF, as_text

    table = pd.read_csv(path / HEADLINE, keep_default_na=False, na_values=[""])
    lacking = sorted({"question", "value", "low", "high", "n", "interval"} - set(table.columns))
    if lacking:
        raise FormatError(f"{path / HEADLINE} lacks the column {lacking[0]!r}; run the study again")
    for name, value in (("stage", ""), ("planned", True)):
        if name not in table.columns:  # of a run before these were written
            table[name] = value
    for name in ("question", "model", "unit", "interval", "control", "stage"):
        table[name] = table[name].fillna("")
    files = ", ".join(sorted(entry.name for entry in path.iterdir()))
    return {"study": path.name, "headline": as_text(table, BRIEF), "tables": files}


def study_named(name: str, root: Path) -> Row:
    """Describe a study by its name: its headline where it has run, and its stages."""
    from workbench.pipelines.study import read_study

    config, folder = read_study(name), root / "study" / name
    found = study_row(folder) if (folder / HEADLINE).exists() else {"study": config.name}
    stages = "\n".join(f"  {stage['id']}: {stage['verb']}" for stage in config.stage)
    return {**found, "stages": stages, "run it": f"workbench run {name}"}


def prompts_named(name: str) -> Row:
    """Describe a set of prompts: how many, its columns, and the first few."""
    from workbench.library import open_prompts

    items = open_prompts(name)
    pairs = [*zip(items.ids, items.items, strict=True)][:3]
    first = "\n".join(f"  {item}: {text!s:.100}" for item, text in pairs)
    return {"name": name, "items": len(items), "columns": ", ".join(items.columns), "first": first}


def organism_named(name: str, root: Path) -> Row:
    """Describe a trained organism, with its card.

    Raises:
        UnknownNameError: none of that name under ``root``.
    """
    from workbench.pipelines.fleets import organism_rows

    rows = {row["name"]: row for row in organism_rows(root)}
    if name not in rows:
        raise unknown("organism", name, rows, f"They lie in {root / 'train'} (--runs).")
    card = root / "train" / name / "CARD.md"
    told = {"card": card.read_text(encoding="utf-8")} if card.exists() else {}
    return {**{k: v for k, v in rows[name].items() if v is not None}, **told}
