"""Shortcuts of answers, alone and together, against one full forward for each prompt and arm."""

import itertools
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch

from workbench.engine import answer as answering
from workbench.engine.answer import plan_for
from workbench.engine.hooks import HookRunner
from workbench.engine.plan import SHORTCUTS
from workbench.types import CandidatesRead, LogitsRead, Read, Request

pytestmark = pytest.mark.thorough

PREFIX = tuple(range(40, 62))
OTHER = tuple(range(90, 130))


def prompts_that_share():
    """Two beginnings, one twice the window of a sliding family; lone and one-token prompts too."""
    rng = np.random.default_rng(5)
    amounts = CandidatesRead(((60,), (61,), (60, 70), (62, 63, 64)), (12, 2))
    reads = [
        (amounts, LogitsRead(keep=(7, 300))),
        (LogitsRead(), Read(layers=(0, 1, 3), position="last")),
        (Read(layers=(3, 0, 1), position="mean"), Read(layers=(2,), position="last")),
        (Read(layers=(1, 2), position="all"), Read(layers=(3,), position="last:body"), amounts),
        (Read(layers=(0,), position="mean"),),
    ]
    rests = [PREFIX + tuple(int(i) for i in rng.integers(5, 300, n)) for n in (9, 1, 4, 9, 6)]
    rests += [PREFIX, (*PREFIX, 7)]  # one is a beginning of all the others
    rests += [OTHER + tuple(int(i) for i in rng.integers(5, 300, n)) for n in (3, 5, 3)]
    rests += [tuple(int(i) for i in rng.integers(5, 300, n)) for n in (11, 1, 30)]
    return [
        Request(f"item{n}", "c", ids, own, spans_that_differ(n, len(ids)))
        for n, (ids, own) in enumerate(zip(rests, itertools.cycle(reads), strict=False))
        if len(ids) > 1 or own is reads[1]
    ]


def spans_that_differ(n, length):
    """Prompts of equal beginnings whose parts there are other ones: they may not share them all."""
    user = ((0, 1), (3, 9)) if n % 3 else ((0, 1), (3, 9), (12, 15))
    tool = {} if n % 2 else {"tool": ((length - 1, length),)}
    return {"body": ((min(1, length - 1), length),), "user": user, **tool}


@pytest.fixture
def mixed_arms(make_edit):
    """Unedited arms, and edits of all tokens, of the last ones, and of both."""
    early = make_edit("add", 1, 2.0, "all")
    return [
        (),
        (make_edit("add", 1, 3.0, "last"),),
        (early,),
        (make_edit("ablate", 2, 1.0, "last"), early, make_edit("add", 3, -2.0, "last")),
        (make_edit("cap", 2, 1.0, "all", floor=0.4, ceiling=float("inf")),),
        (make_edit("add", 2, 0.0, "last"),),
    ]


@pytest.fixture(scope="module")
def kept():
    """What several tests compare with, by family and name."""
    return {}


@pytest.fixture
def plainly(family, subject_of, mixed_arms, kept):
    """The answers without any shortcut."""
    if (family, "plain") not in kept:
        runner = HookRunner(shortcuts=frozenset())
        kept[family, "plain"] = runner.answer(subject_of(family), prompts_that_share(), mixed_arms)
    return kept[family, "plain"]


def agree(got, other):
    np.testing.assert_allclose(got.realised, other.realised, atol=1e-5)
    np.testing.assert_allclose(got.engaged, other.engaged, atol=1e-9)


@pytest.mark.parametrize("off", [None, *sorted(SHORTCUTS), "all of them"])
def test_each_shortcut_gives_the_numbers_of_the_plain_way(
    off, family, subject_of, mixed_arms, oracle, difference, kept, plainly
):
    subject, requests = subject_of(family), prompts_that_share()
    if family not in kept:
        kept[family] = oracle(subject, requests, mixed_arms)
    on = SHORTCUTS if off is None else SHORTCUTS - {off} if off in SHORTCUTS else frozenset()
    got = HookRunner(shortcuts=on).answer(subject, requests, mixed_arms)
    assert difference(got.values, kept[family]) < 2e-5
    agree(got, plainly)


def test_shortcuts_change_no_number_of_any_family(any_family, subject_of, mixed_arms, difference):
    subject, requests = subject_of(any_family), prompts_that_share()[:8]
    quick = HookRunner().answer(subject, requests, mixed_arms)
    plain = HookRunner(shortcuts=frozenset()).answer(subject, requests, mixed_arms)
    assert difference(quick.values, plain.values) < 2e-5
    agree(quick, plain)
    reasons = plan_for(subject, requests, mixed_arms).reasons
    assert ("prefix" in reasons) == any_family.startswith(("qwen3_next", "qwen3_5"))


