"""One thing where several are taken, names where things are taken: done, or refused in words."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import workbench as wb
from workbench.directions import Directions
from workbench.errors import ConfigError, FormatError
from workbench.given import blocks_of, numbers_of, prompts_of, several
from workbench.pipelines.catalogue import describe

CHAT = [{"role": "user", "content": "say A"}]
READOUT = {"name": "perplexity", "texts": {"path": "guard_texts", "first": 2}}


def directions(subject, layers=(1, 2), **info):
    vectors = np.random.default_rng(0).normal(size=(1, len(layers), subject.width))
    return Directions(
        names=("a",), layers=layers, vectors=vectors.astype(np.float32),
        norms=np.ones(len(layers), np.float32), kind="difference", site="resid_post",
        position="last", model=subject.stamp, info=info,
    )  # fmt: skip


class Length:
    """A readout for tests that asks for nothing but one read."""

    name = "length"

    def requests(self, subject):
        return [wb.Request("a", "x", (20, 30, 40), (wb.Read("resid_post", (3,), "last"),))]

    def score(self, requests, answers):
        norm = float(np.linalg.norm(np.asarray(answers[0][0])))
        return [wb.Measurement(self.name, "norm", "a", "x", norm)]


@pytest.mark.parametrize("prompt", ["hello", CHAT, tuple(CHAT)])
def test_one_text_or_chat_is_one_prompt(tiny_subject, prompt):
    settings = {"max_new_tokens": 3}
    alone = tiny_subject.generate(prompt, **settings)
    assert alone == tiny_subject.generate([prompt], **settings)
    assert len(alone) == 1
    pieces = list(tiny_subject.stream(prompt, **settings))
    assert "".join(piece.text for piece in pieces) == alone[0]
    assert pieces == list(wb.stream(tiny_subject, [prompt], **settings))
    batch = tiny_subject.encode(prompt)
    assert batch.input_ids.tolist() == tiny_subject.encode([prompt]).input_ids.tolist()


def test_a_subject_shows_itself_in_one_line(tiny_subject):
    ref = replace(tiny_subject.ref, base="org/Base", adapter="runs/own-s0", dtype="float32")
    assert repr(replace(tiny_subject, ref=ref)) == (
        "Subject(Base+own-s0; qwen3, 4 blocks of width 32; float32 on cpu, adapter runs/own-s0)"
    )
    assert repr(replace(tiny_subject, ref=replace(ref, adapter=None))) == (
        "Subject(Base; qwen3, 4 blocks of width 32; float32 on cpu)"
    )


def test_a_prompt_set_is_its_items():
    assert prompts_of(wb.PromptSet.from_records([{"text": "A"}, {"text": "B"}])) == ["A", "B"]
    assert prompts_of([]) == []
    assert prompts_of(["a", CHAT]) == ["a", CHAT]


def test_one_readout_is_a_list_of_one(tiny_subject):
    for one in (READOUT, Length()):
        alone, listed = wb.measure(tiny_subject, one), wb.measure(tiny_subject, [one])
        assert alone.equals(listed)
    with pytest.raises(wb.UnknownNameError, match=r"unknown readout 'trust_gam'"):
        wb.measure(tiny_subject, "trust_gam")


def test_a_sweep_takes_one_readout_dose_block_and_baseline_and_a_file(tiny_subject, tmp_path):
    own = directions(tiny_subject)
    path = wb.save_directions(own, tmp_path / "a.safetensors")
    baseline = {"name": "asked", "system": "be A"}
    settings = {"controls": 1, "readouts": Length()}
    alone = wb.sweep(tiny_subject, path, doses=0.5, layers=2, baselines=baseline, **settings)
    listed = wb.sweep(
        tiny_subject, own, readouts=[Length()], doses=[0.5], layers=[2], baselines=[baseline],
        controls=1,
    )  # fmt: skip
    assert alone.equals(listed)


def layers_swept(subject, own, **settings):
    found = wb.sweep(subject, own, readouts=Length(), doses=1, controls=0, **settings)
    return list(dict.fromkeys(found["layers"]))


def test_without_layers_a_sweep_edits_what_the_fit_chose(tiny_subject, caplog):
    assert layers_swept(tiny_subject, directions(tiny_subject, layer=2)) == ["2"]
    wide = directions(tiny_subject, (0, 1, 2), layer=1, window=[1, 2])
    assert layers_swept(tiny_subject, wide) == ["1,2"]
    assert layers_swept(tiny_subject, wide.select([0])) == ["0"]
    assert layers_swept(tiny_subject, wide, layers="all") == ["0,1,2"]
    assert layers_swept(tiny_subject, directions(tiny_subject, (3,))) == ["3"]
    assert not caplog.messages
    assert layers_swept(tiny_subject, directions(tiny_subject)) == ["1,2"]
    assert "names no choice of layers, so its 2 blocks are edited together" in caplog.text


def test_a_gap_is_measured_where_a_sweep_edits(tiny_subject):
    prompts = wb.PromptSet.from_records([{"text": text} for text in "ABC"])
    own = directions(tiny_subject, layer=2)
    chosen, at = (
        wb.gap(own, tiny_subject, replace_last(tiny_subject), prompts, force=True, **settings)
        for settings in ({}, {"layers": 2})
    )
    assert chosen == at


def replace_last(subject):
    """The subject with other states, so that a gap has a size."""

    class Shifted(type(subject.runner)):
        def capture(self, model, batch, reads):
            found = super().capture(model, batch, reads)
            return [values + values.new_tensor(range(values.shape[1]))[:, None] for values in found]

    return replace(subject, runner=Shifted())


def test_one_block_or_read_is_captured_fitted_and_edited(tiny_subject, tmp_path):
    rows = [{"text": f"{a} is", "label": n % 2} for n, a in enumerate("ABCD")]
    prompts = wb.PromptSet.from_records(rows)
    acts = wb.capture(tiny_subject, prompts, layers=2)
    assert acts.layers == (2,)
    assert list(wb.capture(tiny_subject, prompts, reads="mean:content")) == [
        "resid_post@mean:content"
    ]
    wb.capture(tiny_subject, prompts, out=tmp_path / "acts")
    stored = wb.fit(tmp_path / "acts", layers=2)
    assert stored.layers == (2,)
    np.testing.assert_allclose(stored.vectors, wb.fit(acts).vectors, atol=1e-6)
    assert wb.fit(str(tmp_path / "acts"), layers="all").layers == (0, 1, 2, 3)
    edit = wb.Intervention.add(stored, layers=2, dose=0.5)
    assert edit.layers == wb.Intervention.add(stored, layers="all").layers == (2,)
    with wb.intervene(tiny_subject, edit):
        alone = tiny_subject.generate("A is", max_new_tokens=2)
    with wb.intervene(tiny_subject, [edit]):
        assert alone == tiny_subject.generate("A is", max_new_tokens=2)


@pytest.mark.parametrize("opened", [wb.open_directions, wb.open_map, wb.load_intervention])
def test_a_file_of_another_kind_is_called_what_it_is(opened, tmp_path):
    path = tmp_path / "statements.jsonl"
    path.write_text('{"text": "A is"}\n' * 9)
    with pytest.raises(
        FormatError, match=r"is a \.jsonl file, .* items are read by wb.read_prompts"
    ):
        opened(path)
    damaged = path.rename(tmp_path / "truth.safetensors")
    with pytest.raises(FormatError, match=r"is damaged or no safetensors file .* again"):
        opened(damaged)


def test_texts_where_names_of_sets_are_taken_are_told_how_to_be_given(tiny_subject):
    with pytest.raises(wb.UnknownNameError, match=r"'hello'.*PromptSet\.from_records\("):
        wb.capture(tiny_subject, ["hello", "there"])


def test_an_edit_says_which_numbers_it_takes():
    told = {name: describe(["edit", name])["parameters"] for name in ("cap", "rescale", "add")}
    assert told["cap"] == (
        "dose, floor = -inf, ceiling = inf, one of the two is needed, keep_norm = false"
    )
    assert told["rescale"] == "dose, factor, keep_norm = false"
    assert (
        told["add"] == describe(["edit", "linear_map"])["parameters"] == ("dose, keep_norm = false")
    )


def test_a_keyword_that_nothing_reads_is_refused(tiny_subject):
    for prompt in ("hello", CHAT):
        with pytest.raises(ConfigError, match=r"max_tokens.*Did you mean 'max_new_tokens'"):
            tiny_subject.generate(prompt, max_tokens=2)
    own = directions(tiny_subject)
    with pytest.raises(ValueError, match=r"add takes no dosee.*Did you mean 'dose'"):
        wb.Intervention.add(own, dosee=2)
    with pytest.raises(ConfigError, match=r"add takes no layer;.*Did you mean 'layers'"):
        wb.sweep(tiny_subject, own, readouts=Length(), doses=1, layer=2)


def test_nothing_to_ask_and_nothing_to_read_are_refused(tiny_subject):
    with pytest.raises(ConfigError, match=r"no readouts; give at least one"):
        wb.measure(tiny_subject, [])
    own = directions(tiny_subject)
    assert own.select(2).layers == (2,)
    assert own.rows(2) == [1]


@pytest.mark.parametrize("layers", [np.array([1, 2]), range(1, 3), (np.int64(1), 2), "all"])
def test_blocks_come_in_any_collection(layers):
    assert blocks_of(layers, (1, 2)) == (1, 2)
    assert blocks_of(np.array([2]), (1, 2)) == blocks_of(np.int32(2), (1, 2)) == (2,)


@pytest.mark.parametrize("layers", ["14", "al", [1.5], ["1"], 1.5])
def test_what_is_no_block_is_refused(layers):
    with pytest.raises(ConfigError, match=r'give block indices such as .* or "all"'):
        blocks_of(layers, (1, 2))


def test_numbers_are_not_read_from_letters():
    assert numbers_of(np.float32(0.5), "doses") == [0.5]
    assert numbers_of(np.arange(2), "doses") == [0, 1]
    for wrong in ("012", ["1"], None, [[1, 2]]):
        with pytest.raises(ConfigError, match="is no number; give doses="):
            numbers_of(wrong, "doses")
    assert several("abc") == ["abc"]


SLIPS = r"""
import sys
sys.path.insert(0, sys.argv[1])
from tiny import tiny_folder
from pathlib import Path
import workbench as wb

