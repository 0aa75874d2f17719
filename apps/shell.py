"""The shell of a page: navigation, controls bound to a state, and the address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

import panel as pn
import panel_material_ui as pmui
from bokeh.themes import Theme
from panel.io.resources import LOCAL_DIST
from workbench_apps.cards import Guard, Section, card, escape, note
from workbench_apps.keys import PAGES, Keys
from workbench_apps.looks import THEME
from workbench_apps.state import PageState, parse_search


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


def frame(
    state: PageState,
    path: str,
    heading: str,
    lead: str,
    controls: Sequence[Any],
    main: Sequence[Any],
    on_key: Callable[[str], None] | None = None,
    steps: str = "layer",
) -> pmui.Page:
    """Return the page: navigation and controls at the side, cards in the middle.

    ``steps`` says what the keys ``[`` and ``]`` go through.
    """
    keys = Keys(on_key=on_key, width=0, height=0, margin=0)
    links = note(_navigation(path, state.theme), margin=(8, 8))
    keyed = f"<kbd>[</kbd> <kbd>]</kbd> {steps} · " if on_key else ""
    hint = note(
        f"<p class='quiet'>Keys: {keyed}<kbd>1</kbd> to <kbd>{len(PAGES)}</kbd> pages</p>",
        margin=(12, 14),
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
    """Keep cards and address in step with the state.

    What changes while a page comes up is drawn again when it is up: a browser shows the cards that
    it began to build, and drops those that came meanwhile.
    """
    early: set[str] = set()
    ready = pn.state.loaded

    def draw(changed: set[str]) -> None:
        with pn.io.hold():
            for section in sections:
                if changed & section.fields:
                    section.redraw()

    def redraw(*events: Any) -> None:
        changed = {event.name for event in events}
        if not ready:
            early.update(changed)
        draw(changed)

    def catch_up() -> None:
        nonlocal ready
        ready = True
        draw(early)

    if not ready:
        pn.state.onload(catch_up)
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
