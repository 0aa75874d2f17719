"""The cards of a page: notes, small tables, and sections that draw themselves again."""

from __future__ import annotations

import html
import logging
import uuid
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import panel as pn
import panel_material_ui as pmui
from workbench_apps.catalogue import DOCS, NEEDS, PARTS, Entry
from workbench_apps.looks import CARD_STYLES, NOTE_STYLES
from workbench_apps.state import PageState

from workbench.errors import WorkbenchError
from workbench.figures.theme import DARK, FONT, LIGHT

logger = logging.getLogger(__name__)


def note(text: str, *, dark: bool = False, **options: Any) -> pn.pane.HTML:
    """Return HTML in the page's typography; callers escape what comes from files."""
    link = DARK.palette[0] if dark else LIGHT.palette[0]
    options = {"sizing_mode": "stretch_width", "margin": 0} | options
    return pn.pane.HTML(text, stylesheets=[NOTE_STYLES % (FONT, link)], **options)


def escape(value: object) -> str:
    """Return text that is safe inside HTML."""
    return html.escape(str(value))


def counted(n: Any, unit: str) -> str:
    """Return a count with its unit in words, such as ``48 stories``; it is escaped."""
    number = int(n)
    ies = unit.endswith("y") and unit[-2:-1] not in "aeiou"
    several = f"{unit[:-1]}ies" if ies else f"{unit}s"
    return escape(f"{number:,} {unit if number == 1 else several}")


def layer_slider(state: PageState, *, on_release: bool = False) -> pmui.DiscreteSlider:
    """Return a slider that chooses the layer and follows it; hidden where there is only one.

    Args:
        state: the page's; its option ``layer`` lists the layers.
        on_release: choose when the thumb is let go, for pages that take a while to draw.
    """
    layers = [int(layer) for layer in state.options("layer")]
    slider = pmui.DiscreteSlider(
        label="Layer",
        options=layers,
        value=int(state.layer),
        sizing_mode="stretch_width",
        margin=(4, 16, 8, 16),
        visible=len(layers) > 1,
    )
    slider.param.watch(
        lambda event: state.choose(layer=str(event.new)),
        "value_throttled" if on_release else "value",
    )
    state.param.watch(
        lambda event: slider.param.update(value=int(event.new)) if event.new else None, "layer"
    )
    return slider


def html_table(
    rows: Sequence[Sequence[object]], heads: Sequence[str], *, texts: bool = False
) -> str:
    """Return a small table as HTML, every cell escaped; wide ones scroll inside themselves.

    Args:
        rows: cells by row.
        heads: names of the columns.
        texts: cells hold whole sentences, so that lines are wrapped.
    """
    top = "".join(f"<th scope='col'>{escape(head)}</th>" for head in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    inner = f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody>"
    kind = " class='texts'" if texts else ""
    return f"<div class='scroll'><table{kind}>{inner}</table></div>"


class Guard:
    """The one place where any error of a page becomes a card: a browser shows no traceback.

    The traceback goes to the log under the reference that the card shows.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self.card: pn.viewable.Viewable | None = None

    def __enter__(self) -> Guard:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        reference = uuid.uuid4().hex[:8]
        logger.error("%s failed (%s)", self.place, reference, exc_info=error)
        self.card = error_card(self.place, error, reference)
        return True


def error_card(place: str, error: Exception, reference: str) -> pn.viewable.Viewable:
    """Say what went wrong and offer the page with its default settings."""
    if isinstance(error, WorkbenchError):
        message = escape(error)
    else:
        message = f"An unexpected {type(error).__name__}: {escape(error)}"
    path = place.split(" ")[0]
    return note(
        f"<div role='alert' class='warn'><h2>This part could not be drawn</h2><p>{message}</p>"
        f"<p><a href='{path}'>Open with default settings</a></p>"
        f"<p class='quiet'>Reference {reference} in the terminal's log</p></div>"
    )


def empty_card(state: PageState, kind: str) -> pn.viewable.Viewable:
    """Say what would stand here and the command that makes it."""
    off = any(entry.problem for entry in state.catalogue.entries)
    counts = state.catalogue.counts()
    hint = f"<p>Here: {counts}; see the <a href='/'>overview</a>.</p>" if off else ""
    return note(
        f"<div class='empty'><h2>Nothing to show yet</h2>{making(state, kind)}"
        f"<p class='quiet'>Then reload this page.</p>{hint}</div>"
    )


def making(state: PageState, kind: str) -> str:
    """Say what would be here, the command that makes it, how long that takes, where to read on."""
    need = (NEEDS | PARTS)[kind]
    return (
        f"<p>Here would be {escape(need.what)}. Make it with:</p>"
        f"<pre><code>{escape(state.catalogue.command(kind))}</code></pre>"
        f"<p class='quiet'>It takes {escape(need.takes)}. More in {docs_link(need.docs)}.</p>"
    )


def docs_link(name: str) -> str:
    """Return a link to a page of the docs, or its name where they are not on this machine."""
    shown = f"docs/{name}"
    return f"<a href='/{shown}'>{shown}</a>" if (DOCS / name).exists() else shown


def card(*parts: Any) -> pn.Column:
    """Return a bordered box as wide as the page.

    A plain column: inside ``pmui.Paper`` a figure that replaces another is measured before it is
    laid out, which raises in the browser (panel-material-ui 0.16.6, Bokeh 3.9.2).
    """
    return pn.Column(
        *parts, sizing_mode="stretch_width", margin=(0, 0, 16, 0), stylesheets=[CARD_STYLES]
    )


class Section:
    """A card drawn again when one of ``fields`` changes; errors stay inside, empty it is hidden."""

    def __init__(
        self, place: str, draw: Callable[[], Sequence[Any]], fields: Sequence[str]
    ) -> None:
        self.place = place
        self.draw = draw
        self.fields = frozenset(fields)
        self.box = card()
        self.redraw()

    def redraw(self) -> None:
        """Draw the content."""
        parts: Sequence[Any] = ()
        with Guard(self.place) as guard:
            parts = self.draw()
        self.box.objects = [guard.card] if guard.card is not None else list(parts)
        self.box.visible = bool(self.box.objects)


def provenance(entry: Entry) -> str:
    """Return one line that says where a figure's numbers come from."""
    commit = str(entry.run.git.get("commit") or "")[:8]
    dirty = " with local changes" if entry.run.git.get("dirty") else ""
    parts = [f"run {entry.run.id}", ", ".join(entry.run.models)]
    parts += [f"commit {commit}{dirty}" if commit else "", (entry.run.finished or "")[:16]]
    return " · ".join(escape(part) for part in parts if part)
