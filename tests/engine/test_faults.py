"""Faults that users of such tools reported: the smallest input that shows each class of them.

Numbers are those of the list of faults that the engine is held to; a class that needs more than a
few lines has its own file (chunks, beams and static caches: test_generate; torch.compile:
test_compile; memory: test_memory; cached against uncached on every family: test_families; layer
numbers, number formats, mistakes and batches: test_faults_use).
"""

import threading

import numpy as np
import pytest
import torch

from workbench.engine.cache import fresh_cache
from workbench.engine.forward import pad_left, run
from workbench.engine.hooks import HookRunner
from workbench.errors import MismatchError, WorkbenchError
from workbench.interventions import Intervention
from workbench.types import CandidatesRead, LogitsRead, Read, Request

RUNNER = HookRunner()
SHORT, LONG = (7, 8, 9), (40, 41, 42, 43, 44, 45, 46, 47, 48)
EVERY = [Read(), Read(position="mean"), Read("attn_out"), Read("mlp_out", (), "mean")]
SCORES = (CandidatesRead(((60,), (61, 62)), (2,)), LogitsRead(), Read(position="mean"))
CPU = torch.device("cpu")


def logits_of(subject, ids):
    with torch.no_grad():
        return subject.model(torch.tensor(ids), use_cache=False).logits


def test_fault_01_positions_come_from_the_mask_not_the_column(subject_of, batch_with):
    subject = subject_of("gpt2")
    alone = [RUNNER.capture(subject, batch_with(subject, [ids]), EVERY) for ids in (SHORT, LONG)]
    for rows, side in (((0, 1), "left"), ((0, 1), "right"), ((1, 0), "left")):
        batch = batch_with(subject, [(SHORT, LONG)[row] for row in rows], side)
        batch.input_ids[batch.attention_mask == 0] = 0
        together = RUNNER.capture(subject, batch, EVERY)
        for place, row in enumerate(rows):
            for value, single in zip(together, alone[row], strict=True):
                torch.testing.assert_close(value[:, place], single[:, 0], rtol=0, atol=1e-4)


def test_fault_02_no_aggregate_sees_a_pad(make_subject, batch_with):
    subject = make_subject("qwen3")
    batch = batch_with(subject, [SHORT, LONG])
    values = RUNNER.capture(subject, batch, EVERY)
    batch.input_ids[batch.attention_mask == 0] = 123
    others = RUNNER.capture(subject, batch, EVERY)
    assert all(torch.equal(a, b) for a, b in zip(values, others, strict=True))
    requests = [Request(str(row), "c", ids, SCORES) for row, ids in enumerate((SHORT, LONG))]
    answers = RUNNER.answer(subject, requests).values[0]
    subject.tokenizer.pad_token = subject.tokenizer.convert_ids_to_tokens(123)
    for mine, other in zip(answers, RUNNER.answer(subject, requests).values[0], strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(mine, other, strict=True))


def test_fault_03_a_cache_that_is_passed_holds_the_prompt(any_family, subject_of):
    subject = subject_of(any_family)
    cache = fresh_cache(subject)
    with torch.no_grad():
        run(subject, pad_left([LONG], 0, CPU), cache)
        assert cache.get_seq_length() == len(LONG)
        token = torch.tensor([[50]])
        step = subject.model(token, past_key_values=cache, use_cache=True).logits[0, -1]
    whole = logits_of(subject, [[*LONG, 50]])[0, -1]
    torch.testing.assert_close(step, whole, rtol=0, atol=2e-3)  # linear attention: 1e-3
    assert (step - logits_of(subject, [[50]])[0, -1]).abs().max() > 0.1


