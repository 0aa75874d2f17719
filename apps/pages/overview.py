"""Overview: which runs there are, what each page has to show, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import panel as pn
from workbench_apps import cards, doses, emotions, looks, personas, probed, shell, trusts
from workbench_apps.catalogue import Catalogue, read_catalogue
from workbench_apps.emotion_state import EmotionState
from workbench_apps.page_states import DoseState, MapState, ProbeState, TruthState
from workbench_apps.persona_state import PersonaState
from workbench_apps.state import EVERY, PageState
from workbench_apps.trust_state import TrustState

from workbench.figures.truth import reading_verdict, sides_at


class OverviewState(PageState):
    """Nothing but the theme."""


def _map_fact(catalogue: Catalogue) -> str:
    state = MapState(catalogue)
    planes = state.planes()
    if planes is None:
        return ""
    count = len(next(iter(planes.acts.columns.values())))
    return f"{count:,} items at {len(planes.acts.layers)} layers"


def _truth_fact(catalogue: Catalogue) -> str:
    state = TruthState(catalogue)
    if not state.fit:
        return "claims alone: no fitted direction yet" if state.claims else ""
    rows = state.evidence()
    verdict = reading_verdict(rows, float(rows["gate"].iloc[0]))
    if verdict.layer is None:
        return "no layer was chosen"
    parts = [
        f"{r['auc']:.2f} [{r['low']:.2f}, {r['high']:.2f}] {r['side']}, n = {r['n_facts']:,} facts"
        for r in sides_at(rows, verdict.layer)
    ]
    judged = "" if verdict.usable else " · not usable (below the gate)"
    return f"AUC at layer {verdict.layer}: {'; '.join(parts)}{judged}"


def _dose_fact(catalogue: Catalogue) -> str:
    state = DoseState(catalogue)
    if not state.run:
        return ""
    names = ("readout", "measure", "model", "direction", "layers")
    found = state.chosen(state.sweep().slopes, names)
    row = found[found["condition"] == state.conditions()[0]].iloc[0].to_dict()
    named = [name for name in state.options("condition") if name != EVERY]
    place = f" · {row['condition']}: 1 of {len(named)} conditions" if len(named) > 1 else ""
    if pd.isna(row["slope"]):
        return f"{doses.measured(row)}: {doses.judged(row)}{place}"
    span = "" if pd.isna(row["low"]) else f" [{row['low']:+.3g}, {row['high']:+.3g}]"
    null = f"up to {row['band']:.3g}" if pd.notna(row["band"]) else "none in this run"
    return (
        f"{doses.measured(row)} by {row['slope']:+.3g}{span} {doses.per_dose(row)} along "
        f"{state.direction}; random directions: {null}; n = "
        f"{cards.counted(row['n'], row['unit'])}: {doses.judged(row)}{place}"
    )


def _probe_fact(catalogue: Catalogue) -> str:
    state = ProbeState(catalogue)
    entry = state.entry()
    if entry is None:
        return ""
    model = ", ".join(entry.run.models) or entry.name
    return f"{model}: {probed.headline(state.table())}"


def _persona_fact(catalogue: Catalogue) -> str:
    state = PersonaState(catalogue)
    entry = state.entry()
    if entry is None:
        return ""
    table = personas.pc1_of(entry)
    row = table[table["layer"] == int(state.layer)].iloc[0]
    return (
        f"cosine of axis and first component {row['cosine']:.2f} [{row['low']:.2f}, "
        f"{row['high']:.2f}] at layer {state.layer}, a role's own up to {row['control_high']:.2f}, "
        f"n = {row['n']} {row['unit']}s; {personas.judged(entry).partition(';')[0].lower()}"
    )


def _emotion_fact(catalogue: Catalogue) -> str:
    state = EmotionState(catalogue)
    entry = state.entry()
    if entry is None:
        return ""
    told = f"{len(state.options('emotion'))} emotions, chosen at layer {state.layer}"
    curves = emotions.curves_of(entry)
    rows = curves[(curves["emotion"] == emotions.ALL) & (curves["layer"] == int(state.layer))]
    if rows.empty:
        return told
    row = rows.iloc[0]
    return (
        f"{told}: mean AUC {row['auc']:.2f} [{row['low']:.2f}, {row['high']:.2f}], "
        f"n = {cards.counted(row['n'], row['unit'])}"
    )


def _trust_fact(catalogue: Catalogue) -> str:
    state = TrustState(catalogue)
    if state.entry() is None:
        return ""
    table = state.margins()
    own = table[table["control"] == trusts.OWN]
    rows = own[own["facet"] == trusts.facets_of(own)[0]].sort_values("dose")
    first, last = rows.iloc[0], rows.iloc[-1]
    return (
        f"{state.method.replace('_', ' ')}: margin {first['mean']:+.3f} at dose {first['dose']:g}, "
        f"{last['mean']:+.3f} at {last['dose']:g}, n = {cards.counted(last['n'], last['unit'])}"
    )


CARDS = (
    ("/map", "Activations map", "map", _map_fact),
    ("/truth", "Truth", "truth", _truth_fact),
    ("/dose", "Dose-response", "dose", _dose_fact),
    ("/probe", "Probe", "probe", _probe_fact),
    ("/persona", "Personas", "personas", _persona_fact),
    ("/emotions", "Emotions", "emotions", _emotion_fact),
    ("/trust", "Trust", "trust", _trust_fact),
)


def _teaser(state: PageState, path: str, heading: str, kind: str, fact: Any) -> cards.Section:
    def draw() -> Sequence[Any]:
        found = fact(state.catalogue)
        link = f"{path}?theme={state.theme}" if state.theme else path
        body = f"<p class='big'>{cards.escape(found)}</p>" if found else cards.making(state, kind)
        text = f"<h2><a href='{link}'>{heading}</a></h2>{body}"
        return [cards.note(text, dark=state.theme == "dark")]

    return cards.Section(f"{path} teaser", draw, ("theme",))


def _runs(state: PageState) -> Sequence[Any]:
    entries = state.catalogue.entries
    if not entries:
        where = cards.escape(state.catalogue.root)
        return [cards.note(f"<h2>Runs</h2><p>No run below <code>{where}</code> yet.</p>")]
    table = pd.DataFrame(
        {
            "run": [entry.name for entry in entries],
            "verb": [entry.run.verb for entry in entries],
            "models": [", ".join(entry.run.models) for entry in entries],
            "status": [entry.run.status for entry in entries],
            "finished": [(entry.run.finished or "")[:16].replace("T", " ") for entry in entries],
            "id": [entry.run.id for entry in entries],
            "note": [entry.problem or "" for entry in entries],
        }
    )
    listing = pn.widgets.Tabulator(
        table.iloc[::-1],
        pagination="remote",
        page_size=12,
        show_index=False,
        disabled=True,
        layout="fit_data_stretch",
        sizing_mode="stretch_width",
        theme="simple",
        stylesheets=[looks.TABLE_STYLES],
        margin=0,
    )
    return [cards.note(f"<h2>{state.catalogue.counts()}</h2>"), listing]


def _gaps(state: PageState) -> Sequence[Any]:
    """List what is missing and has no card of its own that says so."""
    told = {kind for _, _, kind, _ in CARDS}
    gaps = state.catalogue.missing()
    body = [(what, command) for kind, what, command in gaps if kind not in told]
    if not body:
        return []
    return [cards.note("<h2>Not here yet</h2>" + cards.html_table(body, ("part", "command")))]


def build(root: Path) -> Any:
    """Return the page for one browser session."""
    with cards.Guard("/") as guard:
        return _build(root)
    return shell.broken_page("/", "Overview", guard)


def _build(root: Path) -> Any:
    state = OverviewState(read_catalogue(root))
    refused = shell.take_address(state)
    teasers = [_teaser(state, *parts) for parts in CARDS]
    runs = cards.Section("/ runs", lambda: _runs(state), ())
    gaps = cards.Section("/ missing", lambda: _gaps(state), ())
    shell.bind(state, teasers)
    for section in teasers:
        section.box.styles = {"flex": "1 1 240px", "min-width": "0", "align-self": "stretch"}
        section.box.margin = 0
    row = pn.FlexBox(
        *(section.box for section in teasers),
        gap="16px",
        align_items="stretch",
        margin=(0, 0, 16, 0),
    )
    row.sizing_mode = "stretch_width"
    boxes = [row, gaps.box, runs.box]
    lead = f"What a model represents, and whether that drives what it does: {root}"
    page = shell.frame(state, "/", "Overview", lead, [], boxes)
    shell.report(state, refused)
    return page
