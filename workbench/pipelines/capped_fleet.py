"""A capping run's models and units of work, and what one unit does.

A unit is some prompts of one model: their replies under every cap, and the passes that read them;
or the readouts' prompts in one model. The reference comes first, since the others are read on its
replies too; a process that finds these missing makes them itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench import api
from workbench.activations import Activations, open_activations
from workbench.activations.together import open_together
from workbench.config import refuse_twice
from workbench.directions import Directions, open_directions
from workbench.effects.engagement import GENERATED
from workbench.errors import ConfigError, MismatchError
from workbench.library import open_prompts
from workbench.models.sources import find_source
from workbench.pipelines import capped_passes as passes
from workbench.pipelines.capped_passes import Cap, Lines
from workbench.prompts import PromptSet
from workbench.readouts.ask import make_readout
from workbench.results import organism_of
from workbench.runs import Units
from workbench.sweeps import Design
from workbench.sweeps.controls import Controls
from workbench.types import (
    ActivationsLike,
    CandidatesRead,
    GenerateRead,
    Rendered,
    Request,
    Subject,
)

if TYPE_CHECKING:
    from workbench.pipelines.capping import CappingConfig

VERSION = 1
"""Of what a unit holds."""
REPLIES, READOUTS = "replies", "readouts"


@dataclass(frozen=True)
class Parts:
    """What is opened before any model."""

    axis: Directions
    calibration: ActivationsLike
    match: Activations | None
    default: Directions | None
    prompts: PromptSet
    monitor: int

    @classmethod
    def of(cls, config: CappingConfig) -> Parts:
        """Open the files, and refuse those that do not belong together.

        Raises:
            ConfigError: several directions, a block that is not there, a control that is no cap.
            MismatchError: an axis, a default or a calibration of another model.
        """
        axis = open_directions(config.axis)
        if len(axis) != 1:
            raise ConfigError(
                f"axis = {config.axis!r} holds {len(axis)} directions; a cap is along one: save "
                "directions[name] and give that file"
            )
        monitor = axis.model.n_layers // 2 if config.monitor is None else config.monitor
        calibration = open_together(config.calibration)
        match = None if config.match is None else open_activations(config.match)
        stores = [calibration] if match is None else [calibration, match]
        for store in stores:
            axis.model.refuse_other(store.model, axis.label)
        there = set(axis.layers).intersection(*(store.layers for store in stores))
        missing = [one for one in config.layers if one not in there]
        missing += [monitor] if monitor not in axis.layers else []
        if missing or len(set(config.layers)) < len(config.layers):
            raise ConfigError(
                f"layers = {config.layers}, monitor = {monitor}: each block once, among those of "
                f"the axis ({', '.join(map(str, axis.layers))}) and of the stores "
                f"({'; '.join(', '.join(map(str, store.layers)) for store in stores)})"
            )
        for store in stores:
            axis.select(config.layers).refuse_other(store)
        known = Controls.of(config.controls)
        if known.sign or known.shuffled:
            raise ConfigError("controls of a capping are random:N, layers:N and noop")
        default = None if config.default is None else open_directions(config.default)
        if default is not None:
            axis.model.refuse_other(default.model, "the axis")
        return cls(axis, calibration, match, default, open_prompts(config.prompts), monitor)


@dataclass(frozen=True)
class Piece:
    """One unit of work."""

    member: int
    """0 is the reference."""
    kind: str
    first: int = 0
    """Of the prompts, where it is about replies."""
    stop: int = 0


def pieces_of(config: CappingConfig, parts: Parts) -> list[Piece]:
    """Cut the work, a function of the settings alone; the reference's replies come first."""
    n, members = len(parts.prompts), range(len(config.members))
    found = [
        Piece(member, REPLIES, first, min(first + config.unit, n))
        for member in members
        for first in range(0, n, config.unit)
    ]
    return found + ([Piece(member, READOUTS) for member in members] if config.readouts else [])


def digest_of(config: CappingConfig, parts: Parts) -> str:
    """Return a hash of all that decides what the units are, files aside, which the run hashes."""
    told = [VERSION, config.model_dump(mode="json"), parts.prompts.ids]
    return sha256(json.dumps(told).encode()).hexdigest()


def caps_of(config: CappingConfig, parts: Parts, subject: Subject) -> Iterator[Cap]:
    """Yield no cap, then the axis's, then the controls, exactly as a sweep lays them out."""
    design = Design(
        doses=[config.dose],
        edit="cap",
        layers=config.layers,
        unit="percentile",
        controls=config.controls,
        calibration=parts.calibration,
        match=parts.match,
        seed=config.seed,
    )
    (window,) = design.windows(subject, parts.axis)
    for cell in window.cells:
        yield Cap(cell.control, cell.dose, cell.arm if cell.dose else ())


