"""Streams and beams: the same text as plain generation, edited as each row's arm says."""

import itertools
from dataclasses import replace

import pytest
import torch

import workbench as wb
from workbench.engine.hooks import HookRunner
from workbench.engine.stream import Row, stream
from workbench.errors import ConfigError, WorkbenchError

RUNNER = HookRunner()
TEXTS = ["A B C", "the city of the D is not in the E and you send it", "to F"]
SCOPES = ("all", "last", "generated", "prompt", "content+generated")


def joined(pieces):
    """The text of each (prompt, arm); a row's last piece alone says that it is done."""
    texts, done = {}, set()
    for piece in pieces:
        key = (piece.prompt, piece.arm)
        assert key not in done
        texts[key] = texts.get(key, "") + piece.text
        if piece.done:
            done.add(key)
    assert done == set(texts)
    return texts


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_stream_joined_is_what_generate_gives(scope, temperature, tiny_subject, make_edit):
    edits = [make_edit("add", 1, 5.0, scope), make_edit("add", 2, -4.0, scope)]
    options = {"max_new_tokens": 8, "temperature": temperature, "seed": 3}
    texts = joined(wb.stream(tiny_subject, TEXTS, edits, **options))
    plain = RUNNER.generate(tiny_subject, TEXTS, **options)
    with RUNNER.intervene(tiny_subject, [tuple(edits)]):
        steered = RUNNER.generate(tiny_subject, TEXTS, **options)
    assert [texts[prompt, "baseline"] for prompt in range(3)] == plain
    assert [texts[prompt, "steered"] for prompt in range(3)] == steered
    assert plain != steered


@pytest.mark.thorough
@pytest.mark.parametrize("scope", SCOPES)
def test_a_stream_joined_is_what_generate_gives_in_every_family(
    scope, any_family, subject_of, make_edit
):
    subject = subject_of(any_family)
    edits = [make_edit("add", 1, 5.0, scope), make_edit("add", 2, -4.0, scope)]
    texts = joined(subject.stream(TEXTS, interventions=edits, max_new_tokens=6))
    with RUNNER.intervene(subject, [tuple(edits)]):
        steered = subject.generate(TEXTS, max_new_tokens=6)
        inside = joined(subject.stream(TEXTS, max_new_tokens=6))
    assert [texts[prompt, "steered"] for prompt in range(3)] == steered
    assert [inside[prompt, "baseline"] for prompt in range(3)] == steered
    plain = subject.generate(TEXTS, max_new_tokens=6)
    assert [texts[prompt, "baseline"] for prompt in range(3)] == plain


def test_named_arms_stand_side_by_side(tiny_subject, make_edit):
    arms = {"up": [make_edit("add", 1, 5.0)], "down": [make_edit("add", 1, -5.0)], "none": []}
    pieces = list(stream(tiny_subject, TEXTS[:2], arms, max_new_tokens=5))
    assert {(piece.prompt, piece.arm) for piece in pieces} == set(itertools.product((0, 1), arms))
    texts = joined(pieces)
    for name, own in arms.items():
        alone = joined(stream(tiny_subject, TEXTS[:2], {name: own}, max_new_tokens=5))
        assert {key: texts[key] for key in alone} == alone


def test_the_model_is_free_between_pieces(tiny_subject, make_edit, hook_count):
    ids, before = torch.tensor([[5, 6, 7]]), hook_count(tiny_subject.model)
    plain = tiny_subject.model(ids).logits
    pieces = stream(tiny_subject, TEXTS, [make_edit("add", 1, 5.0)], max_new_tokens=4)
    for _ in pieces:
        assert hook_count(tiny_subject.model) == before
        assert torch.equal(tiny_subject.model(ids).logits, plain)
    assert "generate" not in vars(tiny_subject.model)
    started = stream(tiny_subject, TEXTS, [make_edit("add", 1, 5.0)], max_new_tokens=4)
    next(started)
    started.close()
    assert hook_count(tiny_subject.model) == before


def test_nothing_stays_where_a_step_fails(tiny_subject, make_edit, hook_count):
    before = hook_count(tiny_subject.model)
    pieces = stream(tiny_subject, TEXTS, [make_edit("add", 1, 5.0)], max_new_tokens=4)
    handle = tiny_subject.blocks[2].register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(pieces)
    handle.remove()
    assert hook_count(tiny_subject.model) == before