def test_fault_04_positions_are_absolute_in_chunks_and_steps(tiny_subject, make_edit):
    ids = torch.tensor([LONG])
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 2}
    plain = tiny_subject.model.generate(ids, **options)
    with RUNNER.intervene(tiny_subject, [(make_edit("add", 2, 20.0, "last"),)]):
        uncached = tiny_subject.model.generate(ids, use_cache=False, **options)
        assert torch.equal(tiny_subject.model.generate(ids, **options), uncached)
        chunks = tiny_subject.model.generate(ids, prefill_chunk_size=2, **options)
    assert torch.equal(chunks, uncached)
    assert not torch.equal(plain, uncached)


def test_fault_05_the_first_new_token_is_steered_and_the_prompt_before_it_is_not(
    tiny_subject, make_edit
):
    ids = torch.tensor([LONG])
    plain = logits_of(tiny_subject, [LONG])[0]
    options = {"max_new_tokens": 1, "output_logits": True, "return_dict_in_generate": True}
    with RUNNER.intervene(tiny_subject, [(make_edit("add", 3, 50.0, "last"),)]):
        whole = logits_of(tiny_subject, [LONG])[0]
        first = tiny_subject.model.generate(ids, pad_token_id=2, **options).logits[0][0]
    assert torch.equal(whole[:-1], plain[:-1])
    assert (whole[-1] - plain[-1]).abs().max() > 1
    torch.testing.assert_close(first, whole[-1])


@pytest.mark.parametrize("container", [tuple, list], ids=["tuple", "list"])
def test_fault_06_an_edit_reaches_every_row_of_blocks_that_return_containers(
    container, make_subject, subject_of, make_edit
):
    plain, subject = subject_of("qwen3"), make_subject("qwen3")

    def opened(h):
        return h[0] if isinstance(h, (tuple, list)) else h

    def boxed(forward):
        return lambda h, *args, **kwargs: container([forward(opened(h), *args, **kwargs), "kept"])

    for block in subject.blocks.values():
        block.forward = boxed(block.forward)
    subject.model.model.norm.register_forward_pre_hook(lambda _m, args: (opened(args[0]),))
    ids = [SHORT, (31, 32, 33)]
    for name in ("add", "ablate"):
        arm = (make_edit(name, 1, 3.0),)
        with RUNNER.intervene(subject, [arm]), RUNNER.intervene(plain, [arm]):
            edited = logits_of(subject, ids)
            torch.testing.assert_close(edited, logits_of(plain, ids))
        assert ((edited - logits_of(plain, ids))[:, -1].abs().amax(-1) > 1e-3).all()


def test_fault_07_a_hook_that_never_fires_is_an_error(make_subject, make_edit):
    subject = make_subject("qwen3")
    subject.blocks[1] = torch.nn.Identity()  # stands nowhere in the model
    with (
        pytest.raises(WorkbenchError, match="touched no token in 1 forwards"),
        RUNNER.intervene(subject, [(make_edit("add", 1, 1000.0), make_edit("add", 2, 1.0))]),
    ):
        logits_of(subject, [LONG])
    with pytest.raises(WorkbenchError, match="never ran as a module"):
        RUNNER.capture(subject, subject.encode(["A B C"]), [Read(layers=(1, 2))])


def test_fault_08_what_is_kept_does_not_alias_what_is_edited_later(tiny_subject, batch_with):
    batch, reads = batch_with(tiny_subject, [SHORT, LONG]), [Read(layers=(1,), position="all")]
    clean = RUNNER.capture(tiny_subject, batch, reads)[0]

    def spoil(_module, _args, output):
        output.add_(100.0)

    handles = [
        tiny_subject.blocks[1].register_forward_hook(spoil),
        tiny_subject.blocks[2].register_forward_pre_hook(lambda _m, args: args[0].add_(100.0)),
    ]
    deeper = [*reads, Read("resid_pre", (3,))]
    kept = RUNNER.capture(tiny_subject, batch, deeper)[0]
    for handle in handles:
        handle.remove()
    for row, (value, was) in enumerate(zip(kept, clean, strict=True)):
        torch.testing.assert_close(value - was, torch.full_like(was, 100.0), msg=f"row {row}")
    again = RUNNER.capture(tiny_subject, batch, reads)[0]
    assert all(torch.equal(a, b) for a, b in zip(clean, again, strict=True))


