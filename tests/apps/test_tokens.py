"""Tokens as HTML: readable on every color, focusable, escaped, and honest at the ends."""

import re

import numpy as np
import pytest
from workbench_apps.tokens import Token, ramp_html, shades, token_html

from workbench.figures.theme import contrast


def test_shades_are_clipped_and_zero_without_a_reach():
    assert list(shades([0.0, 1.0, 2.0, 9.0, -9.0], 1.0, 2.0)) == [-0.5, 0.0, 0.5, 1.0, -1.0]
    assert list(shades([1.0, 5.0], 1.0, 0.0)) == [0.0, 0.0]


@pytest.mark.parametrize("dark", [False, True])
def test_the_ink_of_every_token_can_be_read(dark):
    found = token_html([Token("word", at, "") for at in np.linspace(-1, 1, 41)], dark=dark)
    pairs = re.findall(r"background:(#\w{6});color:(#\w{6})", found)
    assert len(pairs) == 41
    assert len(set(pairs)) == 41
    assert min(contrast(*pair) for pair in pairs) >= 4.5


def test_every_token_can_be_focused_and_is_told_in_words_without_becoming_markup():
    found = token_html(
        [Token("<b>'s", 0.5, "it's 'x' < 1"), Token("\n", 0.0, "break")], label="<i>"
    )
    assert found.count("tabindex='0'") == found.count("role='listitem'") == 2
    assert "<b>" not in found
    assert "<i>" not in found
    assert "data-tip='it&#x27;s &#x27;x&#x27; &lt; 1'" in found
    assert "aria-label='space: break'" in found
    assert "\N{DOWNWARDS ARROW WITH TIP LEFTWARDS}\n" in found


def test_a_key_of_one_side_ends_in_the_color_of_the_page():
    assert ramp_html("low", "none", whole=False).count("#ffffff") == 1
    whole = ramp_html("low", "high", "middle 2")
    assert whole.index("#ffffff") < whole.rindex("#")
    assert "middle 2" in whole
