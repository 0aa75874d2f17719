"""What lies below a runs root, by what a page can draw from it, and what is missing."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from workbench.errors import ConfigError
from workbench.runs import list_runs
from workbench.types import Run

ACTS = "acts"
EVIDENCE = "evidence.parquet"
RESULTS = "results.parquet"
DIRECTIONS = "directions.safetensors"
PROBED, TOLD = "probe.parquet", "probe.json"
AXIS, COORDINATES, COSINES = "axis.safetensors", "coordinates.parquet", "cosines.parquet"
ENGAGEMENT, DISPLACEMENT, BEHAVIOR = (
    "engagement.parquet", "displacement.parquet", "behaviour.parquet",
)  # fmt: skip
EMOTIONS, SIMILARITY, PROFILES = (
    "emotions.safetensors", "similarity.parquet", "profiles.parquet",
)  # fmt: skip
MARGIN = "margin.parquet"
DEMO = "workbench run studies/demo.toml"
PERSONAS = "workbench run studies/axis_smollm2.toml"
EMOTION_STUDY = "workbench run studies/emotion_smollm2.toml"
TRUST_STUDY = "workbench run studies/trust_smollm2.toml"
DOCS = Path(__file__).resolve().parents[1] / "docs"
"""Where the pages of the docs lie beside a checkout; a wheel has none."""


class Need(NamedTuple):
    """What a page draws from, and how it is made."""

    what: str
    commands: tuple[str, ...]
    """Either will do."""
    takes: str
    docs: str
    """A page below ``DOCS``."""


MINUTES = "about {} minutes on two idle cores, downloads aside"
FIVE, TEN, FIFTEEN = (MINUTES.format(n) for n in (5, 10, 15))
NEEDS = {
    "map": Need(
        "activations of a prompt set", (DEMO, "workbench cache MODEL PROMPTS"), FIVE, "methods.md"
    ),
    "truth": Need(
        "evidence of a fitted direction", (DEMO, "workbench fit ACTS"), FIVE, "methods.md"
    ),
    "claims": Need("projections of the worlds' claims", (DEMO,), FIVE, "methods.md"),
    "dose": Need(
        "a dose sweep with random-direction controls",
        (DEMO, "workbench sweep SWEEP.toml"),
        FIVE,
        "steering.md",
    ),
    "probe": Need(
        "a checkpoint beside its base and known organisms",
        ("workbench probe MODEL --directions {directions} --readout claims --known {root}",),
        "seconds to minutes, by the size of the model",
        "steering.md",
    ),
    "personas": Need("roles and the Assistant Axis", (PERSONAS,), TEN, "personas.md"),
    "emotions": Need(
        "emotion vectors, and organisms along them", (EMOTION_STUDY,), FIFTEEN, "emotions.md"
    ),
    "trust": Need("margins of trusting replies by dose and facet", (TRUST_STUDY,), TEN, "trust.md"),
}
"""What a page needs."""
PARTS = {
    "cosines": Need(
        "the cosines of an organism's direction with every role and trait",
        (PERSONAS, "workbench cosines"),
        TEN,
        "personas.md",
    ),
    "capping": Need(
        "how often the cap acts in each organism, how far each lies from the reference, and what "
        "its readouts become",
        (PERSONAS, "workbench capping FILE.toml"),
        TEN,
        "capping.md",
    ),
    "profiles": Need(
        "where organisms lie along each emotion",
        (EMOTION_STUDY, "workbench profiles"),
        FIFTEEN,
        "emotions.md",
    ),
}
"""What a card needs beyond its page."""


@dataclass(frozen=True)
class Entry:
    """One run folder and what can be said about it without opening its data."""

    path: Path
    name: str
    """Folder relative to the root."""
    run: Run
    problem: str | None = None
    """Why the run cannot be shown, if so."""

    @property
    def running(self) -> bool:
        """Whether a process is writing the run right now."""
        return self.run.status == "running"

    @property
    def broken(self) -> bool:
        """Whether somebody has to do something about it."""
        return self.problem is not None and not self.running

    @property
    def label(self) -> str:
        """What a selector shows: where the run lies and which models it used."""
        models = ", ".join(self.run.models) or str(self.run.config.get("model") or "")
        return f"{self.name} · {models}" if models else self.name

    def file(self, name: str) -> Path | None:
        """Return the path of one of the run's files, None where it is absent."""
        path = self.path / name
        return path if path.exists() else None


