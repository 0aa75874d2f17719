"""Figures of a capped fleet: the gate, the controls and what is uninformative are seen."""

import numpy as np
import pandas as pd
import pytest
from tables import labels, notes

from workbench.effects.capped import BEHAVIOUR
from workbench.effects.displacement import DISPLACEMENT
from workbench.effects.engagement import ENGAGEMENT
from workbench.figures import LIGHT
from workbench.figures.capping import cap_displacement, cap_engagement, capped_readout


def frame(columns, rows, **shared):
    made = pd.DataFrame([{**dict.fromkeys(columns, np.nan), **shared, **row} for row in rows])
    return made[list(columns)]


def engagement(finals=(0.6, 0.1)):
    rows = [
        {"model": model, "position": position, "hooked": hooked, "engaged": share,
         "informative": share >= 0.15}
        for model, final in zip(("base", "P"), finals, strict=True)
        for position, hooked, share in (("final", False, final), ("generated", False, 0.4),
                                        ("generated", True, 0.3), ("prompt", False, 0.9))
    ]  # fmt: skip
    rows += [
        {"model": model, "position": "final", "hooked": False, "engaged": share,
         "informative": True, "control": f"random:{n}"}
        for model in ("base", "P") for n, share in enumerate((0.2, 0.7))
    ]  # fmt: skip
    shared = {"level": "condition", "text": "own", "control": "none", "low": 0.05, "high": 0.95}
    shared |= {"n": 16, "unit": "prompt", "interval": "95% bootstrap over prompts", "least": 0.15}
    return frame(ENGAGEMENT, rows, **shared)


def displacement():
    shared = {"control": "none", "layer": 15, "low": -3.0, "high": 1.0, "n": 2, "unit": "seed"}
    shared |= {"interval": "95% t over 2 seeds", "band": 0.5, "band_name": "95% of 1000 random"}
    rows = [
        {"model": "P", "text": "own", "dose": 0.0, "displacement": -2.0},
        {"model": "P", "text": "reference", "dose": 0.0, "displacement": -1.0},
        {"model": "P", "text": "own", "dose": 75.0, "displacement": -0.25},
        {"model": "P", "text": "own", "dose": 75.0, "displacement": 9.0, "control": "random:0"},
        {"model": "base", "text": "own", "dose": 75.0, "displacement": 0.5},
    ]
    rows = [{"level": "condition", **row} for row in rows]
    rows += [
        {"level": "organism", "model": f"base+P-s{seed}", "text": "own", "dose": 0.0,
         "displacement": -2 + seed}
        for seed in (0, 1)
    ]  # fmt: skip
    return frame(DISPLACEMENT, rows, **shared)


def behaviour(informative=True, random=(1.5, 2.5)):
    shared = {"level": "condition", "readout": "trust_game", "measure": "transfer", "dose": 75.0}
    shared |= {"condition": "person", "n": 2, "unit": "seed", "interval": "95% t over 2 seeds"}
    shared |= {"informative": informative, "before_low": 1.0, "before_high": 3.0}
    shared |= {"after_low": 0.5, "after_high": 2.5}
    rows = [{"model": "P", "control": "none", "before": 2.0, "after": 1.75}]
    rows += [
        {"model": "P", "control": f"random:{n}", "before": 2.0, "after": value}
        for n, value in enumerate(random)
    ]
    rows += [{"model": "P - A", "level": "contrast", "control": "none", "before": 1.0,
              "after": 0.5}]  # fmt: skip
    return frame(BEHAVIOUR, rows, **shared)


def drawn(figure, column):
    return [
        renderer.data_source.data
        for renderer in figure.renderers
        if column in renderer.data_source.data and "fill" in renderer.data_source.data
    ][1::2]  # bars and dots share a source


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_share_under_the_gate_is_hollow_and_told(theme):
    figure = cap_engagement(engagement(), theme=theme)
    final, generated, hooked = drawn(figure, "engaged")
    assert list(final["engaged"]) == [0.6, 0.1]
    assert final["fill"][1] == figure.background_fill_color != final["fill"][0]
    assert list(generated["engaged"]) == [0.4, 0.4]
    assert list(hooked["engaged"]) == [0.3, 0.3]
    assert notes(figure)[0] == "hollow: 1 of 4 under the gate of 15%"
    assert labels(figure)[-1] == "range of 2 random caps"
    assert "P final 10%" in figure.html_attributes["aria-label"]
    assert not any("hollow" in text for text in notes(cap_engagement(engagement((0.6, 0.2)))))


def test_engagement_is_drawn_over_the_range_of_random_caps_and_of_one_text():
    data = next(
        r.data_source.data
        for r in cap_engagement(engagement()).renderers
        if "low_end" in r.data_source.data
    )
    assert list(data["low_end"]) == [0.2, 0.2]
    assert list(data["high_end"]) == [0.7, 0.7]
    two = pd.concat([engagement(), engagement().assign(text="readout:claims")])
    with pytest.raises(ValueError, match=r"found \['own', 'readout:claims'\]"):
        cap_engagement(two)


def test_displacement_shows_both_texts_the_capped_reply_and_every_seed():
    figure = cap_displacement(displacement())
    own, reference, capped = drawn(figure, "displacement")
    assert (list(own["displacement"]), list(reference["displacement"])) == ([-2.0], [-1.0])
    assert list(capped["model"]) == ["P", "base"]  # controls are another figure's
    assert labels(figure) == [
        "uncapped, own replies", "uncapped, the reference's replies",
        "capped, own replies (unhooked pass)", "single seeds", "within 95% of 1000 random",
    ]  # fmt: skip
    seeds = next(
        r.data_source.data
        for r in figure.renderers
        if set(r.data_source.data) == {"model", "displacement"}
    )
    assert list(seeds["model"]) == ["P", "P"]
    assert figure.html_attributes["aria-label"].endswith("on own replies: P -2.")


def test_a_readout_is_drawn_before_and_after_and_gaps_apart_from_models():
    figure = capped_readout(behaviour(), axis="dollars of 10")
    before, after = drawn(figure, "at")
    assert list(before["model"]) == ["P"]
    assert (list(before["at"]), list(after["at"])) == ([2.0], [1.75])
    assert (list(before["low"]), list(after["high"])) == ([1.0], [2.5])
    gap = drawn(capped_readout(behaviour(), level="contrast"), "at")
    assert [list(one["at"]) for one in gap] == [[1.0], [0.5]]
    assert list(gap[0]["model"]) == ["P - A"]
    with pytest.raises(ValueError, match="no rows of level 'organism'"):
        capped_readout(behaviour(), level="organism")
    assert set(before["fill"]) == {LIGHT.palette[0]}
    assert labels(figure)[-1] == "range under 2 random caps"
    assert figure.xaxis[0].axis_label == "dollars of 10"


def test_an_uninformative_cap_and_missing_controls_are_told():
    figure = capped_readout(behaviour(informative=False, random=()))
    assert notes(figure)[:2] == [
        "no random caps in this run", "hollow: the cap engages too little in P"
    ]  # fmt: skip
    assert set(drawn(figure, "at")[0]["fill"]) == {LIGHT.surface}
    with pytest.raises(ValueError, match="found 2"):
        capped_readout(pd.concat([behaviour(), behaviour().assign(condition="ai")]))
