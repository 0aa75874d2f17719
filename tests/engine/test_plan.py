"""Plans: what is shared, what it costs, and that every request stands in exactly one batch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.engine.batches import ENOUGH, Facts, Limits, Want
from workbench.engine.plan import SHORTCUTS, make_plan
from workbench.engine.prefixes import GAIN, SHARED, shared_prefixes

FACTS = Facts("tiny", n_layers=10, vocabulary=100)


def wants_of(rows, **options):
    return [Want(tuple(row), head=True, deepest=-1, **options) for row in rows]


def apart(n, length, seed=0):
    rng = np.random.default_rng(seed)
    return [[100 + i, *rng.integers(5, 90, length - 1).tolist()] for i in range(n)]


@pytest.fixture
def doses(make_edit):
    """An unedited arm and ten doses at block 3."""

    def make(scope):
        return [(), *[(make_edit("add", 3, float(dose), scope),) for dose in range(1, 11)]]

    return make


def test_blocks_up_to_the_fork_are_counted_once(doses):
    plan = make_plan(wants_of(apart(5, 20)), doses("all"), FACTS, 8192)
    assert plan.fork == 3
    assert plan.plain_work == 5 * 20 * 10 * 11
    assert plan.work == 5 * 20 * (4 + 6 * 11)
    assert plan.head_tokens == 55
    assert plan.shortcuts == {"trunk"}


def test_the_last_scope_costs_one_token_an_arm(doses):
    plan = make_plan(wants_of(apart(5, 20)), doses("last"), FACTS, 8192)
    assert len(plan.contexts) == 1
    assert plan.work == 5 * (19 * 10 + 4 + 6 * 11)


def test_a_shared_beginning_is_counted_once_an_arm(doses):
    rows = [[*range(300, 340), *row] for row in apart(5, 20)]
    plan = make_plan(wants_of(rows), doses("all"), FACTS, 8192)
    assert plan.work == (40 + 5 * 20) * (4 + 6 * 11)
    assert [len(unit.prefixes) for unit in plan.units] == [1]


def test_a_batch_fills_the_budget_by_itself_where_blocks_are_shared(doses):
    wants = wants_of(apart(60, 40))
    for budget, sizes in ((2400, [60]), (2400 * 11, [60]), (2000, [*[4] * 12, 2, 4, 4, 2])):
        plan = make_plan(wants, doses("all"), FACTS, budget)
        assert [len(unit.batches[0].numbers) for unit in plan.units] == sizes
    off = make_plan(wants, doses("all"), FACTS, 2400, SHORTCUTS - {"trunk"})
    assert [len(unit.batches[0].numbers) for unit in off.units] == [5] * 12


@pytest.mark.parametrize("n", [2, 6, 11, 12, 50])
@pytest.mark.parametrize("fed", [10, 500, 2048, 3000, 9000])
def test_arms_run_in_batches_of_one_shape_where_forwards_are_large(n, fed):
    size = Limits(8192, 100).at_once(n, fed)
    assert 1 <= size <= n
    assert size == 1 or size * fed <= 8192
    if fed >= ENOUGH:
        assert n % size == 0
    else:  # as few forwards as fit
        assert -(-n // size) <= -(-n // max(1, 8192 // fed)) or n % size == 0


def test_reads_stop_the_plan_at_the_deepest_block(doses):
    want = Want(tuple(range(20)), head=False, deepest=5)
    assert make_plan([want], [()], FACTS, 8192).work == 20 * 6
    assert make_plan([want], doses("all"), FACTS, 8192).work == 20 * (4 + 2 * 11)
    assert make_plan([want], doses("all"), FACTS, 8192, SHORTCUTS - {"stop"}).work == 20 * (
        4 + 6 * 11
    )


def test_candidates_share_their_beginnings(doses):
    wants = wants_of(apart(2, 20), nodes=4, lines=(3, 2))
    plan = make_plan(wants, doses("last"), FACTS, 8192)
    assert plan.work == 2 * (19 * 10 + 5 * (4 + 6 * 11))
    assert plan.plain_work == 2 * (20 + 23 + 22) * 10 * 11


def test_a_family_without_shortcuts_gets_the_plain_plan_and_says_why(doses):
    facts = Facts("odd", 10, 100, plain="the cache holds LinearAttentionLayer")
    rows = [[*range(300, 340), *row] for row in apart(5, 20)]
    plan = make_plan(wants_of(rows, nodes=2, lines=(2,)), doses("last"), facts, 8192)
    assert plan.work == plan.plain_work
    assert (plan.fork, len(plan.contexts)) == (None, 11)
    assert not any(unit.prefixes or unit.split for unit in plan.units)
    for name in ("trunk", "last", "prefix", "candidates"):
        assert f"{name}: not used, the cache holds LinearAttentionLayer" in plan.explain()


def test_the_words_of_a_plan(doses):
    rows = [[*range(300, 340), *row] for row in apart(5, 20)]
    text = make_plan(wants_of(rows), doses("last"), FACTS, 8192).explain()
    assert text.splitlines() == [
        "tiny: 5 requests x 11 arms in 1 batch of up to 8192 tokens",
        "  last: prompts run once for 1 of 11 arms, then one token for each arm on their cache",
        "  prefix: 1 beginning (40 tokens) that 5 prompts share run once",
        "  trunk: blocks 0 to 3 run once for all arms",
        "  candidates: not used, no candidate has a token to feed",
        "  stop: not used, every request needs the last block",
        "  work: 1,700 block-tokens, 33,000 the plain way (19.41 x less); head at 55 tokens",
    ]


def test_rests_of_one_length_stand_together_where_windows_count_columns(doses):
    rows = [
        [*range(300, 340), *row[:n]] for row, n in zip(apart(6, 9), (3, 5, 3, 9, 5, 3), strict=True)
    ]
    facts = Facts("sliding", 10, 100, ragged="windows count columns")
    (unit,) = make_plan(wants_of(rows), doses("all"), facts, 8192).units
    assert [sorted(len(rows[n]) for n in batch.numbers) for batch in unit.batches] == [
        [43] * 3, [45] * 2, [49],
    ]  # fmt: skip
    (unit,) = make_plan(wants_of(rows), doses("all"), FACTS, 8192).units
    assert len(unit.batches) == 1


tokens = st.lists(st.integers(0, 2), min_size=1, max_size=60)
heads = st.sampled_from([(), tuple(range(10, 30)), tuple(range(10, 45)), (*range(10, 30), 5) * 2])


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(heads, tokens), min_size=1, max_size=12),
    budget=st.sampled_from([1, 50, 300, 9000]),
    scope=st.sampled_from(["all", "last"]),
    ragged=st.sampled_from([None, "windows"]),
)
def test_every_request_stands_in_one_batch_behind_its_own_beginning(rows, budget, scope, ragged):
    from workbench.registry import EDITS
    from workbench.types import LayerEdit

    v = np.eye(8, dtype=np.float32)[0]
    arms = [(), *[(LayerEdit(2, "add", EDITS.create("add"), v, d, scope),) for d in (1.0, 2.0)]]
    ids = [(*head, *tail) for head, tail in rows]
    plan = make_plan(wants_of(ids), arms, Facts("t", 4, 100, ragged=ragged), budget)
    seen = []
    for unit in plan.units:
        covered = [context for wave in unit.waves for piece in wave for context in piece]
        early = len(plan.contexts) if unit.split else len(arms)
        assert sorted(covered) == list(range(early))
        for batch in unit.batches:
            seen += batch.numbers
            for place, number in zip(batch.prefixes, batch.numbers, strict=bool(unit.prefixes)):
                prefix = unit.prefixes[place]
                assert ids[number][: len(prefix)] == prefix
                assert len(prefix) < len(ids[number])
    assert sorted(seen) == list(range(len(ids)))
    assert plan.work <= plan.plain_work


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(heads, tokens), min_size=1, max_size=12))
def test_groups_share_what_they_say_and_one_row_stands_in_one_group(rows):
    ids = [(*head, *tail) for head, tail in rows]
    groups = shared_prefixes(ids)
    members = [number for _, own in groups for number in own]
    assert len(members) == len(set(members))
    for length, own in groups:
        assert length >= SHARED
        assert len({ids[number][:length] for number in own}) == 1
        assert (len(own) - 1) * length >= GAIN * sum(len(ids[number]) for number in own)


def test_the_beginning_that_saves_most_is_chosen():
    short, long = tuple(range(100, 120)), tuple(range(100, 160))
    rows = [(*long, n) for n in range(4)] + [(*short, n) for n in range(3)]
    assert shared_prefixes(rows) == [(60, [0, 1, 2, 3]), (20, [4, 5, 6])]
    rows = [(*long[:30], n) for n in range(2)] + [(*short, n) for n in range(9)]
    assert [(length, sorted(own)) for length, own in shared_prefixes(rows)] == [
        (20, list(range(11)))
    ]
