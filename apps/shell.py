"""What all pages share: the frame around them, controls bound to a state, notes, errors, keys."""

from __future__ import annotations

import html
import json
import logging
import uuid
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, ClassVar
from urllib.parse import urlencode

import panel as pn
import panel_material_ui as pmui
import param
from bokeh.themes import Theme
from panel.custom import JSComponent
from panel.io.resources import LOCAL_DIST
from workbench_apps.catalogue import NEEDS, Entry
from workbench_apps.state import PageState, parse_search

from workbench.errors import WorkbenchError
from workbench.figures.theme import DARK, FONT, LIGHT

logger = logging.getLogger(__name__)

PAGES = (
    ("/", "Overview"),
    ("/map", "Activations map"),
    ("/truth", "Truth"),
    ("/dose", "Dose-response"),
)
NARROW = 700
"""Pixels under which the sidebar starts closed."""
_BAR = {
    "boxShadow": "none",
    "backgroundImage": "none",
    "borderBottom": "1px solid rgba(127, 127, 127, 0.28)",
}
THEME = {
    "light": {
        "components": {
            "MuiAppBar": {
                "styleOverrides": {
                    "root": {**_BAR, "backgroundColor": LIGHT.surface, "color": LIGHT.ink}
                }
            }
        },
        "palette": {
            "primary": {"main": LIGHT.palette[0]},
            "background": {"default": "#f6f7f9", "paper": LIGHT.surface},
        },
        "typography": {"fontFamily": FONT},
    },
    "dark": {
        "components": {
            "MuiAppBar": {
                "styleOverrides": {
                    "root": {**_BAR, "backgroundColor": DARK.surface, "color": DARK.ink}
                }
            }
        },
        "palette": {
            "primary": {"main": DARK.palette[0]},
            "background": {"default": "#0b0d10", "paper": DARK.surface},
        },
        "typography": {"fontFamily": FONT},
    },
}
_NOTE_STYLES = """
:host { font-family: %s; font-size: 14px; line-height: 1.5; overflow-wrap: anywhere; }
h1 { font-size: 22px; line-height: 1.25; margin: 0 0 2px; font-weight: 650; }
h2 { font-size: 17px; line-height: 1.3; margin: 0 0 2px; font-weight: 650; }
p { margin: 0 0 6px; }
p.under { margin-top: 10px; }
.quiet { opacity: 0.72; font-size: 13px; }
.warn { border-left: 3px solid #d9822b; padding-left: 10px; }
.big { font-size: 18px; font-weight: 600; line-height: 1.35; }
code { font-family: 'DejaVu Sans Mono', Menlo, Consolas, monospace; font-size: 12.5px;
  padding: 1px 5px; border-radius: 4px; background: rgba(127, 127, 127, 0.16); }
pre { margin: 6px 0; padding: 10px 12px; border-radius: 6px; overflow-x: auto;
  background: rgba(127, 127, 127, 0.13); white-space: pre-wrap; }
pre code { background: none; padding: 0; }
a { color: %s; }
nav a { display: block; padding: 9px 12px; margin: 2px 0; border-radius: 7px; color: inherit;
  text-decoration: none; font-size: 14.5px; }
nav a:hover, nav a:focus-visible { background: rgba(127, 127, 127, 0.14); }
nav a[aria-current=page] { background: rgba(0, 114, 178, 0.14); font-weight: 650; }
kbd { border: 1px solid rgba(127, 127, 127, 0.5); border-radius: 4px; padding: 0 5px;
  font-size: 12px; }
table { border-collapse: collapse; width: 100%%; font-size: 13px; }
th, td { text-align: left; padding: 6px 16px 6px 0; white-space: nowrap; border-bottom: 1px solid
  rgba(127, 127, 127, 0.25); font-variant-numeric: tabular-nums; }
th { font-weight: 600; opacity: 0.8; }
.scroll { overflow-x: auto; }
"""