NORM = {"gpt2": "ln_f", "gpt_neox": "final_layer_norm"}


def test_fault_09_the_last_layer_is_before_the_final_norm(any_family, subject_of, batch_with):
    subject = subject_of(any_family)
    (last,) = RUNNER.capture(subject, batch_with(subject, [LONG]), [Read(layers=(3,))])
    norm = getattr(subject.model.get_decoder(), NORM.get(any_family, "norm"))
    with torch.no_grad():
        lens = subject.model.get_output_embeddings()(norm(last[0]))[0]
        twice = subject.model.get_output_embeddings()(norm(norm(last[0])))[0]
    logits = logits_of(subject, [LONG])[0, -1]
    cap = getattr(subject.model.config.get_text_config(), "final_logit_softcapping", None)
    lens = torch.tanh(lens / cap) * cap if cap else lens
    torch.testing.assert_close(lens, logits, rtol=0, atol=1e-4)
    assert any_family == "gemma2" or (twice - logits).abs().max() > 0.01


def test_fault_14_the_sink_at_position_0_is_left_out_unless_asked_for(
    make_subject, batch_with, make_edit
):
    subject = make_subject("qwen3")
    planted = torch.zeros(32).index_fill_(0, torch.tensor([5]), 5000.0)

    def sink(_module, _args, output):
        first = torch.zeros_like(output)
        first[:, 0] = planted
        return output + first

    subject.blocks[0].register_forward_hook(sink)
    batch = batch_with(subject, [LONG])
    spellings = ("mean", "mean+first", "all")
    reads = [Read(layers=(0,), position=position) for position in spellings]
    mean, with_first, every = RUNNER.capture(subject, batch, reads)
    torch.testing.assert_close(mean[0, 0], every[0][0, 1:].mean(0))
    assert mean.norm() < 20 < 500 < with_first.norm()
    cap = make_edit("cap", 0, 1.0, floor=-0.1, ceiling=0.1)
    with RUNNER.intervene(subject, [(cap,)]):
        (capped,) = RUNNER.capture(subject, batch, reads[2:])
    assert torch.equal(capped[0][0, 0], every[0][0, 0])
    assert not torch.equal(capped[0][0, 1:], every[0][0, 1:])


def test_fault_16_bfloat16_reaches_numpy_from_every_read(make_subject, make_edit):
    subject = make_subject("qwen3")
    subject.model.bfloat16()
    request = Request("a", "c", LONG, (*SCORES, Read(position="all")))
    arms = [(), (make_edit("add", 1, 8.0),), (make_edit("cap", 2, 1.0, floor=0.1, ceiling=0.2),)]
    for (values,) in RUNNER.answer(subject, [request], arms).values:
        assert {value.dtype for value in values} == {np.dtype("float32")}
        assert all(np.isfinite(value).all() for value in values)


def test_fault_18_a_capture_of_every_layer_holds_what_is_read_alone(tiny_subject, batch_with):
    rows = [tuple(range(5, 205))] * 3
    values = RUNNER.capture(tiny_subject, batch_with(tiny_subject, rows), EVERY)
    for value in values:
        assert value.shape == (4, 3, 32)
        assert value.untyped_storage().nbytes() == 4 * 3 * 32 * 4


