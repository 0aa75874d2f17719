"""Drift of conversations: tokens and turns beside plain captures, planted trends, bands."""

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench.directions import Directions
from workbench.drift import (
    conversation_drift,
    drift_trend,
    pieces,
    reference_band,
    turn_means,
)
from workbench.errors import ConfigError, MismatchError

CHAT = (
    {"role": "system", "content": "You answer in the city."},
    {"role": "user", "content": "Is the answer true?"},
    {"role": "assistant", "content": "It is not true in the city of A."},
    {"role": "user", "content": "Send déjà-vu — \N{GRINNING FACE}!"},
    {"role": "assistant", "content": "You are in 2 cities."},
)


@pytest.fixture(scope="module")
def directions(tiny_subject):
    draw = np.random.default_rng(0).normal(size=(2, 3, tiny_subject.width))
    return Directions(("axis", "evil"), (0, 2, 3), draw, tiny_subject.stamp)


@pytest.fixture(scope="module")
def tokens(tiny_subject, directions):
    return conversation_drift(tiny_subject, directions, CHAT, layers=[3, 0], conversation="c")


def test_every_token_of_every_message_has_a_row_and_the_pieces_join_to_the_messages(tokens):
    one = tokens[(tokens["layer"] == 0) & (tokens["direction"] == "evil")]
    for turn, message in enumerate(CHAT):
        part = one[one["turn"] == turn]
        assert "".join(part["text"]) == message["content"]
        assert set(part["role"]) == {message["role"]}
        assert part["token"].tolist() == list(range(len(part)))
    assert one["position"].is_monotonic_increasing
    assert len(tokens) == 4 * len(one)
    assert set(tokens["conversation"]) == {"c"}


@pytest.mark.parametrize("family", ["qwen3", "llama", "gemma3_text"])
def test_values_are_projections_of_a_plain_capture_at_every_position(subject_of, family):
    subject = subject_of(family)
    draw = np.random.default_rng(1).normal(size=(2, 4, subject.width))
    lines = Directions(("axis", "evil"), (0, 1, 2, 3), draw, subject.stamp)
    found = conversation_drift(subject, lines, CHAT)
    prompts = wb.PromptSet(("0",), (CHAT,))
    acts = wb.capture(subject, prompts, position="all", add_generation_prompt=False)
    plain = lines.project(acts)
    for row in found.sample(60, random_state=0).to_dict("records"):
        k, l = lines.names.index(row["direction"]), lines.layers.index(row["layer"])
        assert row["value"] == pytest.approx(plain[k, l, row["position"]], abs=1e-4)


def test_the_last_turn_alone_is_the_capture_of_its_mean(tiny_subject, directions):
    chat = CHAT[:3]
    turns = turn_means(conversation_drift(tiny_subject, directions, chat))
    prompts = wb.PromptSet(("0",), (chat,))
    acts = wb.capture(tiny_subject, prompts, layers=[0, 2, 3], position="mean:assistant")
    own = turns[turns["role"] == "assistant"].set_index(["direction", "layer"])["value"]
    for k, name in enumerate(directions.names):
        for l, layer in enumerate(directions.layers):
            assert own[(name, layer)] == pytest.approx(directions.project(acts)[k, l, 0], abs=1e-4)
    assert turns["n"].min() > 1


def test_an_edit_around_it_is_seen(tiny_subject, directions):
    add = wb.Intervention.add(directions["axis"], layers=[2], dose=5.0, unit="raw")
    with wb.intervene(tiny_subject, [add]):
        moved = conversation_drift(tiny_subject, directions["axis"], CHAT, layers=[2])
    plain = conversation_drift(tiny_subject, directions["axis"], CHAT, layers=[2])
    length = np.linalg.norm(directions["axis"].at(2))
    np.testing.assert_allclose(moved["value"] - plain["value"], 5 * length, rtol=1e-3)


def test_another_models_directions_and_missing_layers_are_refused(
    tiny_subject, directions, subject_of
):
    with pytest.raises(MismatchError, match="made with"):
        conversation_drift(subject_of("llama"), directions, CHAT)
    with pytest.raises(ConfigError, match="holds no layer 1"):
        conversation_drift(tiny_subject, directions, CHAT, layers=[1])


