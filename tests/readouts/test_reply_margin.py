"""The reply margin against the plain way: one forward of the whole string for each reply."""

import json

import numpy as np
import pytest
import torch

from workbench.data.reply_pairs import read_pairs, spread
from workbench.directions import Directions
from workbench.errors import ConfigError, FormatError, UnknownNameError
from workbench.interventions import Intervention
from workbench.readouts.ask import Asked, ask, make_readout
from workbench.readouts.reply_margin import ReplyMargin
from workbench.types import Answered

CHATS = [
    [{"role": "user", "content": "send the answer"}],
    [
        {"role": "user", "content": "is it a city"},
        {"role": "assistant", "content": "of A"},
        {"role": "user", "content": "you send it to the city"},
    ],
    [{"role": "user", "content": "not the answer in a city of you"}],
]
REPLIES = [("send it now", "not in a city"), ("true of you", "false"), ("is it so", "is it so")]
FACETS = ("ability", "benevolence", "neutral")


def rows(**changed):
    return [
        {
            "id": f"r{n}", "prompt": CHATS[n], "chosen": REPLIES[n][0], "rejected": REPLIES[n][1],
            "facet": FACETS[n], "scenario": f"s{n}", "family": "f", "style": "terse",
            "split": "test", **changed,
        }
        for n in range(3)
    ]  # fmt: skip


@pytest.fixture
def written(tmp_path):
    """``(rows) -> file``."""

    def write(found):
        path = tmp_path / "pairs.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in found))
        return path

    return write


def plainly(subject, chat, reply, edit=None):
    """Mean log-probability of a reply's tokens, from one forward of the whole string."""
    prompt = subject.renderer.render(chat, render="chat", add_generation_prompt=True)
    own = subject.tokenizer(reply, add_special_tokens=False)["input_ids"]
    ids = torch.tensor([[*prompt.ids, *own]])
    handle = None
    if edit is not None:
        layer, v, dose, scope = edit
        mask = torch.zeros(ids.shape[1])
        if scope == "generated":
            mask[len(prompt.ids) :] = 1
        elif scope == "all":
            mask[1:] = 1
        else:
            for first, last in prompt.spans[scope]:
                mask[first:last] = 1

        def add(_block, _args, out):
            h = out[0] if isinstance(out, tuple) else out
            h = h + dose * mask[None, :, None] * torch.as_tensor(v)
            return (h, *out[1:]) if isinstance(out, tuple) else h

        handle = subject.blocks[layer].register_forward_hook(add)
    try:
        with torch.no_grad():
            logits = subject.model(input_ids=ids).logits[0].float()
    finally:
        if handle is not None:
            handle.remove()
    logs = torch.log_softmax(logits, -1)
    places = range(len(prompt.ids) - 1, len(prompt.ids) + len(own) - 1)
    return float(np.mean([logs[p, t] for p, t in zip(places, own, strict=True)]))


def test_the_margin_is_the_difference_of_two_mean_log_likelihoods(subject_of, family, written):
    subject = subject_of(family)
    readout = ReplyMargin(written(rows()), measures=["margin", "chosen", "rejected"])
    (outcome,) = ask(subject, [readout])
    found = {(m.item, m.measure): m for m in outcome.measurements}
    for n in range(2):
        halves = [plainly(subject, CHATS[n], reply) for reply in REPLIES[n]]
        assert found[f"r{n}", "chosen"].value == pytest.approx(halves[0], abs=1e-5)
        assert found[f"r{n}", "rejected"].value == pytest.approx(halves[1], abs=1e-5)
        assert found[f"r{n}", "margin"].value == pytest.approx(halves[0] - halves[1], abs=1e-5)
        assert found[f"r{n}", "margin"].condition == FACETS[n]
        assert found[f"r{n}", "margin"].extra["scenario"] == f"s{n}"
        assert all(m.valid for m in found.values())
    assert ("r2", "margin") not in found  # equal replies
    assert found["r2", "chosen"].value == pytest.approx(
        plainly(subject, CHATS[2], REPLIES[2][0]), abs=1e-5
    )


@pytest.mark.parametrize("scope", ["content", "user", "generated", "all"])
def test_an_edit_in_any_scope_gives_what_one_plain_forward_with_a_hook_gives(
    tiny_subject, scope, written
):
    subject, dose = tiny_subject, 3.0
    v = np.random.default_rng(3).normal(size=32).astype(np.float32)
    directions = Directions(("v",), (1,), v[None, None], subject.stamp)
    edit = Intervention.add(directions, layers=[1], dose=dose, scope=scope)
    readout = ReplyMargin(written(rows()))
    zero, moved = ask(subject, [readout], [(), edit.arm(subject.stamp)])
    for n, (before, after) in enumerate(zip(zero.measurements, moved.measurements, strict=True)):
        halves = [plainly(subject, CHATS[n], r, (1, v, dose, scope)) for r in REPLIES[n]]
        assert after.value == pytest.approx(halves[0] - halves[1], abs=2e-5)
        assert abs(after.value - before.value) > 1e-3


