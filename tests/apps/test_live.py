"""What the model's process does, on a tiny model: the numbers of a page are the library's own."""

import ast
import contextlib
import io

import numpy as np
import persona_runs
import pytest
import torch
from workbench_apps import live, scripts

import workbench as wb
from workbench.api import load_for_readouts
from workbench.drift import conversation_drift
from workbench.errors import MismatchError

CHAT = [{"role": "user", "content": "Tell me of the city"}]
ANSWERED = [*CHAT, {"role": "assistant", "content": "the city is true and I send you an answer"}]
SAMPLING = {"max_new_tokens": 12, "temperature": 1.0, "seed": 3}


@pytest.fixture(scope="module")
def made(tmp_path_factory, tiny_folder):
    """(reference of a tiny model, path of its axis, floors that engage at some tokens)."""
    root = tmp_path_factory.mktemp("live")
    run = persona_runs.write_live(root / "runs", root, tiny_folder)
    ref, axis = str(root / "base"), run / "axis.safetensors"
    subject = load_for_readouts(ref)
    tokens = conversation_drift(subject, wb.open_directions(axis), ANSWERED)
    floors = tokens.groupby("layer")["value"].median()
    return ref, axis, {layer: float(floors[layer]) for layer in (1, 2, 3)}


@pytest.fixture(scope="module")
def subject(made):
    return load_for_readouts(made[0])


def test_drift_tells_what_it_does_and_gives_the_librarys_tokens(made, subject):
    ref, axis, _ = made
    live._models.clear()
    parts = list(live.drift(models={"base": (ref, None)}, axis=str(axis), messages=ANSWERED))
    assert [part.get("note") for part in parts[:2]] == [
        "loading base", "base reads the conversation",
    ]  # fmt: skip
    expected = conversation_drift(subject, wb.open_directions(axis), ANSWERED)
    np.testing.assert_array_equal(parts[-1]["tokens"]["value"], expected["value"])
    again = list(live.drift(models={"base": (ref, None)}, axis=str(axis), messages=ANSWERED))
    assert len(again) == 2


def test_no_more_models_are_kept_than_said(made, monkeypatch):
    asked_for = []
    monkeypatch.setattr(
        "workbench.api.load_for_readouts", lambda ref: asked_for.append(ref) or object()
    )
    monkeypatch.setattr(live, "_models", {})
    for ref in ("a", "b", "a", "c", "a", "b"):
        live.loaded(ref, None)
    assert asked_for == ["a", "b", "c", "b"]
    assert len(live._models) == live.MOST_MODELS


def told(parts):
    texts = {arm: "".join(p["text"] for p in parts if p.get("arm") == arm and "text" in p)
             for arm in (live.UNCAPPED, live.CAPPED)}  # fmt: skip
    return texts, {part["arm"]: part["tokens"] for part in parts if "tokens" in part}


def asked(made, floors=None, **more):
    ref, axis, own = made
    settings = {"model": (ref, None), "axis": str(axis), "floors": floors or own, "monitor": 2}
    return list(live.capped(messages=CHAT, **settings, **{**SAMPLING, **more}))


def test_the_uncapped_reply_is_what_the_model_says_by_itself(made, subject):
    texts, tokens = told(asked(made))
    assert texts[live.UNCAPPED] == subject.generate([CHAT], render="chat", **SAMPLING)[0]
    assert texts[live.CAPPED] != texts[live.UNCAPPED]
    assert "".join(tokens[live.UNCAPPED]["text"]) == texts[live.UNCAPPED].strip()


def test_a_floor_that_nothing_reaches_changes_nothing(made):
    texts, tokens = told(asked(made, floors={1: -1e4, 2: -1e4}))
    assert texts[live.UNCAPPED] == texts[live.CAPPED]
    assert {int(table["below"].max()) for table in tokens.values()} == {0}


def test_a_floor_above_everything_engages_everywhere(made):
    _, tokens = told(asked(made, floors={1: 50.0, 2: 50.0}))
    assert set(tokens[live.UNCAPPED]["below"]) == {2}
    assert tokens[live.CAPPED]["below"].min() >= 1  # what block 1 lifted may stay up at block 2
    for table in tokens.values():
        assert set(table["blocks"]) == {2}
        assert list(table["place"][:2]) == ["prompt", "generated"]


def by_hand(subject, axis, floors, acting):
    """Count, at each place, the blocks below the floor by hooks of our own."""
    lines = {at: torch.from_numpy(axis.at(at)[0] / np.linalg.norm(axis.at(at)[0])) for at in floors}
    counts, handles = [], []

    def watch(layer):
        def hook(module, args, output):
            h = output[0] if isinstance(output, tuple) else output
            along = h[0] @ lines[layer]
            counts.append(along < floors[layer])
            if not acting:
                return None
            lift = (floors[layer] - along).clamp(min=0)
            lift[0] = 0
            h = h + (lift[:, None] * lines[layer])[None]
            return (h, *output[1:]) if isinstance(output, tuple) else h

        return subject.blocks[layer].register_forward_hook(hook)

    batch = subject.encode([ANSWERED])
    handles = [watch(layer) for layer in sorted(floors)]
    with torch.no_grad():
        subject.model(batch.input_ids)
    for handle in handles:
        handle.remove()
    first, stop = subject.renderer.render(ANSWERED, render="chat").spans["assistant"][-1]
    return torch.stack(counts).sum(0)[first - 1 : stop].tolist()


@pytest.mark.parametrize("acting", [False, True])
def test_engagement_is_what_the_cap_finds_block_after_block(made, subject, acting):
    _, path, floors = made
    axis = wb.open_directions(path)
    found = live.engagement(subject, axis, floors, ANSWERED, 2, acting)
    expected = by_hand(subject, axis, floors, acting)
    assert list(found["below"]) == expected
    assert 0 < sum(expected) < 3 * len(expected)
    if acting:
        plain = live.engagement(subject, axis, floors, ANSWERED, 2, False)
        assert list(plain["below"]) != expected
        np.testing.assert_array_equal(plain["value"], found["value"])


def test_an_axis_of_another_model_is_refused(made, subject, tmp_path):
    other = persona_runs.space_of(persona_runs.STAMP).axis
    with pytest.raises(MismatchError, match="model_type = llama"):
        live.engagement(subject, other, {1: 0.0}, ANSWERED, 1, False)


def printed(code):
    ast.parse(code)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {})
    return out.getvalue()


def test_the_script_of_two_replies_prints_them_again(made):
    ref, axis, floors = made
    texts, _ = told(asked(made))
    out = printed(scripts.capped_script((ref, None), axis, floors, CHAT, **SAMPLING))
    assert out == "".join(f"{arm}: {text}\n" for arm, text in texts.items())


def test_the_script_of_a_drift_prints_the_turns(made):
    ref, axis, _ = made
    out = printed(scripts.drift_script([(ref, None)], axis, 2, ANSWERED))
    assert "assistant" in out
    assert ref in out


@pytest.mark.parametrize(
    ("share", "words"), [(0.1, "little to act on"), (0.5, None), (0.95, "Choose a lower floor")]
)
def test_a_pair_that_says_little_says_so(share, words):
    from workbench_apps.persona_capped import _warning

    assert (words in _warning(share)) if words else _warning(share) == ""
