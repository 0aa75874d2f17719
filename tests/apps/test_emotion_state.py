"""The emotions page's state and tables, without a browser or a model."""

import numpy as np
import pandas as pd
import pytest
from emotion_runs import BEST, NAMES, VALENCE, write_emotions, write_profiles
from workbench_apps import emotions
from workbench_apps.catalogue import read_catalogue
from workbench_apps.emotion_state import EmotionState
from workbench_apps.emotion_text import NAMES as TEXTS
from workbench_apps.emotion_text import OwnText, stand_out, text_means

from workbench.errors import FormatError


@pytest.fixture
def root(tmp_path):
    write_profiles(tmp_path, write_emotions(tmp_path))
    return tmp_path


def state_of(root):
    return EmotionState(read_catalogue(root))


def test_it_opens_in_the_window_with_the_held_out_half(root):
    state = state_of(root)
    assert (state.layer, state.half, state.window) == (str(BEST), "second", "peak")
    assert state.search() == ""
    assert set(state.options("emotion")) == set(NAMES)
    assert len(state.placed()) == 2 * len(NAMES)


def test_every_field_comes_back_from_its_address(root):
    state, other = state_of(root), state_of(root)
    state.choose(layer="5", emotion="joy", window="2-4", half="first")
    assert other.settle(state.query()) == []
    assert other.search() == state.search() != ""


def test_steps_stop_at_the_ends(root):
    state = state_of(root)
    for _ in range(9):
        state.step(1)
    assert state.layer == "5"
    for _ in range(9):
        state.step(-1)
    assert state.layer == "0"


def test_what_is_not_there_is_refused_with_what_is(root):
    refused = state_of(root).settle({"emotion": "hunger", "layer": "9", "half": "third"})
    assert [one.partition(" ")[0] for one in refused] == ["layer=9", "emotion=hunger", "half=third"]


def test_profiles_of_other_vectors_are_left_out(root, tmp_path_factory):
    other = write_emotions(tmp_path_factory.mktemp("other"), without=("reference",))
    write_profiles(root, other)
    assert len(state_of(root).options("profiles")) == 1


def test_neighbors_are_of_the_same_family(root):
    state = state_of(root)
    for name in NAMES:
        near = emotions.near_and_far(state.similarity(), name)
        assert VALENCE[near["near"]] == VALENCE[name] == -VALENCE[near["far"]]
    alone = pd.DataFrame({"first": ["joy"], "second": ["joy"], "cosine": [1.0]})
    assert emotions.near_and_far(alone, "joy") == {}


def test_without_curves_valence_or_reference_the_rest_can_be_read(tmp_path):
    write_emotions(tmp_path, without=("curves", "valence", "reference"))
    state = state_of(tmp_path)
    assert state.layer == str(BEST)  # the middle
    entry = state.entry()
    assert emotions.curves_of(entry).empty
    assert emotions.valence_of(entry).empty
    assert emotions.reference_of(entry).empty


def test_a_table_without_a_column_is_named_with_what_to_do(root):
    path = state_of(root).entry().path / "similarity.parquet"
    pd.read_parquet(path).drop(columns="cosine").to_parquet(path)
    with pytest.raises(FormatError, match=r"similarity.parquet has no column 'cosine'"):
        emotions.similarity_of(state_of(root).entry())


def read(state, means, layers=6, first=0):
    """What the model's process tells of texts whose tokens all lie at ``means`` (by emotion)."""
    own = OwnText(state)
    own.texts = ["text"] * len(means)
    for number, mean in enumerate(means):
        values = np.broadcast_to(
            np.array(mean, np.float32)[:, None], (4, len(NAMES), layers)
        ).copy()
        values[0] += 100.0
        pieces = ["The", " end", ".", "\n"]
        own.found[number] = {"text": number, "first": first, "pieces": pieces, "values": values}
    return own


def test_own_text_is_measured_in_the_references_unit_without_the_sink(root):
    means = text_means(read(state_of(root), [[0.5, 2.5, 4.5, 0.5, 0.5, -1.5]]).tokens())
    assert dict(zip(means["emotion"], means["value"], strict=True)) == pytest.approx(
        dict(zip(NAMES, (0.0, 1.0, 2.0, 0.0, 0.0, -1.0), strict=True))
    )
    assert set(means["n"]) == {3}
    assert stand_out(means, 2) == ["calm", "pride"]


def test_a_token_before_the_text_is_the_sink_and_all_of_the_text_counts(root):
    own = read(state_of(root), [[0.5] * 6], first=1)
    assert sorted(own.tokens()["token"].unique()) == [1, 2, 3, 4]
    means = text_means(own.tokens())
    assert set(means["n"]) == {4}
    assert means["value"].tolist() == pytest.approx([100 / 4 / 2] * 6)  # the first one counts


def test_without_a_reference_two_texts_are_measured_from_their_mean(tmp_path):
    write_emotions(tmp_path, without=("reference",))
    own = read(state_of(tmp_path), [[3.0] * 6, [1.0] * 5 + [-5.0]])
    means = text_means(own.tokens()).pivot(index="emotion", columns="text", values="value")
    assert means[TEXTS[0]].to_dict() == pytest.approx(dict.fromkeys(NAMES, 1.0) | {"envy": 4.0})
    assert means[TEXTS[1]].to_dict() == pytest.approx(dict.fromkeys(NAMES, -1.0) | {"envy": -4.0})
    assert stand_out(text_means(own.tokens()), 1) == ["envy"]


def test_every_token_of_every_text_is_in_the_file(root):
    table = read(state_of(root), [[0.0] * 6, [1.0] * 6]).tokens()
    assert len(table) == 2 * 4 * len(NAMES)
    assert table.groupby("text")["piece"].first().to_dict() == dict.fromkeys(TEXTS, "The")


def test_gaps_come_largest_first_with_what_random_directions_reach(root):
    state = state_of(root)
    table = state.gaps()
    assert list(table["emotion"]) == [*NAMES[:2:-1], *NAMES[2::-1]]
    assert list(table["zgap"].abs()) == sorted(table["zgap"].abs(), reverse=True)
    assert set(table["half"]) == {"second"}
    assert emotions.apart(state.placed()) == list(NAMES[::-1])