@pytest.mark.parametrize("budget", [25, 300])
def test_any_budget_gives_the_same_numbers(
    budget, family, subject_of, mixed_arms, difference, plainly
):
    narrow = HookRunner().answer(
        subject_of(family), prompts_that_share(), mixed_arms, budget=budget
    )
    assert difference(plainly.values, narrow.values) < 2e-5
    agree(narrow, plainly)


@pytest.mark.parametrize("scope", ["all", "all+first", "last"])
def test_shared_beginnings_under_arms_of_one_scope(
    scope, family, subject_of, make_arms, oracle, difference
):
    subject, requests = subject_of(family), prompts_that_share()[:8]
    arms = make_arms(scope)[:4]
    got = HookRunner().answer(subject, requests, arms)
    assert difference(got.values, oracle(subject, requests, arms)) < 2e-5


NAMED = ("generated", "prompt", "user", "tool+user", "user+generated", "user+last", "tokens:0,5:14")


@pytest.mark.parametrize("off", [frozenset(), frozenset({"prefix"}), SHORTCUTS])
@pytest.mark.parametrize("scope", NAMED)
def test_shortcuts_under_scopes_that_name_parts_of_prompts(
    scope, off, family, subject_of, make_arms, make_edit, oracle, difference, kept
):
    subject, requests = subject_of(family), prompts_that_share()
    arms = [*make_arms(scope)[:4], (make_edit("add", 1, 2.0, "last"),)]
    if (family, scope) not in kept:
        kept[family, scope] = oracle(subject, requests, arms)
    got = HookRunner(shortcuts=SHORTCUTS - off).answer(subject, requests, arms)
    assert difference(got.values, kept[family, scope]) < 2e-5


def test_only_prompts_with_the_same_parts_share_a_beginning(tiny_subject, make_edit):
    requests = prompts_that_share()
    for scope, together in (("all", True), ("user", False), ("tool+span:body", True)):
        arms = [(), (make_edit("add", 1, 1.0, scope),)]
        units = plan_for(tiny_subject, requests, arms).units
        marks = [
            {requests[number].spans["user"][2:] for number in numbers}
            for unit in units
            for numbers in members_of(unit)
        ]
        assert any(len(kinds) == 2 for kinds in marks) == together


def members_of(unit):
    """The requests that share each of a unit's prefixes."""
    found = {}
    for batch in unit.batches:
        for number, place in zip(batch.numbers, batch.prefixes, strict=False):
            found.setdefault(place, []).append(number)
    return found.values()


def test_generated_keeps_the_prompts_cache(tiny_subject, make_edit, rows_of_blocks):
    """One prompt pass for all doses; what is not about the last token runs for each."""
    reads = (CandidatesRead(((7, 8),), ()),)
    spans = {"user": ((2, 6),)}
    requests = [Request(str(n), "c", tuple(range(n, n + 12)), reads, spans) for n in (5, 50)]
    for scope, cost in (("generated", 22 + 8 + 8), ("last", 22 + 8 + 8), ("user", 96 + 8)):
        arms = [(), *[(make_edit("add", 1, dose, scope),) for dose in (1.0, 2.0, 3.0)]]
        seen = rows_of_blocks(partial(HookRunner().answer, tiny_subject, requests, arms))
        assert seen == [24 + 2, 24 + 2, cost, cost]


def test_the_unedited_model_shares_beginnings(family, subject_of, oracle, difference):
    subject, requests = subject_of(family), prompts_that_share()
    got = HookRunner().answer(subject, requests)
    assert difference(got.values, oracle(subject, requests, [()])) < 2e-5


@pytest.mark.parametrize("position", ["mean:body[3:25]", "mean+first", "offset:3", "offset:-2"])
def test_pools_put_together_from_stages_equal_pools_of_whole_prompts(
    position, tiny_subject, mixed_arms, difference
):
    reads = (Read(layers=(0, 1, 3), position=position), LogitsRead(keep=(5,)))
    requests = [
        Request(str(n), "c", (*PREFIX, *range(n, n + 5)), reads, {"body": ((1, 9), (11, 27))})
        for n in (70, 80, 90)
    ]
    quick = HookRunner().answer(tiny_subject, requests, mixed_arms)
    plain = HookRunner(shortcuts=frozenset()).answer(tiny_subject, requests, mixed_arms)
    assert difference(quick.values, plain.values) < 2e-5