@dataclass
class Fleet:
    """The models, of which one is loaded at a time, and the caps that all get."""

    config: CappingConfig
    parts: Parts
    pieces: list[Piece]
    units: Units
    caps: list[Cap] = field(default_factory=list)
    _loaded: tuple[int, Subject] | None = None

    def __post_init__(self) -> None:
        refuse_other_bases(self.config)

    def do(self, number: int) -> Mapping[str, Any]:
        """Do one unit, keep it, and return it."""
        piece = self.pieces[number]
        written = self._written_by_reference(piece)
        subject = self.subject(piece.member)
        if piece.kind == READOUTS:
            tree = self._read_readouts(subject)
        else:
            tree = self._read_replies(subject, piece, written)
        organism, seed = organism_of(subject.ref.adapter)
        seeded = organism is not None and seed is not None
        tree["member"] = [subject.ref.key, organism if seeded else subject.ref.key, seed]
        self.units.keep(number, tree)
        return tree

    def subject(self, number: int) -> Subject:
        """Load one member, unless it is the one that is loaded."""
        if self._loaded is None or self._loaded[0] != number:
            self._loaded = None  # two are never held at once
            options = self.config.options()
            if number:
                options |= {"adapter": None, "revision": None}
            subject = api.load_for_readouts(self.config.members[number], **options)
            self.parts.axis.model.refuse_other(subject.stamp, "the axis")
            if not self.caps:
                self.caps = list(caps_of(self.config, self.parts, subject))
            self._loaded = number, subject
        return self._loaded[1]

    def _written_by_reference(self, piece: Piece) -> list[str]:
        """Return the reference's uncapped replies to a unit's prompts."""
        if piece.kind == READOUTS or not piece.member:
            return []
        number = self.pieces.index(Piece(0, REPLIES, piece.first, piece.stop))
        there = self.units.path(number).exists()
        tree = self.units.load(number) if there else self.do(number)
        found: list[str] = tree["texts"][0]
        return found

    def _read_replies(self, subject: Subject, piece: Piece, written: list[str]) -> dict[str, Any]:
        """Write replies under every cap, count what the caps would move, and read the states."""
        config, monitor = self.config, self.parts.monitor
        prompts = self.parts.prompts.take(range(piece.first, piece.stop))
        read = GenerateRead(1, config.max_new_tokens, config.temperature, config.seed)
        rendered = [subject.renderer.render(item, render="chat") for item in prompts.items]
        requests = [
            Request(item, "reply", one.ids, (read,), one.spans)
            for item, one in zip(prompts.ids, rendered, strict=True)
        ]
        texts = passes.write_replies(subject, requests, self.caps, config.budget)

        def behind(replies: list[str]) -> list[Rendered]:
            pairs = zip(requests, replies, strict=True)
            return [passes.answered(subject, request, text) for request, text in pairs]

        own = behind(texts[0])
        states = [passes.mean_states(subject, own, monitor)]
        for replies in texts[1:]:
            same = replies == texts[0]
            states.append(
                states[0] if same else passes.mean_states(subject, behind(replies), monitor)
            )
        tree = {
            "texts": texts,
            "states": states,
            "total": passes.totals(own),
            "beyond": passes.beyond_unhooked(subject, own, Lines.of(self.caps[1:])),
            "hooked": passes.beyond_hooked(subject, own, self.caps[1]),
        }
        if written:
            tree["reference"] = passes.mean_states(subject, behind(written), monitor)
        return tree

    def _read_readouts(self, subject: Subject) -> dict[str, Any]:
        """Count what the caps would move on the readouts' own prompts."""
        lines, found = Lines.of(self.caps[1:]), {}
        for readout in map(make_readout, self.config.readouts):
            requests = readout.requests(subject)
            most = min(len(requests), self.config.readout_prompts)
            chosen = np.unique(np.linspace(0, len(requests) - 1, most).astype(int))
            rows = [asked(subject, requests[place]) for place in chosen]
            found[readout.name] = {
                "total": passes.totals(rows),
                "beyond": passes.beyond_unhooked(subject, rows, lines),
            }
        return {"readouts": found}


def asked(subject: Subject, request: Request) -> Rendered:
    """Return a readout's prompt, and a text behind it that is scored as its one candidate."""
    row = passes.answered(subject, request)
    reads = [read for read in request.reads if isinstance(read, CandidatesRead)]
    if len(reads) != 1 or len(reads[0].candidates) != 1:
        return row
    tokens = reads[0].candidates[0]
    n = len(row.ids)
    return Rendered((*row.ids, *tokens), {**row.spans, GENERATED: ((n, n + len(tokens)),)})


def refuse_other_bases(config: CappingConfig) -> None:
    """Refuse organisms that were not trained from the reference's weights.

    Raises:
        MismatchError: an adapter of another base.
        ConfigError: a model that stands twice.
    """
    reference = find_source(config.model, adapter=config.adapter, revision=config.revision)
    own = reference.base
    sources = {name: find_source(name) for name in config.organisms}
    members = [reference, *sources.values()]
    refuse_twice([one.adapter_path or one.base_path for one in members], "model and organisms")
    for name, source in sources.items():
        if source.adapter is not None and source.base != own:
            raise MismatchError(
                f"organism {name!r} was trained from {source.base!r}, but the reference is "
                f"{own!r}; give organisms of this model, or theirs as the reference"
            )
