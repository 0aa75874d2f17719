"""The settings of each page: what they may be, given the runs, and what they are by default."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import param
from workbench_apps import doses, polygon, probed, tables
from workbench_apps.catalogue import Entry
from workbench_apps.plane import Planes
from workbench_apps.state import EVERY, Options, PageState

from workbench.effects import GUARDS as LIMITS
from workbench.figures.scatter import is_categorical
from workbench.figures.truth import POLARITIES
from workbench.pipelines.report_words import blocks

ALL_CLAIMS = "all claims, by proposition"
MOST_VALUES = 12
"""Columns with more values than this offer no filter."""
MOST_PANELS = 8
"""Measures of a probe that are drawn beside each other without being asked for."""
GUARDS = frozenset(limit.readout for limit in LIMITS)
"""Readouts that say whether a model still works at a dose."""


class MapState(PageState):
    """The activations map."""

    run = param.String("")
    layer = param.String("")
    color = param.String("")
    only = param.String("")
    sel = param.String("")
    kind = "map"
    fields = ("run", "layer", "color", "only", "sel")

    def entry(self) -> Entry | None:
        """Return the run on show."""
        return self.catalogue.entry(self.run)

    def planes(self) -> Planes | None:
        """Return the run's planes; None where there is no run."""
        entry = self.entry()
        return tables.planes_of(entry) if entry else None

    def items(self) -> pd.DataFrame:
        """Return the items of the run on show."""
        planes = self.planes()
        return tables.items_of(planes.acts.columns) if planes else pd.DataFrame()

    def known(self, name: str) -> Options:
        if name == "run":
            return self.entries("map")
        planes = self.planes()
        if planes is None:
            return {}
        if name == "layer":
            return {str(layer): str(layer) for layer in planes.acts.layers}
        if name == "color":
            return _colors(self.items())
        return {"": "all items", **_filters(self.items())} if name == "only" else {"": ""}

    def default(self, name: str) -> str:
        known = self.options(name)
        if name == "layer" and known:
            return list(known)[len(known) // 2]
        if name == "color":
            return next(
                (c for c in ("topic", "label", "world") if c in known), super().default(name)
            )
        return super().default(name)

    def check(self, name: str, value: str) -> str | None:
        if name != "sel" or not value:
            return super().check(name, value)
        try:
            found = polygon.decode(value)
        except ValueError as error:
            return f"sel={value[:24]} is no selection: {error}"
        if found.projection != "pca" or str(found.layer) not in self.options("layer"):
            return f"sel={value[:24]} was drawn in {found.projection} at layer {found.layer}"
        return None

    def selection(self) -> polygon.Selection | None:
        """Return the polygon in the address."""
        return polygon.decode(self.sel) if self.sel else None

    def step(self, by: int) -> None:
        """Move ``by`` layers and stop at the ends."""
        layers = list(self.options("layer"))
        if layers:
            place = layers.index(self.layer) + by
            self.choose(layer=layers[min(max(place, 0), len(layers) - 1)])


def _colors(items: pd.DataFrame) -> Options:
    """Offer the columns that say something: numbers, and words that repeat."""
    useful = [
        name
        for name in items.columns
        if name not in ("id", "text", "source")
        and items[name].nunique() > 1
        and (not is_categorical(items[name]) or items[name].nunique() <= len(items) / 4)
    ]
    return {name: name.replace("_", " ") for name in useful or ["id"]}


def _filters(items: pd.DataFrame) -> Options:
    return {
        f"{name}:{value}": f"{name.replace('_', ' ')} = {value}"
        for name in _colors(items)
        if 1 < items[name].nunique() <= MOST_VALUES
        for value in sorted(items[name].dropna().unique(), key=str)
    }


class TruthState(PageState):
    """How truth is read, and where the worlds' claims lie."""

    fit = param.String("")
    method = param.String("")
    split = param.String("")
    topic = param.String("")
    rendering = param.String("")
    claims = param.String("")
    direction = param.String("")
    set = param.String("")
    layer = param.String("")
    turn = param.String("")
    quantity = param.String("")
    side = param.String("")
    kind = "truth"
    fields = (
        "fit", "method", "split", "topic", "rendering", "side",
        "claims", "direction", "set", "layer", "turn", "quantity",
    )  # fmt: skip
    evidence_fields = ("method", "split", "topic", "rendering")
    claim_fields = ("direction", "set", "layer", "turn")

    def evidence(self, upto: str | None = None) -> pd.DataFrame:
        """Return the evidence rows that the fields (before ``upto``) leave."""
        entry = self.catalogue.entry(self.fit)
        if entry is None:
            return pd.DataFrame()
        return self._narrow(tables.evidence_of(entry), self.evidence_fields, upto)

    def grid(self) -> pd.DataFrame:
        """Return the transfer rows of the fit, method and rendering on show."""
        entry = self.catalogue.entry(self.fit)
        if entry is None:
            return pd.DataFrame()
        table = tables.grid_of(entry)
        own = (table["method"] == self.method) & (table["rendering"] == self.rendering)
        found: pd.DataFrame = table.loc[own]
        return found

    def projections(self, upto: str | None = None) -> pd.DataFrame:
        """Return the projections that the fields (before ``upto``) leave."""
        entries = self.claim_runs()
        if not entries:
            return pd.DataFrame()
        table = self._narrow(tables.projections_of(entries), self.claim_fields, upto)
        return tables.by_proposition(table) if self.set == EVERY and not upto else table

    def claim_runs(self) -> list[Entry]:
        """Return the runs whose claims are on show, newest first."""
        return self.catalogue.claim_groups().get(self.claims, [])

    def _narrow(
        self, table: pd.DataFrame, fields: tuple[str, ...], upto: str | None
    ) -> pd.DataFrame:
        for name in fields[: fields.index(upto)] if upto else fields:
            if getattr(self, name) != EVERY:
                table = table[table[name].astype(str) == getattr(self, name)]
        return table

    def known(self, name: str) -> Options:
        if name == "fit":
            return self.entries("truth")
        if name == "claims":
            return self._groups()
        if name == "quantity":
            return {"claim": "claim as stated", "contrast": "claim minus its negation"}
        if name == "side":
            sides = {"0": "mean of both", "1": POLARITIES[1], "-1": POLARITIES[-1]}
            return sides if len(self.grid()) else {}
        rows = self.evidence(name) if name in self.evidence_fields else self.projections(name)
        if name == "set" and tables.poolable(rows):
            return {EVERY: ALL_CLAIMS, **{str(v): str(v) for v in rows["set"].unique()}}
        return {str(v): str(v) for v in rows[name].unique()} if name in rows.columns else {}

    def default(self, name: str) -> str:
        known = self.options(name)
        preferred = {
            "method": ("ttpd",),
            "split": ("unseen topic",),
            "topic": ("all",),
            "rendering": ("bare",),
            "turn": ("bare",),
            "set": (EVERY, "propositions"),
            "claims": (self.fit,),
            "direction": tuple(v for v in known if v != tables.LIKELIHOOD),
        }
        if name == "layer":
            return self._chosen_layer(known)
        return next((v for v in preferred.get(name, ()) if v in known), super().default(name))

    def _groups(self) -> Options:
        groups = self.catalogue.claim_groups()
        fits = {key: self.catalogue.entry(key) for key in groups}
        return {
            key: f"{len(runs)} runs on {fit.label if (fit := fits[key]) else runs[0].label}"
            for key, runs in groups.items()
        }

    def _chosen_layer(self, known: Options) -> str:
        """Prefer the layer that the fit chose."""
        rows = self.evidence() if self.options("method") else pd.DataFrame()
        chosen = rows.loc[rows["chosen"].astype(bool), "layer"] if len(rows) else rows
        first = str(chosen.iloc[0]) if len(chosen) else ""
        return first if first in known else next(iter(known), "")


class DoseState(PageState):
    """Behavior against the strength of an edit."""

    run = param.String("")
    readout = param.String("")
    measure = param.String("")
    model = param.String("")
    direction = param.String("")
    layers = param.String("")
    condition = param.String("")
    kind = "dose"
    fields = ("run", "readout", "measure", "model", "direction", "layers", "condition")

    def sweep(self) -> doses.Sweep:
        """Return the sweep on show, judged."""
        entry = self.catalogue.entry(self.run)
        assert entry is not None, "a sweep is asked for where a run was chosen"
        return doses.sweep_of(entry)

    def rows(self, upto: str | None = None) -> pd.DataFrame:
        """Return the sweep's rows that the fields (before ``upto``) leave."""
        if not self.run:
            return pd.DataFrame()
        names = self.fields[1 : self.fields.index(upto)] if upto else self.fields[1:]
        return self.chosen(self.sweep().rows, names)

    def chosen(self, table: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
        """Return the rows of a table that agree with these fields."""
        for name in names:
            if getattr(self, name) != EVERY:
                table = table[table[name].astype(str) == getattr(self, name)]
        return table

    def known(self, name: str) -> Options:
        if name == "run":
            return self.entries("dose")
        rows = self.rows(name)
        found = [str(value) for value in rows[name].dropna().unique()] if len(rows) else []
        if name == "model":
            return {v: _seeded(v, rows[rows["model"] == v]["subject"].nunique()) for v in found}
        if name == "layers":
            return {v: blocks(v) for v in found}
        if name in ("measure", "condition") and (entry := self.catalogue.entry(self.run)):
            found = doses.planned(entry, self.readout, found)
        many = name == "condition" and len(found) > 1
        return {v: v for v in found} | ({EVERY: "side by side"} if many else {})

    def default(self, name: str) -> str:
        """Prefer what the sweep was made for to its guards."""
        known = self.options(name)
        if name == "readout":
            return next((one for one in known if one not in GUARDS), super().default(name))
        return super().default(name)

    def conditions(self) -> list[str]:
        """Return the conditions on show."""
        known = [name for name in self.options("condition") if name != EVERY]
        return known if self.condition == EVERY else [self.condition]


def _seeded(model: str, seeds: int) -> str:
    return model if seeds == 1 else f"{model} · {seeds} seeds"


class ProbeState(PageState):
    """One checkpoint, probed."""

    run = param.String("")
    direction = param.String("")
    readout = param.String("")
    kind = "probe"
    fields = ("run", "direction", "readout")

    def entry(self) -> Entry | None:
        """Return the run on show."""
        return self.catalogue.entry(self.run)

    def table(self) -> pd.DataFrame:
        """Return what the probe found; empty where there is no run."""
        entry = self.entry()
        return pd.DataFrame(columns=list(probed.COLUMNS)) if not entry else probed.probe_of(entry)

    def known(self, name: str) -> Options:
        if name == "run":
            return self.entries("probe")
        measures = probed.measures_of(self.table(), name)
        return {one: one for one in measures} | ({EVERY: "all"} if len(measures) > 1 else {})

    def default(self, name: str) -> str:
        """Show all measures while they are few."""
        known = self.options(name)
        few = EVERY in known and len(known) <= MOST_PANELS + 1
        return EVERY if few and name != "run" else super().default(name)

    def chosen(self, kind: str) -> list[str]:
        """Return the directions or readouts on show."""
        value = getattr(self, kind)
        return [one for one in self.options(kind) if one != EVERY and value in (one, EVERY)]