TABLE_STYLES = ":host .tabulator { font-size: 13px; }"
_CARD_STYLES = """
:host { border: 1px solid rgba(127, 127, 127, 0.32); border-radius: 10px; padding: 20px;
  box-sizing: border-box; }
@media (max-width: 700px) { :host { padding: 12px; } }
"""
_KEYS_JS = """
const PAGES = @pages;
export function render({model}) {
  const typing = (el) => el && (el.isContentEditable || el.tagName === 'TEXTAREA'
    || (el.tagName === 'INPUT' && el.type !== 'range' && el.type !== 'checkbox'));
  const onKey = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) { return }
    if (typing(event.composedPath()[0])) { return }
    if (event.key in PAGES) {
      const theme = new URLSearchParams(window.location.search).get('theme');
      window.location.href = PAGES[event.key] + (theme ? '?theme=' + theme : '');
    } else if (['[', ']', 'Escape'].includes(event.key)) {
      model.send_msg({key: event.key});
    }
  };
  const onBack = () => window.location.reload();
  document.addEventListener('keydown', onKey);
  window.addEventListener('popstate', onBack);
  // While the page comes up, messages of either side may get lost: say it until an answer comes.
  const timer = setInterval(() => {
    if (model.heard || window.innerWidth >= @narrow) { clearInterval(timer) }
    else { model.send_msg({narrow: true}) }
  }, 250);
  model.on('remove', () => {
    clearInterval(timer);
    document.removeEventListener('keydown', onKey);
    window.removeEventListener('popstate', onBack);
  });
}
""".replace("@narrow", str(NARROW)).replace(
    "@pages", json.dumps({str(number): path for number, (path, _) in enumerate(PAGES, 1)})
)


def note(text: str, *, dark: bool = False, **options: Any) -> pn.pane.HTML:
    """Return HTML in the page's typography; callers escape what comes from files."""
    link = DARK.palette[0] if dark else LIGHT.palette[0]
    options = {"sizing_mode": "stretch_width", "margin": 0} | options
    return pn.pane.HTML(text, stylesheets=[_NOTE_STYLES % (FONT, link)], **options)


def escape(value: object) -> str:
    """Return text that is safe inside HTML."""
    return html.escape(str(value))