def test_fault_19_edits_stand_where_their_block_is(
    make_subject, subject_of, make_edit, tmp_path, difference
):
    accelerate = pytest.importorskip("accelerate")
    whole, split = subject_of("llama"), make_subject("llama")
    homes = {"model.embed_tokens": "disk", "model.rotary_emb": "cpu", "model.norm": "cpu"}
    homes |= {f"model.layers.{layer}": "cpu" if layer < 2 else "disk" for layer in range(4)}
    accelerate.dispatch_model(
        split.model, {**homes, "lm_head": "cpu"}, main_device="cpu", offload_dir=tmp_path
    )
    requests = [Request(str(row), "c", ids, SCORES) for row, ids in enumerate((SHORT, LONG))]
    arms = [(), (make_edit("add", 0, 3.0), make_edit("add", 3, -2.0))]
    got, expected = (RUNNER.answer(one, requests, arms).values for one in (split, whole))
    assert difference(got, expected) < 1e-5
    with RUNNER.intervene(split, arms[1:]), RUNNER.intervene(whole, arms[1:]):
        assert RUNNER.generate(split, ["to F"]) == RUNNER.generate(whole, ["to F"])


def test_fault_21_an_adapter_is_steered_as_its_base_merged_or_switched_off(
    make_subject, make_edit, batch_with
):
    subject = make_subject("peft_llama")
    assert list(subject.blocks) == [0, 1, 2, 3]
    batch, reads = batch_with(subject, [LONG]), [Read(layers=(0, 1, 2, 3)), Read("attn_out")]
    edit = make_edit("add", 1, 3.0)

    def edited():
        with RUNNER.intervene(subject, [(edit,)]):
            return RUNNER.capture(subject, batch, reads), logits_of(subject, [LONG])

    on = edited()
    with subject.model.disable_adapter():
        off = edited()
    subject.model.merge_adapter()
    merged = edited()
    subject.model.unmerge_adapter()
    for mine, other in zip((*on[0], on[1]), (*merged[0], merged[1]), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-4)
    assert (on[1] - off[1]).abs().max() > 0.1


def test_fault_23_a_mistake_is_named_where_it_is_made_and_threads_work(
    tiny_subject, subject_of, make_edit, batch_with
):
    wrong = {
        "no block 9": make_edit("add", 9, 1.0),
        "vector of width 16": make_edit("add", 1, 1.0, width=16),
    }
    for message, edit in wrong.items():
        with (
            pytest.raises(WorkbenchError, match=message),
            RUNNER.intervene(tiny_subject, [(edit,)]),
        ):
            pass
    other = subject_of("llama")

    class Bank:
        names, layers, site, position = ("truth",), (1,), "resid_post", "last"
        norms, model = None, other.stamp
        vectors = np.ones((1, 1, 32), np.float32)

    with (
        pytest.raises(MismatchError, match="is used with"),
        RUNNER.intervene(tiny_subject, [Intervention.add(Bank(), layers=[1], dose=1.0)]),
    ):
        pass
    batch, found = batch_with(tiny_subject, [SHORT, LONG]), []

    def work():
        with RUNNER.intervene(tiny_subject, [(make_edit("add", 1, 3.0),)]):
            found.extend(RUNNER.capture(tiny_subject, batch, [Read(layers=(2,))]))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    here = found.pop()
    work()
    assert torch.equal(here, found[0])


def test_fault_24_a_row_is_the_same_alone_and_among_others_and_twice(tiny_subject, make_edit):
    rng = np.random.default_rng(0)
    rows = [tuple(int(i) for i in rng.integers(5, 300, length)) for length in range(1, 13)]
    requests = [Request(str(row), "c", ids, SCORES[:2]) for row, ids in enumerate(rows)]
    arms = [(), (make_edit("add", 1, 3.0, "all+first"),)]
    first, second = (RUNNER.answer(tiny_subject, requests, arms).values for _ in range(2))
    for row, request in enumerate(requests):
        alone = RUNNER.answer(tiny_subject, [request], arms).values
        for arm in range(2):
            for value, twice, single in zip(
                first[arm][row], second[arm][row], alone[arm][0], strict=True
            ):
                assert np.array_equal(value, twice)
                np.testing.assert_allclose(value, single, rtol=0, atol=2e-5)
