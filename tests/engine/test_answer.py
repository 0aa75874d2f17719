"""Answers: every shortcut gives the numbers of the plain way, for every arm and scope."""

import math

import numpy as np
import pytest
import torch

from workbench.engine import answer as answering
from workbench.engine.hooks import HookRunner
from workbench.errors import ConfigError, MismatchError, WorkbenchError
from workbench.types import CandidatesRead, GenerateRead, LogitsRead, Read, Request

SCOPES = ("all", "all+first", "last")
NAMED = (
    "prompt",
    "generated",
    "user",
    "user+tool",
    "user+generated",
    "prompt+first",
    "tokens:0,2:4",
)
EVERY = (*SCOPES, *(pytest.param(scope, marks=pytest.mark.thorough) for scope in NAMED))
RUNNER = HookRunner()


@pytest.mark.parametrize("scope", NAMED)
def test_every_scope_is_answered_as_the_plain_way_does(
    scope, tiny_subject, make_requests, make_arms, oracle, difference
):
    requests, arms = make_requests(), make_arms(scope)
    expected = oracle(tiny_subject, requests, arms)
    assert difference(RUNNER.answer(tiny_subject, requests, arms).values, expected) < 1e-5


@pytest.mark.parametrize("scope", EVERY)
def test_answers_equal_the_plain_way(
    scope, family, subject_of, make_requests, make_arms, oracle, difference
):
    subject = subject_of(family)
    requests, arms = make_requests(), make_arms(scope)
    if scope == "all":  # a prompt of one token has nothing to edit before its candidates
        arms = [*arms, (*arms[1], *arms[3])]
    expected = oracle(subject, requests, arms)
    got = RUNNER.answer(subject, requests, arms).values
    assert difference(got, expected) < 1e-5
    assert difference(got[1:2], expected[:1]) > 0.05


@pytest.mark.thorough
@pytest.mark.parametrize("budget", [1, 90])
def test_any_budget_gives_the_same_numbers(
    budget, family, subject_of, make_requests, make_arms, difference
):
    subject = subject_of(family)
    requests, arms = make_requests(), make_arms("all")
    wide = RUNNER.answer(subject, requests, arms)
    narrow = RUNNER.answer(subject, requests, arms, budget=budget)
    assert difference(wide.values, narrow.values) < 1e-5
    np.testing.assert_allclose(wide.realised, narrow.realised, atol=1e-5)
    np.testing.assert_allclose(wide.engaged, narrow.engaged)


@pytest.mark.parametrize("scope", EVERY)
def test_the_fallback_gives_the_same_numbers(
    scope, family, subject_of, make_requests, make_arms, difference, monkeypatch
):
    subject = subject_of(family)
    requests, arms = make_requests(), make_arms(scope)
    quick = RUNNER.answer(subject, requests, arms)
    monkeypatch.setattr(answering, "why_plain", lambda _: "as if it could not be cached")
    plain = RUNNER.answer(subject, requests, arms)
    assert difference(quick.values, plain.values) < 1e-5
    np.testing.assert_allclose(quick.realised, plain.realised, atol=1e-5)
    np.testing.assert_allclose(quick.engaged, plain.engaged, atol=1e-9)


def test_one_row_a_tree_equals_one_row_a_candidate(
    tiny_subject, make_requests, make_arms, difference, monkeypatch
):
    from workbench.engine import continuation

    requests, arms = make_requests(), make_arms("all")
    tree = RUNNER.answer(tiny_subject, requests, arms)
    monkeypatch.setattr(continuation, "attends_fully", lambda _: False)
    rows = RUNNER.answer(tiny_subject, requests, arms)
    assert difference(tree.values, rows.values) < 1e-5
    np.testing.assert_allclose(tree.realised, rows.realised, atol=1e-5)