SITED = [
    Read("resid_pre", (0, 1, 2, 3)),
    Read("attn_out", (0, 1, 2), "mean"),
    Read("mlp_out", (1, 2, 3)),
    Read("resid_pre", (1, 2), "all"),
    Read("attn_out", (1,)),
]


def captured_one_by_one(subject, requests, arms, batch_with):
    """The same reads by captures inside an intervention, one prompt and arm at a time."""
    runner = HookRunner()

    def one(request, arm):
        with runner.intervene(subject, [arm]) if arm else nullcontext():
            values = runner.capture(  # down to the last block, so that every edit acts
                subject, batch_with(subject, [request.ids]), [*request.reads, Read()]
            )
        return [(v[0] if isinstance(v, list) else v[:, 0]).numpy() for v in values[:-1]]

    return [[one(request, arm) for request in requests] for arm in arms]


def sited_requests():
    ids = [(*PREFIX, *range(n, n + 4)) for n in (70, 80, 90)] + [tuple(range(120, 131))]
    whole = [Request(str(n), "c", row, tuple(SITED)) for n, row in enumerate(ids)]
    return [*whole, Request("low", "c", ids[0], (SITED[-1],))]  # needs no block after the fork


def test_every_site_is_read_under_every_shortcut(
    family, subject_of, mixed_arms, difference, batch_with
):
    subject, requests = subject_of(family), sited_requests()
    arms = [arm for arm in mixed_arms if not any(edit.scope == "last" for edit in arm)]
    expected = captured_one_by_one(subject, requests, arms, batch_with)
    for off in (set(), {"trunk"}, {"prefix"}, {"stop"}, set(SHORTCUTS)):
        got = HookRunner(shortcuts=SHORTCUTS - off).answer(subject, requests, arms)
        assert difference(got.values, expected) < 2e-5


def test_sites_of_any_family_are_those_of_the_plain_way(
    any_family, subject_of, mixed_arms, difference
):
    subject, requests = subject_of(any_family), sited_requests()
    quick = HookRunner().answer(subject, requests, mixed_arms)
    plain = HookRunner(shortcuts=frozenset()).answer(subject, requests, mixed_arms)
    assert difference(quick.values, plain.values) < 2e-5


@pytest.fixture
def rows_of_blocks(tiny_subject):
    """Tokens that each block's attention saw, while a function ran."""

    def count(act):
        seen = dict.fromkeys(tiny_subject.blocks, 0)
        handles = []
        for layer, block in tiny_subject.blocks.items():

            def add(module, args, kwargs, layer=layer):
                seen[layer] += kwargs["hidden_states"].shape[:2].numel()

            handles.append(block.self_attn.register_forward_pre_hook(add, with_kwargs=True))
        act()
        for handle in handles:
            handle.remove()
        return list(seen.values())

    return count


def test_a_last_token_edit_costs_one_token_an_arm(tiny_subject, make_edit, rows_of_blocks):
    requests = [Request(str(n), "c", tuple(range(n, n + 12)), (LogitsRead(),)) for n in (5, 50)]
    arms = [(), *[(make_edit("add", 1, dose, "last"),) for dose in (1.0, 2.0, 3.0)]]
    seen = rows_of_blocks(lambda: HookRunner().answer(tiny_subject, requests, arms))
    assert seen == [24, 24, 22 + 8, 22 + 8]


def test_a_shared_beginning_runs_once_an_arm(tiny_subject, make_edit, rows_of_blocks):
    requests = [Request(str(n), "c", (*PREFIX, n, n + 1), (LogitsRead(),)) for n in range(70, 76)]
    arms = [(), *[(make_edit("add", 1, dose),) for dose in (1.0, 2.0)]]
    seen = rows_of_blocks(lambda: HookRunner().answer(tiny_subject, requests, arms))
    once = len(PREFIX) + 12
    assert seen == [once, once, 3 * once, 3 * once]