subject = wb.load(tiny_folder(Path(sys.argv[2]) / "model"), device="cpu", check=False)
rows = [{"text": f"{a} is", "label": i % 2} for i, a in enumerate("ABCD")]
prompts = wb.PromptSet.from_records(rows)
truth = wb.fit(wb.capture(subject, prompts))
for slip in sys.stdin.read().splitlines():
    try:
        print(repr(eval(slip)))
    except wb.WorkbenchError as error:
        print(f"{type(error).__name__}: {error}")
"""


@pytest.mark.thorough
def test_slips_in_a_session_get_an_error_that_says_what_to_write(tmp_path):
    """Outside of pytest, where no shape check comes before ours."""
    slips = {
        "wb.measure('tinyllama', 'perplexity')": "is a name; load the model first",
        "wb.capture('m', prompts)": "subject = wb.load('m')",
        "wb.intervene('m', [])": "subject = wb.load('m')",
        "wb.gap(truth, ['a', 'b'], subject, prompts)": "subject = wb.load('a')",
        "wb.doctor('m')": "subject = wb.load('m')",
        "wb.sweep('..', truth, readouts='perplexity', doses=1)": "subject = wb.load('..')",
        "wb.stream('m', 'hello')": "subject = wb.load('m')",
        "wb.capture(subject, prompts, position=-1)": "position -1; expected last, all, last:SPAN",
        "wb.capture(subject, prompts, reads=[3])": "read 3; give a wb.Read, or its name",
        "wb.intervene(subject, truth)": "wb.Intervention.add(directions, layers=[14], dose=0.1",
        "wb.Intervention.add('t.safetensors')": "wb.open_directions('t.safetensors')",
        "wb.sweep(subject, truth, readouts='perplexity', doses='12')": "'12' is no number",
        "wb.sweep(subject, truth, readouts='perplexity', doses=None)": "doses = None",
        "wb.sweep(subject, truth, readouts=3, doses=1)": "readout 3; give a name",
        "wb.PromptSet.from_records(['hello'])": "'hello' is no record; give a table",
        "wb.capture(subject, 3)": "prompts = 3; give a prompt set",
    }
    told = subprocess.run(
        [sys.executable, "-c", SLIPS, str(Path(__file__).parent), str(tmp_path)],
        input="\n".join(slips), text=True, capture_output=True, check=True,
    )  # fmt: skip
    lines = told.stdout.splitlines()
    assert len(lines) == len(slips), told.stdout
    for (slip, expected), line in zip(slips.items(), lines, strict=True):
        assert line.startswith("ConfigError: "), (slip, line)
        assert expected in line, (slip, line)
