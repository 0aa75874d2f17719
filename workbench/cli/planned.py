"""What a dry run prints: the cost first, then what was set; of a study, each of its runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.cli.say import emit, line
from workbench.plain import as_json, plain

if TYPE_CHECKING:
    from workbench.cli.options import Options
    from workbench.pipelines.study import StudyConfig
    from workbench.pipelines.study_plan import Planned
    from workbench.pipelines.verb import Done

STATES = {"new": "to run", "planned": "to run", "resumed": "resumes what an earlier run left",
          "done": "finished, reused", "reused": "finished, reused"}  # fmt: skip
MANY = 8
"""So many runs of a stage, and items of a list, are printed; of more, their number."""


def print_plan(planned: Done, options: Options) -> None:
    """Print what one verb would do."""
    if options.as_json:
        emit(planned.verb, planned.id, "planned", planned.path, planned.result)
        return
    shown = dict(planned.result)
    config, inputs = shown.pop("config"), shown.pop("inputs")
    state, jobs, lines = shown.pop("run", None), shown.pop("jobs", []), shown.pop("plan", [])
    found = "" if state is None else f": {STATES[state]}"
    line(f"{planned.verb} {planned.id} -> {planned.path}{found}")
    for key, value in _set(shown).items():
        line(f"{_words(key)}: {_value(value)}")
    line("\n".join(lines)) if lines else None
    line("settings (those that are set):")
    for key, value in _set(config).items():
        line(f"  {key} = {as_json(value)}")
    line("\n".join(["reads:", *(f"  {path}" for path in inputs)]) if inputs else "reads: nothing")
    line("\n".join(jobs)) if jobs else None


def print_study(study: StudyConfig, planned: Sequence[Planned], options: Options) -> None:
    """Print what each stage of a study would do."""
    if options.as_json:
        stages = [
            {"id": s["id"], "verb": s["verb"], "for": s.get("for", {}), "settings": s,
             "runs": [_told(one) for one in planned if one.unit.stage == s["id"]]}
            for s in study.stage
        ]  # fmt: skip
        emit("run", study.name, "planned", None, {"stages": stages})
        return
    counts = Counter(STATES[one.done.status] for one in planned)
    told = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
    line(f"{study.name}: {len(study.stage)} stages, {len(planned)} runs: {told}")
    places = {str(one.done.path) for one in planned}
    for stage in study.stage:
        branches = "; ".join(f"{key} in {_value(to)}" for key, to in stage.get("for", {}).items())
        line(f"{stage['id']}: {stage['verb']}{', for ' + branches if branches else ''}")
        own = [one for one in planned if one.unit.stage == stage["id"]]
        line("\n".join(f"  {text}" for text in _runs(own, places)))


def _told(one: Planned) -> dict[str, Any]:
    place = None if str(one.done.path).startswith("@") else one.done.path
    return {"run": one.unit.title, "status": one.done.status, "path": place,
            "reads": list(one.reads), "cost": one.cost}  # fmt: skip


def _runs(planned: Sequence[Planned], places: Collection[str]) -> Iterator[str]:
    """Yield a line for each run of a stage; those that say the same in one.

    A model that lies in one of ``places`` is an earlier run's, and named among what is read.
    """
    alike: dict[str, list[str]] = {}
    for one in planned:
        model = one.unit.settings.get("model")
        named = f"; model {model}" if model and str(model) not in places else ""
        reads = f"; reads {_value(one.reads)}" if one.reads else ""
        text = f"{STATES[one.done.status]}{reads}{named}{_cost(one)}"
        alike.setdefault(text, []).append(", ".join(one.unit.branch))
    for text, branches in list(alike.items())[:MANY]:
        named = _value([f"[{branch}]" for branch in branches if branch])
        yield f"{named} {text}" if named else text
    if len(alike) > MANY:
        yield f"... and {len(alike) - MANY} more; --json has all"


def _cost(one: Planned) -> str:
    """Say what a run would cost, or why that is not known."""
    if one.done.status == "reused":
        return f"; in {one.done.path}"
    told = "; ".join(f"{_words(key)} {_value(value)}" for key, value in _set(one.cost).items())
    if told:
        return f"\n    {told}"
    return "; cost known once that is there" if one.reads else ""


def _set(settings: Any) -> Any:
    """Leave out what is null or empty, in tables within tables too."""
    if isinstance(settings, Mapping):
        return {key: _set(value) for key, value in settings.items() if value not in (None, {}, [])}
    return [_set(value) for value in settings] if isinstance(settings, list) else settings


def _words(key: str) -> str:
    return key.replace("_", " ")


def _value(value: Any) -> str:
    """Write a value of a plan in words: lists cut short, tables as ``key value``."""
    if isinstance(value, Mapping):
        return _value([f"{key} {_value(item)}" for key, item in value.items()])
    if isinstance(value, list | tuple):
        more = [f"and {len(value) - MANY} more"] if len(value) > MANY else []
        return ", ".join([*map(_value, value[:MANY]), *more])
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(plain(value))