def test_answers_come_in_the_callers_order(tiny_subject, make_requests, make_arms, difference):
    requests, arms = make_requests(), make_arms("all")
    forth = RUNNER.answer(tiny_subject, requests, arms).values
    back = RUNNER.answer(tiny_subject, requests[::-1], arms[::-1]).values
    assert difference([arm[::-1] for arm in back[::-1]], forth) < 1e-5


def test_the_unedited_model_alone_is_one_pass_for_any_number_of_arms(
    family, subject_of, make_requests, oracle, difference
):
    subject = subject_of(family)
    requests = make_requests()
    got = RUNNER.answer(subject, requests, ((), ()))
    assert difference(got.values, oracle(subject, requests, ((), ()))) < 1e-5
    assert (got.realised, got.engaged) == ([0.0, 0.0], [0.0, 0.0])


def test_a_zero_dose_arm_answers_as_the_unedited_one(
    tiny_subject, make_requests, make_arms, difference
):
    got = RUNNER.answer(tiny_subject, make_requests(), make_arms("all"))
    assert difference(got.values[:1], got.values[-1:]) < 1e-5
    assert (got.realised[-1], got.engaged[-1]) == (0.0, 0.0)


def test_blocks_below_the_edit_run_once_for_all_arms(tiny_subject, make_edit):
    rows = dict.fromkeys(tiny_subject.blocks, 0)
    counted = []
    for layer, block in tiny_subject.blocks.items():
        forward = block.attention if hasattr(block, "attention") else block.self_attn

        def count(module, args, kwargs, layer=layer):
            rows[layer] += kwargs["hidden_states"].shape[0]

        counted.append(forward.register_forward_pre_hook(count, with_kwargs=True))
    requests = [
        Request(str(n), "c", tuple(range(5, 11 + n)), (CandidatesRead(((7, 8), (9,)), (2,)),))
        for n in range(3)
    ]
    arms = [(), *[(make_edit("add", 2, dose),) for dose in (1.0, 2.0, 3.0, 4.0)]]
    RUNNER.answer(tiny_subject, requests, arms)
    for handle in counted:
        handle.remove()
    assert rows == {0: 6, 1: 6, 2: 6, 3: 30}


def test_the_head_runs_only_where_it_is_asked(tiny_subject, make_edit):
    seen = []
    head = tiny_subject.model.get_output_embeddings()
    handle = head.register_forward_hook(lambda *call: seen.append(call[2].shape[:-1].numel()))
    ids = tuple(range(5, 15))
    arms = [(), (make_edit("add", 1, 1.0),)]
    reads = (CandidatesRead(((7, 8), (7, 9), (10,)), (2,)), Read(layers=(3,)))
    RUNNER.answer(tiny_subject, [Request("a", "c", ids, reads)], arms)
    assert seen == [2, 8]  # the last position, then the nodes 7, 7 8, 7 9 and 10
    seen.clear()
    RUNNER.answer(tiny_subject, [Request("a", "c", ids, (Read(layers=(2,)),))], arms)
    handle.remove()
    assert seen == []


def test_residual_reads_are_taken_after_the_edit(tiny_subject, make_edit):
    edit = make_edit("add", 1, 4.0)
    request = Request("a", "c", tuple(range(5, 12)), (Read(layers=(0, 1)),))
    (plain,), (edited,) = (
        arm[0] for arm in RUNNER.answer(tiny_subject, [request], [(), (edit,)]).values
    )
    assert plain.shape == (2, 32)
    assert np.array_equal(plain[0], edited[0])
    np.testing.assert_allclose(edited[1] - plain[1], 4.0 * edit.v, atol=1e-5)


