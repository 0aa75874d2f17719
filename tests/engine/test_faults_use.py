"""More of the faults that users reported: layer numbers, number formats, mistakes, batches."""

import code
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

import workbench as wb
from workbench.engine.doctor import doctor
from workbench.engine.hooks import HookRunner
from workbench.errors import FormatError, MismatchError, WorkbenchError
from workbench.interventions import Intervention
from workbench.types import CandidatesRead, LogitsRead, Read, Request

RUNNER = HookRunner()
IDS = (40, 41, 42, 43, 44, 45, 46, 47, 48)
READS = (LogitsRead(), CandidatesRead(((60,), (61, 62)), (2,)), Read(layers=(0, 3)))


@pytest.fixture
def bank(tiny_subject):
    """Directions whose vectors are those of any array."""

    def make(vectors, layers=(1,)):
        class Bank:
            names, site, position, norms = ("truth",), "resid_post", "last", None
            model = tiny_subject.stamp

        Bank.layers, Bank.vectors = layers, vectors
        return Bank()

    return make


def test_fault_10_the_first_output_that_changes_is_the_edited_blocks(
    any_family, subject_of, batch_with, make_edit
):
    subject = subject_of(any_family)
    batch, reads = batch_with(subject, [IDS]), [Read(), Read("resid_pre")]
    before = RUNNER.capture(subject, batch, reads)
    for layer in subject.blocks:
        with RUNNER.intervene(subject, [(make_edit("add", layer, 3.0),)]):
            after = RUNNER.capture(subject, batch, reads)
        changed = [(a - b).abs().amax((1, 2)) > 0 for a, b in zip(before, after, strict=True)]
        assert changed[0].tolist() == [number >= layer for number in subject.blocks]
        assert changed[1].tolist() == [number > layer for number in subject.blocks]


def test_fault_10_a_negative_layer_is_refused_and_not_counted_from_the_end(
    tiny_subject, batch_with, make_edit
):
    batch, edit = batch_with(tiny_subject, [IDS]), make_edit("add", 1, 1.0)
    with pytest.raises(WorkbenchError, match=r"no block -1 in .*0 to 3"):
        RUNNER.capture(tiny_subject, batch, [Read(layers=(-1,))])
    object.__setattr__(edit, "layer", -1)
    with (
        pytest.raises(WorkbenchError, match=r"no block -1 in .*0 to 3"),
        RUNNER.intervene(tiny_subject, [(edit,)]),
    ):
        pass


def test_fault_15_states_of_float16_are_summed_in_float32(make_subject, batch_with, make_edit):
    subject = make_subject("qwen3")
    subject.model.half()
    subject.blocks[0].register_forward_hook(lambda _m, _a, h: h + torch.tensor(2.2e4).half())
    batch = batch_with(subject, [IDS])
    reads = [Read(layers=(0,), position=text) for text in ("mean+first", "last")]
    mean, last = RUNNER.capture(subject, batch, reads)
    assert (mean.dtype, last.dtype) == (torch.float32, torch.float16)
    assert not torch.isfinite(last.sum())  # the state's own format cannot hold its sum
    assert torch.isfinite(mean).all()
    level = 2.2e4 * 32**0.5
    edit = make_edit("cap", 0, 1.0, floor=-10.0, ceiling=10.0)
    object.__setattr__(edit, "v", np.full(32, 32**-0.5, np.float32))
    request = Request("a", "c", IDS, (Read(layers=(0,)),))
    got = RUNNER.answer(subject, [request], [(), (edit,)])
    assert got.realised[1] == pytest.approx(10 - level, rel=0.01)
    along = [arm[0][0][0] @ edit.v for arm in got.values]
    assert along[0] == pytest.approx(level, rel=0.01)
    assert abs(along[1]) < 60  # one rounding of a state near 2.2e4 before the cap


def test_fault_17_a_store_that_lost_its_end_is_refused_and_mended_by_resuming(
    tiny_subject, tmp_path
):
    records = [{"id": str(n), "text": f"the city of {chr(65 + n)}"} for n in range(12)]
    prompts = wb.PromptSet.from_records(records, text="text")

    def stored(folder):
        return wb.capture(tiny_subject, prompts, layers=[1, 3], out=folder, resume=True)

    whole = np.array(stored(tmp_path / "whole").values)
    stored(tmp_path / "cut")
    (shard,) = (tmp_path / "cut").rglob("shards/*.h5")
    shard.write_bytes(shard.read_bytes()[:-4096])
    with pytest.raises(FormatError, match="truncated or damaged"):
        np.array(wb.open_activations(tmp_path / "cut").values)
    np.testing.assert_array_equal(np.array(stored(tmp_path / "cut").values), whole)


@pytest.mark.parametrize("system", [None, "", "Be true."])
@pytest.mark.parametrize("template", ["chatml", "no_system", "default_system", "thinking"])
def test_fault_20_what_is_read_of_an_answer_are_the_states_of_its_own_tokens(
    template, system, subject_of
):
    subject = subject_of("llama", template=template, bos=template == "no_system")
    said = "Send 7 dollars."
    chat = [{"role": "user", "content": "Is it?"}, {"role": "assistant", "content": said}]
    rendered = subject.renderer.render(chat, system=system)
    ((first, last),) = rendered.spans["assistant"]
    assert subject.tokenizer.decode(rendered.ids[first:last]) == said
    reads = [Read(layers=(2,), position=text) for text in ("mean:assistant", "all")]
    mean, every = RUNNER.capture(subject, subject.encode([chat], system=system), reads)
    torch.testing.assert_close(mean[0, 0], every[0][0, first:last].mean(0))
    asked = subject.renderer.render(chat[:1], system=system).ids
    assert rendered.ids[: len(asked)] == asked
    assert len(asked) == first