def test_wrong_streams_are_refused_before_anything_runs(tiny_subject, make_edit):
    with pytest.raises(ConfigError, match=r"prompt 0 has no span 'user'"):
        stream(tiny_subject, TEXTS, [make_edit("add", 1, 5.0, "user")])
    with pytest.raises(ValueError, match="no interventions to stream"):
        stream(tiny_subject, TEXTS, [])
    with pytest.raises(ValueError, match="max_new_tokens 0"):
        stream(tiny_subject, TEXTS, max_new_tokens=0)
    with pytest.raises(WorkbenchError, match="touched no token"):
        list(stream(tiny_subject, ["A"], [make_edit("add", 1, 5.0, "generated")], max_new_tokens=1))
    assert list(stream(tiny_subject, [])) == []


class Letters:
    """A tokenizer of bytes, which may drop a space before a comma as cleaning up does."""

    eos_token_id = 0

    def __init__(self, cleans):
        self.clean_up_tokenization_spaces = cleans

    def decode(self, tokens, **_):
        text = bytes(tokens).decode(errors="replace")
        return text.replace(" ,", ",") if self.clean_up_tokenization_spaces else text


@pytest.mark.parametrize("cleans", [False, True])
def test_a_piece_is_never_taken_back(cleans, tiny_subject):
    text = "né a , b"
    row = Row(replace(tiny_subject, tokenizer=Letters(cleans), model=None), 0, "x")
    pieces = [row.take(token, last=False) for token in text.encode()] + [row.take(0, last=False)]
    assert "".join(pieces) == (text.replace(" ,", ",") if cleans else text)
    assert row.ended
    assert len([piece for piece in pieces if piece]) > 2


BEAMS = {"max_new_tokens": 6, "num_beams": 3, "pad_token_id": 2}


@pytest.mark.parametrize("scope", [None, *SCOPES])
def test_beams_are_transformers_own_with_the_same_edits(scope, tiny_subject, make_edit):
    check_beams(tiny_subject, scope, make_edit)


@pytest.mark.thorough
@pytest.mark.parametrize("scope", SCOPES)
def test_beams_are_transformers_own_in_every_family(scope, family, subject_of, make_edit):
    check_beams(subject_of(family), scope, make_edit)


def check_beams(subject, scope, make_edit):
    """Against generate of each unpadded row under plain hooks, written again, without a cache."""
    edit = None if scope is None else make_edit("add", 1, 5.0, scope)
    arms = [()] if edit is None else [(), (edit,)]
    with RUNNER.intervene(subject, arms):
        got = subject.generate([t for t in TEXTS for _ in arms], max_new_tokens=6, num_beams=3)
    different = 0
    for number, text in enumerate(TEXTS):
        row = subject.renderer.render(text)
        for arm, own in enumerate(arms):
            expected = plain_beams(subject, row, own)
            assert got[len(arms) * number + arm] == expected
        different += got[len(arms) * number] != got[len(arms) * number + len(arms) - 1]
    assert different or edit is None


def plain_beams(subject, row, arm):
    start, stop = row.spans["content"][0]
    n = len(row.ids)
    handles = []
    for edit in arm:

        def hook(_module, _args, output, edit=edit):
            h = output if torch.is_tensor(output) else output[0]
            place = torch.arange(h.shape[1])
            later = place > 0
            here = {
                "all": later,
                "last": place >= n - 1,
                "generated": place >= n,
                "prompt": later & (place < n),
                "content+generated": (later & (place >= start) & (place < stop)) | (place >= n),
            }[edit.scope]
            new = h + here[None, :, None] * edit.dose * torch.from_numpy(edit.v)
            return new if torch.is_tensor(output) else (new, *output[1:])

        handles.append(subject.blocks[edit.layer].register_forward_hook(hook))
    with torch.no_grad():
        tokens = subject.model.generate(
            torch.tensor([row.ids]), do_sample=False, use_cache=False, **BEAMS
        )[0, n:].tolist()
    for handle in handles:
        handle.remove()
    tokens = tokens[: tokens.index(2)] if 2 in tokens else tokens
    return subject.tokenizer.decode(tokens, skip_special_tokens=True)


def test_beams_that_sample_are_refused(tiny_subject):
    with pytest.raises(ValueError, match=r"num_beams 2 with temperature 0\.5"):
        tiny_subject.generate(TEXTS, num_beams=2, temperature=0.5)
    with pytest.raises(ValueError, match="num_beams 0"):
        tiny_subject.generate(TEXTS, num_beams=0)