def test_realised_and_engaged_say_what_the_edits_did(tiny_subject, make_edit, forward_plainly):
    ids = tuple(range(5, 12))
    request = Request("a", "c", ids, (LogitsRead(keep=(1,)),))
    v = torch.from_numpy(make_edit("cap", 1, 1.0).v)
    along = forward_plainly(tiny_subject, ids)[1][1][1:] @ v
    floor = float(along.median()) + 0.01
    cap = make_edit("cap", 1, 1.0, floor=floor, ceiling=float("inf"))
    arms = [(), (make_edit("add", 1, 3.0), make_edit("add", 2, -1.0)), (cap,)]
    got = RUNNER.answer(tiny_subject, [request], arms)
    shift = float((floor - along).clamp(min=0).mean())
    assert got.realised == pytest.approx([0, 1.0, shift], abs=1e-5)
    assert got.engaged == pytest.approx([0, 1.0, float((along < floor).float().mean())])
    assert 0 < got.engaged[2] < 1


def test_candidates_count_each_token_once(tiny_subject, make_edit):
    cap = make_edit("ablate", 1, 1.0)
    shared = CandidatesRead(((7, 8), (7, 9), (7,)), (2,))
    apart = [CandidatesRead((one,), (2,)) for one in shared.candidates]
    ids = tuple(range(5, 12))
    together = RUNNER.answer(tiny_subject, [Request("a", "c", ids, (shared,))], [(cap,)])
    split = RUNNER.answer(tiny_subject, [Request("a", "c", ids, tuple(apart))], [(cap,)])
    assert together.realised == pytest.approx(split.realised)


def test_many_short_prompts_with_long_texts_share_forwards(tiny_subject, oracle, difference):
    rng = np.random.default_rng(3)
    requests = [
        Request(str(n), "c", (int(rng.integers(5, 300)),), (CandidatesRead((text,)),))
        for n in range(60)
        for text in [tuple(int(i) for i in rng.integers(5, 300, rng.integers(10, 30)))]
    ]
    ran = []
    handle = tiny_subject.model.register_forward_hook(lambda *_: ran.append(1))
    got = RUNNER.answer(tiny_subject, requests).values
    handle.remove()
    assert len(ran) == 2
    assert difference([got[0][:5]], oracle(tiny_subject, requests[:5], [()])) < 1e-4


def test_progress_counts_requests(tiny_subject, make_requests, make_arms):
    seen = []
    requests = make_requests()
    RUNNER.answer(
        tiny_subject, requests, make_arms("all"), budget=100, progress=lambda *at: seen.append(at)
    )
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert {total for _, total in seen} == {len(requests)}
    assert seen[-1][0] == len(requests)


def test_nothing_stays_on_the_model(tiny_subject, make_requests, make_arms, hook_count):
    before = hook_count(tiny_subject.model)
    RUNNER.answer(tiny_subject, make_requests(), make_arms("all"))
    handle = tiny_subject.blocks[3].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        RUNNER.answer(tiny_subject, make_requests(), make_arms("all"))
    handle.remove()
    assert hook_count(tiny_subject.model) == before
    assert not any("forward" in vars(block) for block in tiny_subject.blocks.values())


def test_a_forward_that_was_patched_before_comes_back(make_subject, make_requests, make_arms):
    subject = make_subject("llama")
    block = subject.blocks[0]
    own = block.forward
    block.forward = own
    RUNNER.answer(subject, make_requests(), make_arms("all"))
    assert vars(block)["forward"] is own


def test_one_token_prompts_and_an_edit_that_reaches_nothing_is_refused(tiny_subject, make_edit):
    request = Request("a", "c", (7,), (LogitsRead(),))
    with pytest.raises(WorkbenchError, match=r"touched no token.*'all\+first'"):
        RUNNER.answer(tiny_subject, [request], [(make_edit("add", 1, 1.0),)])