@dataclass(frozen=True)
class Catalogue:
    """Every run below a root, newest last, as it stood when it was read."""

    root: Path
    entries: tuple[Entry, ...]

    def usable(self, kind: str) -> list[Entry]:
        """Return the runs that a page can draw, newest first.

        Args:
            kind: a key of ``NEEDS``, ``capping``, ``cosines`` or ``profiles``.
        """
        return [entry for entry in reversed(self.entries) if _serves(entry, kind)]

    def entry(self, key: str) -> Entry | None:
        """Return the run with this id."""
        return next((entry for entry in self.entries if entry.run.id == key), None)

    def claim_groups(self) -> dict[str, list[Entry]]:
        """Return the runs that read claims by the fit whose directions they used, newest first.

        Each model is measured in a run of its own; those that share one frozen direction belong
        together. A run without such a fit is a group of its own, under its own id.
        """
        fits = {entry.run.id for entry in self.entries if entry.run.verb == "fit"}
        groups: dict[str, list[Entry]] = {}
        for entry in self.usable("claims"):
            used = [str(i.get("run")) for i in entry.run.inputs if i.get("run") in fits]
            groups.setdefault(used[0] if used else entry.run.id, []).append(entry)
        return groups

    def counts(self) -> str:
        """Say how many runs there are, how many are under way, and how many are to mend."""
        running = sum(entry.running for entry in self.entries)
        broken = sum(entry.broken for entry in self.entries)
        parts = [f"{len(self.entries)} run{'' if len(self.entries) == 1 else 's'}"]
        parts += [f"{running} under way"] if running else []
        parts += [f"{broken} to mend"] if broken else []
        return ", ".join(parts)

    def missing(self) -> list[tuple[str, str, str]]:
        """Return (kind, what is missing, the command that makes it) for every page."""
        return [
            (kind, need.what, self.command(kind))
            for kind, need in NEEDS.items()
            if not self.usable(kind)
        ]

    def command(self, kind: str) -> str:
        """Return the command that makes a kind of run below this root, and another that does."""
        root = shlex.quote(str(self.root))
        fits = [entry.file(DIRECTIONS) for entry in self.usable("truth")]
        found = next((shlex.quote(str(path)) for path in fits if path), "FILE")
        told = [
            f"{command.format(root=root, directions=found)} --runs {root}"
            for command in (NEEDS | PARTS)[kind].commands
        ]
        return "\n# or: ".join(told)


def read_catalogue(root: Path) -> Catalogue:
    """Look for runs below ``root``; broken ones are listed with their problem, never dropped.

    Raises:
        ConfigError: ``root`` is a file.
    """
    if root.exists() and not root.is_dir():
        raise ConfigError(f"{root} is a file; give the folder that holds the runs")
    found = list_runs(root).items() if root.is_dir() else ()
    return Catalogue(root, tuple(_entry(root, path, run) for path, run in found))


def _entry(root: Path, path: Path, run: Run) -> Entry:
    name = str(path.relative_to(root)) if path != root else path.name
    return Entry(path, name, run, _problem(path, run))


def _problem(path: Path, run: Run) -> str | None:
    if run.status == "unreadable":
        return str(run.config.get("error", "its run.json cannot be read"))
    if run.status == "running":
        return "being written now"
    if run.status != "done":
        return f"status is {run.status}: run its command again"
    absent = [name for name in run.outputs if not (path / name).exists()]
    if absent:
        return f"output {absent[0]} is gone: run its command again"
    return None


def _serves(entry: Entry, kind: str) -> bool:
    if entry.problem:
        return False
    if kind == "map":
        return entry.file(ACTS) is not None
    if kind == "truth":
        return entry.file(EVIDENCE) is not None and entry.run.verb != "apply"
    if kind == "personas":
        return all(entry.file(name) is not None for name in (AXIS, COORDINATES))
    if kind == "capping":
        return entry.run.verb == "capping" and entry.file(ENGAGEMENT) is not None
    if kind == "cosines":
        return entry.run.verb == "cosines" and entry.file(COSINES) is not None
    if kind == "emotions":
        return all(entry.file(name) is not None for name in (EMOTIONS, SIMILARITY))
    if kind == "profiles":
        return entry.run.verb == "profiles" and entry.file(PROFILES) is not None
    if kind == "trust":
        return entry.run.verb == "trust" and entry.file(MARGIN) is not None
    if kind == "probe":
        return entry.run.verb == "probe" and entry.file(PROBED) is not None
    if entry.file(RESULTS) is None:
        return False
    return entry.run.verb == "sweep" if kind == "dose" else _reads_claims(entry)


def _reads_claims(entry: Entry) -> bool:
    """Say whether a run read the worlds' claims: an apply run, or a measure run asked for them."""
    if entry.run.verb == "apply":
        return True
    readouts = _listed(entry.run.config.get("readouts", ()))
    names = {r.get("name") if isinstance(r, dict) else r for r in readouts}
    return entry.run.verb == "measure" and bool(names & {"claims", "projection"})


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