@pytest.mark.thorough
def test_fault_21_what_merging_changes_in_bfloat16_is_reported_and_no_failure(make_subject):
    subject = make_subject("peft_llama")
    exact = {check.name: check for check in doctor(subject).checks}["merge"]
    subject.model.bfloat16()
    report = doctor(subject)
    rounded = {check.name: check for check in report.checks}["merge"]
    assert report.ok, report.text()
    assert exact.value < exact.limit
    assert rounded.limit is None
    assert rounded.value > 10 * exact.value
    assert "merged differs by rounding" in report.text()


@pytest.mark.parametrize(
    ("v", "named"),
    [
        (np.ones(32, np.int64), r"vector of int64, expected an array of float32"),
        (np.ones(32, np.complex64), r"vector of complex64, expected"),
        (torch.ones(32).bfloat16(), r"vector of torch.bfloat16, expected .*float\(\).numpy"),
        ([1.0] * 32, r"vector of list, expected"),
        (np.full(32, np.nan, np.float32), r"vector with 32 values that are not finite"),
    ],
    ids=["integers", "complex", "tensor", "list", "nan"],
)
def test_fault_23_a_vector_of_the_wrong_kind_is_named(v, named, tiny_subject, make_edit):
    edit = make_edit("add", 1, 1.0)
    object.__setattr__(edit, "v", v)
    with (
        pytest.raises(MismatchError, match=rf"an edit of block 1 has a {named}") as error,
        RUNNER.intervene(tiny_subject, [(edit,)]),
    ):
        pass
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_fault_23_directions_of_another_float_format_mean_the_same(
    dtype, tiny_subject, batch_with, bank
):
    batch = batch_with(tiny_subject, [IDS])
    wide = np.eye(32, dtype=np.float32)[None, :1]
    found = []
    for vectors in (wide, wide.astype(dtype)):
        with RUNNER.intervene(tiny_subject, [Intervention.add(bank(vectors), dose=2.0)]):
            found += RUNNER.capture(tiny_subject, batch, [Read(layers=(3,))])
    assert torch.equal(*found)


def test_fault_23_one_line_and_a_cell_of_a_notebook_work(tiny_subject, batch_with, make_edit):
    batch, arm = batch_with(tiny_subject, [IDS]), (make_edit("add", 1, 3.0),)
    given = {"run": RUNNER, "subject": tiny_subject, "batch": batch, "arm": arm, "Read": Read}
    console = code.InteractiveInterpreter(dict(given))
    console.runsource(
        "with run.intervene(subject, [arm]): x = run.capture(subject, batch, [Read()])\n"
    )
    exec(  # a cell: its source is in no file
        "with run.intervene(subject, [arm]) as log:\n"
        "    y = run.capture(subject, batch, [Read()])\n"
        "n = log.rows[0].n\n",
        given,
    )
    assert torch.equal(console.locals["x"][0], given["y"][0])
    assert given["n"] == len(IDS) - 1


@pytest.mark.thorough
def test_fault_23_work_pickled_for_another_process_gives_the_same_answers(
    tiny_subject, make_edit, tmp_path
):
    arms = [(), (make_edit("add", 1, 3.0), make_edit("cap", 2, 1.0, floor=0.1, ceiling=0.2))]
    requests = [Request("a", "c", IDS, READS), Request("b", "c", IDS[:4], READS)]
    here = RUNNER.answer(tiny_subject, requests, arms)
    work = tmp_path / "work.pickle"
    work.write_bytes(pickle.dumps((RUNNER, tiny_subject.ref.base, requests, arms)))
    line = (
        "import pickle, pathlib, sys; from workbench.models import read_checkpoint; "
        "file = pathlib.Path(sys.argv[1]); "
        "runner, base, requests, arms = pickle.loads(file.read_bytes()); "
        "subject = read_checkpoint(base, dtype='float32', device='cpu'); "
        "answered = runner.answer(subject, requests, arms); "
        "file.write_bytes(pickle.dumps(answered))"
    )
    subprocess.run([sys.executable, "-c", line, str(work)], check=True, capture_output=True)
    there = pickle.loads(work.read_bytes())
    for mine, other in zip(here.values, there.values, strict=True):
        for reads, others in zip(mine, other, strict=True):
            for value, same in zip(reads, others, strict=True):
                np.testing.assert_allclose(value, same, rtol=0, atol=1e-6)
    assert there.realised == pytest.approx(here.realised, abs=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_fault_24_a_row_alone_and_among_eight_differ_by_what_is_reported(dtype, make_subject):
    subject = make_subject("qwen3")
    subject.model.to(getattr(torch, dtype))
    report = doctor(subject)
    batch = {check.name: check for check in report.checks}["batch"]
    with torch.no_grad():
        ids = torch.tensor([subject.renderer.render("Seven birds sat on the old wall").ids])
        one = subject.model(ids, use_cache=False).logits.float()
        eight = subject.model(ids.repeat(8, 1), use_cache=False).logits.float()
    apart = float((eight - one).abs().max() / one.std())
    assert batch.passed
    assert batch.value <= batch.limit
    assert apart <= batch.limit
    assert "alone = one row of 8" in batch.detail
