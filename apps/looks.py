"""How pages look: the Material theme, and the style sheets of notes, cards and tables."""

from __future__ import annotations

from workbench.figures.theme import DARK, FONT, LIGHT

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
NOTE_STYLES = """
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
table.texts td { white-space: pre-wrap; min-width: 140px; vertical-align: top; }
.scroll { overflow-x: auto; container-type: scroll-state; scrollbar-width: thin; }
.scroll::before { content: 'Scroll sideways for more \\2192'; display: none; font-size: 12px;
  position: sticky; left: 0; opacity: 0.72; }
@container scroll-state(scrollable: x) { .scroll::before { display: block; } }
@media (max-width: 700px) {
  table { width: max-content; min-width: 100%%; }
  th, td { white-space: normal; overflow-wrap: normal; padding-right: 10px; vertical-align: top;
    max-width: 11em; }
  table.texts td { max-width: 60vw; }
  @supports not (container-type: scroll-state) { .scroll::before { display: block; } }
}
"""

TABLE_STYLES = ":host .tabulator { font-size: 13px; }"
CARD_STYLES = """
:host { border: 1px solid rgba(127, 127, 127, 0.32); border-radius: 10px; padding: 20px;
  box-sizing: border-box; }
@media (max-width: 700px) { :host { padding: 12px; } }
"""