def html_table(rows: Sequence[Sequence[object]], heads: Sequence[str]) -> str:
    """Return a small table as HTML, every cell escaped; wide ones scroll inside themselves."""
    top = "".join(f"<th scope='col'>{escape(head)}</th>" for head in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    inner = f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody>"
    return f"<div class='scroll'><table>{inner}</table></div>"


class Keys(JSComponent):
    """Listens for page keys, tells of a narrow window, and reloads when the back button is used.

    Keys are inactive while typing. ``on_key`` gets ``[``, ``]`` or ``Escape``.
    """

    heard = param.Integer(0)
    on_key = param.Callable(default=None)
    on_narrow = param.Callable(default=None)
    _rename: ClassVar[dict[str, str | None]] = {"on_key": None, "on_narrow": None}

    _esm = _KEYS_JS

    def _handle_msg(self, msg: dict[str, Any]) -> None:
        if msg.get("narrow") and self.on_narrow:
            self.on_narrow()
            self.heard += 1
        elif "key" in msg and self.on_key:
            self.on_key(msg["key"])


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
    what, command = NEEDS[kind]
    off = any(entry.problem for entry in state.catalogue.entries)
    counts = state.catalogue.counts()
    hint = f"<p>Here: {counts}; see the <a href='/'>overview</a>.</p>" if off else ""
    return note(
        f"<div class='empty'><h2>Nothing to show yet</h2><p>Here would be {escape(what)}. "
        f"Make it with:</p><pre><code>{escape(command)}</code></pre>"
        f"<p class='quiet'>Then reload this page.</p>{hint}</div>"
    )


def card(*parts: Any) -> pn.Column:
    """Return a bordered box as wide as the page.

    A plain column: inside ``pmui.Paper`` a figure that replaces another is measured before it is
    laid out, which raises in the browser (panel-material-ui 0.16.6, Bokeh 3.9.2).
    """
    return pn.Column(
        *parts, sizing_mode="stretch_width", margin=(0, 0, 16, 0), stylesheets=[_CARD_STYLES]
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


def select(state: PageState, name: str, label: str) -> pmui.Select:
    """Return a selector for one field, hidden while there is nothing to choose."""
    widget = pmui.Select(label=label, size="small", sizing_mode="stretch_width", margin=(8, 12))

    def sync(*_: Any) -> None:
        options = state.options(name)
        widget.param.update(
            options={text: value for value, text in options.items()},
            value=getattr(state, name) if options else None,
            visible=len(options) > 1,
        )

    def take(event: Any) -> None:
        if event.new is not None and event.new != getattr(state, name):
            state.choose(**{name: event.new})

    with Guard(f"/{state.kind} selector"):
        sync()
    state.param.watch(sync, list(state.fields))
    widget.param.watch(take, "value")
    return widget


def provenance(entry: Entry) -> str:
    """Return one line that says where a figure's numbers come from."""
    commit = str(entry.run.git.get("commit") or "")[:8]
    dirty = " with local changes" if entry.run.git.get("dirty") else ""
    parts = [f"run {entry.run.id}", ", ".join(entry.run.models)]
    parts += [f"commit {commit}{dirty}" if commit else "", (entry.run.finished or "")[:16]]
    return " · ".join(escape(part) for part in parts if part)


def frame(
    state: PageState,
    path: str,
    heading: str,
    lead: str,
    controls: Sequence[Any],
    main: Sequence[Any],
    on_key: Callable[[str], None] | None = None,
) -> pmui.Page:
    """Return the page: navigation and controls at the side, cards in the middle."""
    keys = Keys(on_key=on_key, width=0, height=0, margin=0)
    links = note(_navigation(path, state.theme), margin=(8, 8))
    keyed = "<kbd>[</kbd> <kbd>]</kbd> layer · " if on_key else ""
    hint = note(
        f"<p class='quiet'>Keys: {keyed}<kbd>1</kbd> to <kbd>4</kbd> pages</p>", margin=(12, 14)
    )
    page = pmui.Page(
        title="Workbench",
        meta_title=f"{heading} · Workbench",
        sidebar=[links, *controls, hint],
        main=[pn.Column(keys, _head(heading, lead), *main, sizing_mode="stretch_width", margin=16)],
        main_width=1180,
        app_bar_width="100%",
        sidebar_width=300,
        sidebar_resizable=False,
        sidebar_open=not on_phone(),
        dark_theme=state.theme == "dark",
        theme_config=THEME,
        sx={"& .MuiAppBar-root .title": {"color": "text.primary", "fontSize": "20px"}},
    )

    def close() -> None:
        page.sidebar_open = True  # an answer that got lost is only sent again if it is a change
        page.sidebar_open = False

    keys.on_narrow = close
    page.param.watch(
        lambda event: state.choose(theme="dark" if event.new else "light"), "dark_theme"
    )
    state.param.watch(lambda *_: setattr(links, "object", _navigation(path, state.theme)), "theme")
    return page


def prepare_document() -> None:
    """Keep what a page loads on this machine, and figures in their own colors.

    A session that is made anew when a browser reconnects renders no HTML, and Panel then takes
    style sheets from its CDN unless the document says where they lie. The theme names the figure
    parts that carry their own style, or the page would repaint them.
    """
    document = pn.state.curdoc
    if document is not None:
        document.template_variables["dist_url"] = LOCAL_DIST
        own = ("Axis", "ColorBar", "Figure", "Grid", "Legend", "Title")
        document.theme = Theme(json={"attrs": {part: {} for part in own}})


def _head(heading: str, lead: str) -> pn.pane.HTML:
    return note(
        f"<h1>{escape(heading)}</h1><p class='quiet'>{escape(lead)}</p>", margin=(4, 4, 12, 4)
    )


def _navigation(path: str, theme: str) -> str:
    query = f"?{urlencode({'theme': theme})}" if theme else ""
    current = {path: " aria-current='page'"}
    links = "".join(
        f"<a href='{target}{query}'{current.get(target, '')}>{words}</a>" for target, words in PAGES
    )
    return f"<nav aria-label='Pages'>{links}</nav>"


def on_phone() -> bool:
    """Say whether the browser calls itself a phone's."""
    headers = {key.lower(): value for key, value in (pn.state.headers or {}).items()}
    return headers.get("sec-ch-ua-mobile") == "?1" or "Mobi" in headers.get("user-agent", "")


def bind(state: PageState, sections: Sequence[Section]) -> None:
    """Keep cards and address in step with the state; report what the address asked in vain."""

    def redraw(*events: Any) -> None:
        changed = {event.name for event in events}
        with pn.io.hold():
            for section in sections:
                if changed & section.fields:
                    section.redraw()

    state.param.watch(redraw, [*state.fields, "theme"])
    location = pn.state.location
    if location is None:
        return

    def write(*_: Any) -> None:
        if location.search != state.search():
            location.search = state.search()

    state.param.watch(write, [*state.fields, "theme"])


def take_address(state: PageState) -> list[str]:
    """Settle a new state from the page's address and return what it asked for in vain."""
    location = pn.state.location
    return state.settle(parse_search(location.search or "")) if location is not None else []


def report(state: PageState, refused: Sequence[str]) -> None:
    """Once the page is up, say what was refused and rewrite the address without it."""
    if not refused:
        return

    def tell() -> None:
        location = pn.state.location
        if location is not None:
            location.search = state.search()
        for problem in refused:
            pn.state.notifications.warning(f"Left out of the address: {problem}", duration=8000)

    pn.state.onload(tell)


def broken_page(path: str, heading: str, guard: Guard) -> pmui.Page:
    """Return a page that holds nothing but what went wrong."""
    links = note(_navigation(path, ""))
    return pmui.Page(
        title=f"{heading} · Workbench",
        sidebar=[links],
        main=[pn.Column(_head(heading, ""), card(guard.card), margin=16)],
        sidebar_open=not on_phone(),
        theme_config=THEME,
    )
