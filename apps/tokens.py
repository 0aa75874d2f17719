"""Tokens as HTML: colored by a number, wrapped as text, each one focusable and named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import panel as pn
from workbench_apps.cards import escape
from workbench_apps.looks import NOTE_STYLES

from workbench.figures.theme import DARK, FONT, LIGHT, Theme, blend, contrast

TOKEN_STYLES = """
.tokens { line-height: 1.85; font-size: 14px; white-space: pre-wrap; overflow-wrap: anywhere;
  margin: 4px 0 12px; padding: 0; }
.tokens span { border-radius: 3px; padding: 2px 0; cursor: default; }
.tokens span:focus { outline: 2px solid currentColor; outline-offset: 1px; }
.tokens span:hover::after, .tokens span:focus::after { content: attr(data-tip); position: fixed;
  left: 50%; bottom: 14px; transform: translateX(-50%); z-index: 20; padding: 6px 12px;
  border-radius: 7px; background: #1c2430; color: #ffffff; font-size: 13px; line-height: 1.4;
  max-width: 86vw; white-space: nowrap; overflow: hidden; text-overflow: ellipsis;
  box-shadow: 0 1px 6px rgba(0, 0, 0, 0.4); pointer-events: none; }
.ramp { display: flex; align-items: center; gap: 8px; font-size: 12.5px; margin: 4px 0 8px;
  flex-wrap: wrap; }
.ramp i { display: inline-block; width: 150px; height: 12px; border-radius: 3px;
  border: 1px solid rgba(127, 127, 127, 0.4); }
"""
MOST_BLEND = 0.85
SIDE = {"width": "min(100%, 460px)", "flex": "1 1 320px"}
"""Styles of boxes with tokens that stand side by side where there is room."""


class Token(NamedTuple):
    """One token: its text, where it lies between -1 and 1, and what it is told as."""

    text: str
    shade: float
    tip: str


def shades(values: Sequence[float] | pd.Series, middle: float, reach: float) -> np.ndarray:
    """Return where values lie between -1 (``reach`` below the middle) and 1, clipped."""
    if reach <= 0:
        return np.zeros(len(values))
    return np.clip((np.asarray(values, float) - middle) / reach, -1, 1)


def token_html(tokens: Sequence[Token], *, dark: bool = False, label: str = "") -> str:
    """Return tokens as a list that wraps; blue lies above the middle, orange below.

    Args:
        tokens: in order.
        dark: on a dark page.
        label: of the list, for screen readers.
    """
    look = DARK if dark else LIGHT
    parts = [
        f"<span role='listitem' tabindex='0' data-tip='{escape(token.tip)}' "
        f"aria-label='{escape(token.text.strip() or 'space')}: {escape(token.tip)}' "
        f"style='{_paint(look, token.shade)}'>{escape(_shown(token.text))}</span>"
        for token in tokens
    ]
    return f"<div class='tokens' role='list' aria-label='{escape(label)}'>{''.join(parts)}</div>"


def ramp_html(
    low: str, high: str, told: str = "", *, dark: bool = False, whole: bool = True
) -> str:
    """Return the key to the colors.

    Args:
        low: what the orange end means.
        high: what the other end means.
        told: a remark behind it.
        dark: on a dark page.
        whole: from orange over the page's color to blue; else to the page's color alone.
    """
    look = DARK if dark else LIGHT
    stops = ", ".join(_color(look, shade) for shade in ((-1.0, 0.0, 1.0) if whole else (-1.0, 0.0)))
    return (
        f"<div class='ramp'><span>{escape(low)}</span>"
        f"<i style='background: linear-gradient(90deg, {stops})' role='img' "
        f"aria-label='Color key from {escape(low)} to {escape(high)}'></i>"
        f"<span>{escape(high)}</span><span class='quiet'>{escape(told)}</span></div>"
    )


def quoted(text: str) -> str:
    """Return a token's text in quotes, for a tip."""
    return f"“{text.strip() or 'space'}”"


def token_pane(html: str) -> pn.pane.HTML:
    """Return HTML with tokens in the page's typography."""
    sheets = [NOTE_STYLES % (FONT, LIGHT.palette[0]), TOKEN_STYLES]
    return pn.pane.HTML(html, stylesheets=sheets, sizing_mode="stretch_width", margin=0)


def _shown(text: str) -> str:
    """A line break alone would be a token that nobody sees."""
    return text.replace("\n", "\N{DOWNWARDS ARROW WITH TIP LEFTWARDS}\n")


def _color(look: Theme, shade: float) -> str:
    end = look.palette[0] if shade > 0 else look.palette[1]
    return blend(look.surface, end, MOST_BLEND * abs(shade))


def _paint(look: Theme, shade: float) -> str:
    """Return background and the ink that is easier to read on it."""
    back = _color(look, shade)
    ink = max(("#000000", "#ffffff"), key=lambda color: contrast(color, back))
    return f"background:{back};color:{ink}"