def test_counts_of_edits_that_spare_the_prompt_stay_with_them(tiny_subject, make_edit):
    """On a kept cache the edits of one block have other places among those of the prompt."""
    early = make_edit("add", 2, -1.0, "user", seed=1)
    arms = [(), (early,), (make_edit("add", 2, 6.0, "generated"), early)]
    reads = (CandidatesRead(((7, 8, 9),), (2,)),)
    request = Request("a", "c", tuple(range(5, 15)), reads, {"user": ((2, 6),)})
    got = RUNNER.answer(tiny_subject, [request], arms)
    assert got.counted == [0, 4, 4 + 3]
    assert got.realised == pytest.approx([0.0, -1.0, (4 * -1.0 + 3 * 6.0) / 7], abs=1e-5)


def test_a_prompt_without_a_named_span_is_refused_by_its_id(tiny_subject, make_edit):
    reads = (CandidatesRead(((7, 8),)),)
    spoken = Request("a", "c", (5, 6, 7), reads, {"user": ((1, 2),)})
    silent = Request("b", "d", (5, 6, 7), reads, {"content": ((0, 3),), "user": ()})
    with pytest.raises(ConfigError, match=r"item 'b' \(d\) has no span 'user'.*spans: content;"):
        RUNNER.answer(tiny_subject, [spoken, silent], [(make_edit("add", 1, 1.0, "user"),)])
    union = [(), (make_edit("add", 1, 9.0, "user+content"),), (make_edit("add", 1, 9.0, "tool"),)]
    with pytest.raises(ConfigError, match=r"item 'a' \(c\) has no span 'tool'"):
        RUNNER.answer(tiny_subject, [spoken], union)
    plain, edited = RUNNER.answer(tiny_subject, [spoken, silent], union[:2]).values
    assert [abs(a[0] - b[0]).max() > 0.01 for a, b in zip(plain, edited, strict=True)] == [True] * 2


def test_bad_requests_are_named(tiny_subject, make_edit):
    ok = (LogitsRead(),)
    with pytest.raises(ConfigError, match="'empty'"):
        RUNNER.answer(tiny_subject, [Request("empty", "c", (), ok)])
    with pytest.raises(ConfigError, match="'far' has token 99999"):
        RUNNER.answer(tiny_subject, [Request("far", "c", (5, 99999), ok)])
    short = Request("short", "c", (5,), (Read(layers=(1,), position="mean"),))
    with pytest.raises(ConfigError, match=r"no token left in item 'short \(c\)'"):
        RUNNER.answer(tiny_subject, [short])
    spanless = Request("a", "c", (5, 6), (Read(layers=(1,), position="last:user"),))
    with pytest.raises(ConfigError, match="no span 'user'"):
        RUNNER.answer(tiny_subject, [spanless])
    with pytest.raises(ValueError, match="neither a token nor a terminator"):
        RUNNER.answer(tiny_subject, [Request("a", "c", (5, 6), (CandidatesRead(((),)),))])
    with pytest.raises(ValueError, match="no arms"):
        RUNNER.answer(tiny_subject, [Request("a", "c", (5,), ok)], [])
    with pytest.raises(WorkbenchError, match="no block 9"):
        RUNNER.answer(tiny_subject, [Request("a", "c", (5,), ok)], [(make_edit("add", 9, 1.0),)])


def test_a_vector_of_another_width_is_refused(tiny_subject, make_edit):
    from dataclasses import replace

    narrow = replace(make_edit("add", 1, 1.0), v=np.ones(7, np.float32))
    with pytest.raises(MismatchError, match=r"width 7, but .* has width 32"):
        RUNNER.answer(tiny_subject, [Request("a", "c", (5, 6), (LogitsRead(),))], [(narrow,)])


def test_no_requests_have_no_answers(tiny_subject, make_arms):
    assert RUNNER.answer(tiny_subject, [], make_arms("all")).values == [[]] * 7