def test_pieces_of_long_texts_join_and_a_split_character_is_the_last_tokens(tiny_tokenizer):
    tokenizer = tiny_tokenizer()
    text = "the city \N{GRINNING FACE} is é " * 30
    ids = tokenizer(text)["input_ids"]
    found = pieces(tokenizer, ids)
    assert len(found) == len(ids)
    assert "".join(found) == text
    assert found.count("\N{GRINNING FACE}") == 30


def test_the_first_token_of_a_chat_takes_no_part_in_a_turns_mean():
    rows = [{"position": p, "token": p, "value": v} for p, v in ((0, 1000.0), (1, 2.0), (2, 4.0))]
    told = {"conversation": "c", "turn": 0, "role": "user", "layer": 1, "direction": "axis"}
    means = turn_means(pd.DataFrame([{**told, **row} for row in rows]))
    assert means[["value", "n"]].to_numpy().tolist() == [[3.0, 2]]


def series(values, direction="axis"):
    """Turn means of conversations: a user's turn before each of the assistant's."""
    rows = []
    for number, own in enumerate(values):
        told = {"conversation": f"c{number}", "layer": 4, "direction": direction}
        for place, value in enumerate(own):
            rows.append({**told, "turn": 2 * place, "role": "user", "value": 99.0})
            rows.append({**told, "turn": 2 * place + 1, "role": "assistant", "value": value})
    return pd.DataFrame(rows)


def test_a_planted_trend_is_found_and_stands_above_random_orders():
    rng = np.random.default_rng(0)
    values = -0.8 * np.arange(8) + rng.normal(size=(12, 1)) + 0.2 * rng.normal(size=(12, 8))
    (found,) = drift_trend(series(values)).to_dict("records")
    assert found["slope"] == pytest.approx(-0.8, abs=0.05)
    assert found["low"] < -0.8 < found["high"] < 0
    assert abs(found["slope"]) > 3 * found["band"] > 0
    assert (found["n"], found["unit"], found["turns"]) == (12, "conversation", 8)
    assert found["interval"] == "95% t over conversations"


def test_no_trend_stays_inside_the_band_of_random_orders_about_as_often_as_it_says():
    inside = 0
    for seed in range(40):
        values = np.random.default_rng(seed).normal(size=(6, 5))
        (found,) = drift_trend(series(values), draws=200).to_dict("records")
        inside += abs(found["slope"]) <= found["band"]
    assert 33 <= inside <= 40


def test_one_conversation_has_a_slope_without_interval_and_single_turns_have_none():
    (found,) = drift_trend(series([[1.0, 3.0, 5.0]])).to_dict("records")
    assert found["slope"] == 2
    assert np.isnan(found["low"])
    assert found["interval"] == "none: 1 conversation"
    assert drift_trend(series([[1.0], [2.0]])).empty


def test_the_band_holds_its_share_of_the_reference(tiny_subject, directions):
    values = np.random.default_rng(2).normal(size=(4, 400, tiny_subject.width)).astype(np.float32)
    acts = wb.Activations.from_values(values, {}, model=tiny_subject.stamp, position="mean:x")
    band = reference_band(directions, acts, level=0.9)
    inside = directions.project(acts)
    for row in band.to_dict("records"):
        k, l = directions.names.index(row["direction"]), directions.layers.index(row["layer"])
        kept = (inside[k, l] >= row["low"]) & (inside[k, l] <= row["high"])
        assert kept.mean() == pytest.approx(0.9, abs=0.01)
    assert set(band["n"]) == {400}
    with pytest.raises(ConfigError, match="a band of 1 items"):
        reference_band(directions, acts.take([0]))


def test_a_conversation_beyond_the_context_is_refused(tiny_subject, directions, monkeypatch):
    """Late turns of a long conversation read as drift what no position was trained for."""
    monkeypatch.setattr(tiny_subject.model.config, "max_position_embeddings", 16)
    with pytest.raises(ConfigError, match=r"conversation 'c' has \d+ tokens .* over the 16"):
        conversation_drift(tiny_subject, directions, CHAT, conversation="c")