def test_the_work_of_a_plan_is_what_runs(tiny_subject, make_edit, rows_of_blocks):
    ids = tuple(range(5, 15))
    reads = (CandidatesRead(((7, 8), (7, 9), (9, 8)), (2,)), Read(layers=(3,)))
    requests = [Request(str(n), "c", (*PREFIX, *ids, n), reads) for n in range(70, 74)]
    for scope in ("all", "last"):
        arms = [(), *[(make_edit("add", 1, dose, scope),) for dose in (1.0, 2.0)]]
        plan = plan_for(tiny_subject, requests, arms)
        seen = rows_of_blocks(partial(HookRunner().answer, tiny_subject, requests, arms))
        assert plan.work == sum(seen)
    plan = plan_for(tiny_subject, requests, arms, shortcuts=frozenset())
    off = HookRunner(shortcuts=frozenset())
    assert rows_of_blocks(lambda: off.answer(tiny_subject, requests, arms)) == [plan.work / 4] * 4
    assert plan.work == plan.plain_work


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_hook_of_the_users_own_acts_once(layer, make_subject, mixed_arms, difference):
    subject, requests = make_subject("qwen3"), prompts_that_share()[:6]
    before = HookRunner().answer(subject, requests, mixed_arms)
    subject.blocks[layer].register_forward_hook(lambda _m, _a, h: 1.5 * h + 0.3)
    quick = HookRunner().answer(subject, requests, mixed_arms)
    plain = HookRunner(shortcuts=frozenset()).answer(subject, requests, mixed_arms)
    assert difference(quick.values, plain.values) < 5e-5
    assert difference(quick.values, before.values) > 0.1


def test_no_block_runs_after_the_deepest_read(tiny_subject, make_edit, rows_of_blocks):
    request = Request("a", "c", tuple(range(5, 15)), (Read(layers=(0, 1), position="mean"),))
    above = [(), (make_edit("add", 2, 1.0),)]
    seen = rows_of_blocks(lambda: HookRunner().answer(tiny_subject, [request], above))
    assert seen == [10, 10, 0, 0]
    late = HookRunner(shortcuts=SHORTCUTS - {"stop"})
    assert rows_of_blocks(lambda: late.answer(tiny_subject, [request], above))[3] == 20


def test_an_edit_above_the_deepest_read_is_not_called_idle(tiny_subject, make_edit):
    request = Request("a", "c", tuple(range(5, 15)), (Read(layers=(1,)),))
    arms = [(make_edit("add", 1, 1.0), make_edit("add", 3, 1.0))]
    assert HookRunner().answer(tiny_subject, [request], arms).engaged == [1.0]


@pytest.fixture
def memory_of(tiny_subject):
    """Let the tiny model run out of memory on more than so many tokens."""
    handles = []

    def limit(tokens):
        def fail(module, args, kwargs):
            if kwargs["input_ids"].numel() > tokens:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

        handles.append(tiny_subject.model.register_forward_pre_hook(fail, with_kwargs=True))

    yield limit
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("limit", [70, 170])
def test_a_batch_out_of_memory_is_tried_again_in_halves(
    limit, tiny_subject, mixed_arms, difference, caplog, memory_of
):
    requests, seen = prompts_that_share(), []
    wide = HookRunner().answer(tiny_subject, requests, mixed_arms)
    plan = plan_for(tiny_subject, requests, mixed_arms, budget=512)
    memory_of(limit)
    got = answering.answer(
        tiny_subject, requests, mixed_arms, plan=plan, progress=lambda *at: seen.append(at)
    )
    assert difference(got.values, wide.values) < 2e-5
    agree(got, wide)
    assert plan.shrunk == [512 // 2**n for n in range(1, len(plan.shrunk) + 1)]
    assert f"went on with {plan.shrunk[-1]} tokens" in plan.explain()
    assert "out of memory; going on with 256 tokens" in caplog.text
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert seen[-1] == (len(requests), len(requests))


def test_memory_that_never_suffices_is_said(tiny_subject, mixed_arms, memory_of):
    memory_of(0)
    with pytest.raises(torch.OutOfMemoryError):
        HookRunner().answer(tiny_subject, prompts_that_share(), mixed_arms)


def test_other_errors_are_not_taken_for_memory(tiny_subject, mixed_arms, caplog):
    def fail(*_):
        raise RuntimeError("shapes differ")

    handle = tiny_subject.blocks[3].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="shapes differ"):
        HookRunner().answer(tiny_subject, prompts_that_share(), mixed_arms)
    handle.remove()
    assert "out of memory" not in caplog.text


def test_an_unknown_shortcut_is_refused(tiny_subject):
    with pytest.raises(ValueError, match="known: candidates, last, prefix, stop, trunk"):
        HookRunner(shortcuts=frozenset({"fast"})).answer(tiny_subject, [])
