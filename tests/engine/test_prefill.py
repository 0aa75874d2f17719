"""Prompts run once below the edits: the same texts and counts as when every row runs."""

import pytest
import torch

from workbench.engine import prefill
from workbench.engine.hooks import HookRunner
from workbench.engine.prefill import together
from workbench.types import Rendered

RUNNER = HookRunner()
SCOPES = [
    "all",
    *(pytest.param(scope, marks=pytest.mark.thorough) for scope in ("last", "prompt", "generated")),
]
TEXTS = ["A B C", "the city of the D is not in the E and you send it", "to F", "G"]


@pytest.fixture(params=[1, 10**6], ids=["prompt by prompt", "all prompts together"])
def shared(request, monkeypatch):
    """Share whatever the size, in forwards of one prompt's arms or of all."""
    monkeypatch.setattr(prefill, "LEAST", 1)
    monkeypatch.setattr(prefill, "ENOUGH", request.param)


def arms_of(make_edit, scope):
    return [
        (),
        (make_edit("add", 1, 4.0, scope), make_edit("add", 2, 2.0, scope)),
        (make_edit("cap", 2, 1.0, scope, seed=2, floor=-0.2, ceiling=0.2),),
    ]


def run(subject, arms, rows, **options):
    with RUNNER.intervene(subject, arms) as log:
        texts = RUNNER.generate(subject, rows, max_new_tokens=6, **options)
    return texts, log


def rows_seen(subject, layer, call):
    """Rows of the forwards that run one block itself, whatever stands in for it."""
    rows = []
    norm = next(iter(subject.blocks[layer].children()))
    forward = norm.forward

    def counted(*args, **kwargs):
        rows.append(len(next(iter(args or kwargs.values()))))
        return forward(*args, **kwargs)

    norm.forward = counted
    try:
        return call(), rows
    finally:
        del norm.forward


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.usefixtures("shared")
def test_texts_and_counts_equal_those_of_whole_rows(
    scope, family, subject_of, make_edit, monkeypatch
):
    subject, arms = subject_of(family), arms_of(make_edit, scope)
    rows = [text for text in TEXTS for _ in arms]
    texts, log = run(subject, arms, rows)
    monkeypatch.setattr(prefill, "LEAST", 10**9)
    plain, whole = run(subject, arms, rows)
    assert texts == plain
    for mine, other in zip(log.rows, whole.rows, strict=True):
        assert (mine.arm, mine.layer, mine.n) == (other.arm, other.layer, other.n)
        assert mine.realised == pytest.approx(other.realised, abs=1e-4)


@pytest.mark.usefixtures("shared")
def test_blocks_below_the_edits_run_once_for_each_prompt(tiny_subject, make_edit):
    arms = arms_of(make_edit, "all")
    rows = [text for text in TEXTS[:2] for _ in arms]
    _, below = rows_seen(tiny_subject, 0, lambda: run(tiny_subject, arms, rows))
    _, above = rows_seen(tiny_subject, 2, lambda: run(tiny_subject, arms, rows))
    assert below[:2] == [2, 6]
    assert set(below[1:]) == {6}
    assert sum(above[: -len(below) + 1]) == 6


@pytest.mark.usefixtures("shared")
def test_draws_of_one_arm_share_their_prompt(tiny_subject, make_edit):
    arm = [(make_edit("add", 2, 4.0),)]
    options = {"temperature": 1.0, "seed": 3}
    rows = [text for text in TEXTS[:2] for _ in range(3)]
    (texts, _), below = rows_seen(tiny_subject, 0, lambda: run(tiny_subject, arm, rows, **options))
    assert below[0] == 2
    assert texts == run(tiny_subject, arm, rows, batch_size=1, **options)[0]


@pytest.mark.usefixtures("shared")
def test_nested_interventions_share_below_both(tiny_subject, make_edit):
    inner = arms_of(make_edit, "all")
    rows = [text for text in TEXTS[:2] for _ in inner]
    with RUNNER.intervene(tiny_subject, [(make_edit("add", 0, 3.0, seed=5),)]) as outer:
        texts, _ = run(tiny_subject, inner, rows)
    assert outer.rows[0].n > 0
    for number, arm in enumerate(inner):
        both = [(make_edit("add", 0, 3.0, seed=5), *arm)]
        assert run(tiny_subject, both, TEXTS[:2])[0] == texts[number :: len(inner)]


@pytest.mark.usefixtures("shared")
def test_who_watches_a_block_sees_every_row(tiny_subject, make_edit):
    arms, seen = arms_of(make_edit, "all"), []
    handle = tiny_subject.blocks[0].register_forward_hook(
        lambda _module, _args, output: seen.append(output.shape[:2])
    )
    try:
        run(tiny_subject, arms, [TEXTS[1]] * len(arms))
    finally:
        handle.remove()
    assert {rows for rows, _ in seen} == {3}
    assert seen[0][1] == len(tiny_subject.renderer.render(TEXTS[1]).ids)


@pytest.mark.usefixtures("shared")
def test_spans_that_the_caller_names_are_cut_with_the_rows(tiny_subject, make_edit, monkeypatch):
    arms = arms_of(make_edit, "content")
    rows = [text for text in TEXTS[:2] for _ in arms]
    ids = tiny_subject.encode(rows).input_ids
    flags = torch.zeros(ids.shape, dtype=torch.bool)
    flags[:3, -2:] = flags[3:, -5:-1] = True

    def marked():
        with RUNNER.intervene(tiny_subject, arms, spans={"content": flags}) as log:
            texts = RUNNER.generate(tiny_subject, rows, max_new_tokens=6)
        return texts, [row.n for row in log.rows]

    found = marked()
    monkeypatch.setattr(prefill, "LEAST", 10**9)
    assert found == marked()
    assert found[1] == [6, 6, 6]


def test_rows_are_one_prompt_where_ids_and_spans_are():
    a, b = Rendered((1, 2), {}), Rendered((1, 3), {})
    marked = Rendered((1, 2), {"content": ((0, 1),)})
    assert together([a, a, a, b, b, b]) == 3
    assert together([a, a, a, a, b, b]) == 2
    assert together([a, a, marked, marked, marked]) == 1
    assert together([a, a, a, a]) == 4