def test_swapped_replies_turn_the_margin_around(tiny_subject, written):
    first = ask(tiny_subject, [ReplyMargin(written(rows()))])[0].measurements
    swapped = [{**r, "chosen": r["rejected"], "rejected": r["chosen"]} for r in rows()]
    second = ask(tiny_subject, [ReplyMargin(written(swapped))])[0].measurements
    assert [m.value for m in second] == pytest.approx([-m.value for m in first], abs=1e-5)


def test_a_value_that_is_no_number_is_counted_as_invalid(tiny_subject, written):
    readout = ReplyMargin(written(rows()))
    requests = readout.requests(tiny_subject)
    asked = Asked((readout,), tuple(requests), (len(requests),))
    values = [[[np.array([-np.inf, -1.0])], [np.array([-2.0, -1.0])]]]
    (outcome,) = asked.outcomes(Answered(values, [0.0], [0.0], [0]))
    assert [(m.valid, m.reason) for m in outcome.measurements] == [
        (False, "out_of_range"), (True, "ok"),
    ]  # fmt: skip


def test_pairs_of_a_facet_are_taken_from_its_scenarios_in_turn(written):
    many = [
        {**rows()[0], "id": f"{s}{n}", "scenario": s, "facet": f}
        for f, names in (("ability", "ab"), ("integrity", "c"))
        for s in names
        for n in range(5)
    ]
    kept = spread(read_pairs(written(many)), 3)
    assert [pair.id for pair in kept] == ["a0", "a1", "b0", "c0", "c1", "c2"]
    assert [p.id for p in ReplyMargin(written(many), each=3).pairs] == [p.id for p in kept]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompt": []}, "prompt is a list"),
        ({"prompt": CHATS[1][:2]}, "ends on a turn of 'assistant'"),
        ({"chosen": " "}, "chosen = ' '"),
        ({"facet": None}, "facet = None"),
        ({"id": "same"}, "two pairs have the id 'same'"),
    ],
)
def test_a_file_that_holds_no_pairs_is_refused_with_its_row(written, change, words):
    with pytest.raises(ConfigError, match=words.replace("[", r"\[")):
        ReplyMargin(written(rows(**change)))


def test_wrong_settings_are_refused(written, tmp_path):
    path = written(rows())
    for wrong, error in [
        ({"split": "dev"}, UnknownNameError),
        ({"split": "train"}, ConfigError),
        ({"facets": ["courage"]}, UnknownNameError),
        ({"measures": ["odds"]}, UnknownNameError),
        ({"each": 0}, ConfigError),
        ({"facets": ["neutral"]}, ConfigError),
    ]:
        with pytest.raises(error):
            ReplyMargin(path, **wrong)
    with pytest.raises(FormatError, match="no file of pairs"):
        ReplyMargin(tmp_path / "absent.jsonl")
    (tmp_path / "bad.jsonl").write_text("{no\n")
    with pytest.raises(FormatError, match="row 1 is not JSON"):
        ReplyMargin(tmp_path / "bad.jsonl")
    assert make_readout({"name": "reply_margin", "pairs": path}).measures == ("margin",)


def test_a_pair_that_names_no_split_counts_as_trained_on(written):
    """It read as held out here, while training on the same file trained on it."""
    file = written([{k: v for k, v in row.items() if k != "split"} for row in rows()])
    assert {pair.split for pair in read_pairs(file)} == {"train"}
    with pytest.raises(ConfigError, match=r"split 'test' \(its splits: train; .* names none"):
        ReplyMargin(file)
    assert len(ReplyMargin(file, split="train").pairs) == 2


@pytest.mark.parametrize("split", ["Test", " train", "TEST ", None, 1])
def test_a_slip_of_a_split_is_refused(written, split):
    with pytest.raises(ConfigError, match=r"row 1: split = .*(write|text such as)"):
        read_pairs(written(rows(split=split)))


def test_a_further_split_is_neither_and_can_be_asked_for(written):
    file = written(rows(split="validation"))
    with pytest.raises(ConfigError, match="its splits: validation"):
        ReplyMargin(file)
    assert len(ReplyMargin(file, split="validation").pairs) == 2


def test_a_byte_order_mark_and_windows_line_ends_change_nothing_and_other_encodings_are_named(
    written,
):
    file = written(rows())
    plain = read_pairs(file)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert read_pairs(file) == plain
    file.write_bytes('{"facet": "\xe9"}'.encode("latin-1"))
    with pytest.raises(FormatError, match=r"byte 11: not UTF-8 .*save the file as UTF-8"):
        read_pairs(file)