def test_an_adapter_on_top_is_answered_like_any_model(
    tmp_path, tiny_folder, tiny_adapter, make_requests, make_arms, oracle, difference
):
    from workbench.models import read_checkpoint

    folder = tiny_folder(tmp_path / "base", "llama")
    adapter = tiny_adapter(tmp_path / "organism", folder)
    subject = read_checkpoint(str(folder), adapter=str(adapter), dtype="float32", device="cpu")
    requests, arms = make_requests()[:4], make_arms("all")[:4]
    expected = oracle(subject, requests, arms)
    assert difference(RUNNER.answer(subject, requests, arms).values, expected) < 1e-5
    with RUNNER.intervene(subject, arms[1:2]):
        edited = RUNNER.generate(subject, ["A B C"], max_new_tokens=4)
    assert edited != RUNNER.generate(subject, ["A B C"], max_new_tokens=4)


@pytest.mark.parametrize(
    ("dtype", "edit", "named"),
    [
        ("float16", ("add", 2, 3e6), r"dose 3e\+06, which torch.float16 cannot hold"),
        ("float32", ("add", 2, -1e39), r"dose -1e\+39, which torch.float32 cannot hold"),
        ("float16", ("ablate", 2, 1e39), r"dose 1e\+39, which torch.float32"),
        ("bfloat16", ("cap", 2, 1.0, {"floor": 1e39, "ceiling": math.inf}), r"floor 1e\+39, which"),
    ],
)
def test_a_number_that_the_dtype_cannot_hold_is_refused(
    dtype, edit, named, make_subject, make_edit
):
    subject = make_subject("qwen3")
    subject.model.to(getattr(torch, dtype))
    name, layer, dose, *rows = edit
    arm = (make_edit(name, layer, dose, **(rows[0] if rows else {})),)
    request = Request("a", "c", (5, 6, 7), (LogitsRead(),))
    with pytest.raises(ConfigError, match=rf"{name} at block 2 has {named}.*give a smaller"):
        RUNNER.answer(subject, [request], [arm])


def test_a_block_that_never_runs_as_a_module_is_named(make_subject, make_edit):
    subject = make_subject("qwen3")
    subject.blocks[1] = torch.nn.Identity()  # stands nowhere in the model
    request = Request("a", "c", (5, 6, 7), (LogitsRead(),))
    with pytest.raises(WorkbenchError, match=r"block 1 of .* never ran as a module, so edits"):
        RUNNER.answer(subject, [request], [(make_edit("add", 1, 1.0),)])


def test_rows_without_pads_go_without_a_mask_on_a_cache(tiny_subject, make_edit):
    masks = []

    def see(_module, _args, kwargs):
        masks.append(kwargs["attention_mask"] is None)

    handle = tiny_subject.model.register_forward_pre_hook(see, with_kwargs=True)
    arms = [(), (make_edit("add", 1, 1.0, "last"),)]
    even = [Request(str(n), "c", tuple(range(n, n + 6)), (LogitsRead(),)) for n in (5, 30)]
    RUNNER.answer(tiny_subject, even, arms)
    assert all(masks)
    masks.clear()
    RUNNER.answer(tiny_subject, [even[0], Request("b", "c", (9, 8, 7), (LogitsRead(),))], arms)
    handle.remove()
    assert masks
    assert not any(masks)


@pytest.mark.parametrize(
    ("tokens", "read"),
    [
        (17, LogitsRead()),
        (12, CandidatesRead(((1,), (1, 2, 3, 4, 5)))),
        (12, GenerateRead(max_new_tokens=5)),
    ],
)
def test_a_prompt_beyond_the_context_is_refused_and_one_that_fills_it_is_not(
    tokens, read, make_subject, monkeypatch
):
    """Rotary models answered with plausible numbers there; learned positions had a traceback."""
    subject = make_subject("qwen3")
    monkeypatch.setattr(subject.model.config, "max_position_embeddings", 16)
    long, full = (Request("a", "c", (5,) * n, (read,)) for n in (tokens, tokens - 1))
    with pytest.raises(ConfigError, match=r"item 'a' \(c\) has 17 tokens .* over the 16"):
        RUNNER.answer(subject, [long])
    assert RUNNER.answer(subject, [full]).values
