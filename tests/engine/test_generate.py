"""Generation: cached or not, batched or alone, edited as the scope says, seeded by row."""

import numpy as np
import pytest
import torch

from workbench.engine.generate import Draw
from workbench.engine.hooks import HookRunner
from workbench.errors import WorkbenchError
from workbench.types import CandidatesRead, GenerateRead, LogitsRead, Request

RUNNER = HookRunner()
TEXTS = ["A B C", "the city of the D is not in the E and you send it", "to F"]
SCOPES = ("all", "all+first", "last")
NAMED = [
    pytest.param(scope, marks=pytest.mark.thorough)
    for scope in ("prompt", "generated", "content", "content+generated", "tokens:1,9:")
]


def plain_greedy(subject, forward, prompt, arm, steps):
    """No cache: the whole row again for each token."""
    ids = list(prompt.ids)
    for _ in range(steps):
        logits, _ = forward(subject, ids, arm, prompt=len(prompt.ids), spans=prompt.spans)
        ids.append(int(logits[-1].argmax()))
    return ids[len(prompt.ids) :]


def text_of(subject, tokens):
    stop = tokens.index(2) if 2 in tokens else len(tokens)
    return subject.tokenizer.decode(tokens[:stop], skip_special_tokens=True)


@pytest.mark.parametrize("scope", [None, *SCOPES, *NAMED])
def test_greedy_text_equals_uncached_decoding(
    scope, family, subject_of, make_edit, forward_plainly
):
    subject = subject_of(family)
    arm = (
        () if scope is None else (make_edit("add", 1, 4.0, scope), make_edit("add", 2, 2.0, scope))
    )
    with RUNNER.intervene(subject, [arm]):
        texts = subject.generate(TEXTS, max_new_tokens=8)
        with torch.no_grad():
            ids = subject.encode(TEXTS[1:2]).input_ids
            uncached = subject.model.generate(
                ids, max_new_tokens=8, use_cache=False, do_sample=False, pad_token_id=2
            )
    for text, new in zip(TEXTS, texts, strict=True):
        row = subject.renderer.render(text)
        assert new == text_of(subject, plain_greedy(subject, forward_plainly, row, arm, 8))
    ids = subject.renderer.render(TEXTS[1]).ids
    assert texts[1] == text_of(subject, uncached[0, len(ids) :].tolist())


def test_an_edit_of_the_last_token_reaches_the_first_new_one(tiny_subject, make_edit):
    plain = RUNNER.generate(tiny_subject, TEXTS, max_new_tokens=1)
    with RUNNER.intervene(tiny_subject, [(make_edit("add", 3, 300.0, "last"),)]):
        edited = RUNNER.generate(tiny_subject, TEXTS, max_new_tokens=1)
    assert all(a != b for a, b in zip(plain, edited, strict=True))


@pytest.mark.parametrize("scope", SCOPES)
def test_beams_and_several_sequences_keep_each_rows_arm(scope, tiny_subject, make_edit):
    arms = [(), (make_edit("add", 1, 5.0, scope),)]
    ids = torch.tensor([tiny_subject.renderer.render(TEXTS[0]).ids])
    options = {"max_new_tokens": 6, "num_beams": 2, "num_return_sequences": 2, "pad_token_id": 2}
    with RUNNER.intervene(tiny_subject, arms), torch.no_grad():
        both = tiny_subject.model.generate(ids.repeat(2, 1), do_sample=False, **options)
    for number, arm in enumerate(arms):
        with RUNNER.intervene(tiny_subject, [arm]), torch.no_grad():
            alone = tiny_subject.model.generate(ids, do_sample=False, **options)
        rows = both[2 * number : 2 * number + 2, : alone.shape[1]]
        assert torch.equal(rows, alone)


OPTIONS = {
    "a static cache": {"cache_implementation": "static"},
    "a prompt in chunks": {"prefill_chunk_size": 4},
    "chunks into a static cache": {"cache_implementation": "static", "prefill_chunk_size": 4},
    "beams": {"num_beams": 2, "num_return_sequences": 2},
}


@pytest.fixture(scope="module")
def kept():
    """What rows give alone and without a cache, which is the same for several options."""
    return {}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("scope", [*SCOPES, *NAMED])
def test_directions_and_doses_by_row_mean_the_same_tokens_however_text_is_made(
    scope, options, family, subject_of, make_edit, kept
):
    subject = subject_of(family)
    band = {"floor": -0.2, "ceiling": 0.2}
    arms = [
        (),
        (make_edit("add", 1, 4.0, scope), make_edit("add", 2, 2.0, scope)),
        (make_edit("add", 1, -5.0, scope, seed=1),),
        (make_edit("cap", 2, 1.0, scope, seed=2, **band),),
    ]
    prompts = [subject.renderer.render(text) for text in TEXTS[:2]]
    batch = subject.renderer.collate([prompt for prompt in prompts for _ in arms])
    common = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 2}
    beams = {name: n for name, n in options.items() if name.startswith("num_")}
    copies = beams.get("num_return_sequences", 1)
    with torch.no_grad(), RUNNER.intervene(subject, arms) as log:
        together = subject.model.generate(
            batch.input_ids, attention_mask=batch.attention_mask, **common, **options
        )
    assert len(log.rows) == 4
    width = batch.input_ids.shape[1]
    for row in range(len(batch.input_ids)):
        one, arm = subject.renderer.collate([prompts[row // 4]]).input_ids, arms[row % 4]
        key = (family, scope, copies, row)
        if key not in kept:
            with torch.no_grad(), RUNNER.intervene(subject, [arm]):
                kept[key] = subject.model.generate(one, use_cache=False, **common, **beams)
        alone = kept[key]
        new = together[row * copies : (row + 1) * copies, width:]
        assert [cut(tokens) for tokens in new] == [
            cut(tokens) for tokens in alone[:, one.shape[1] :]
        ]


def cut(tokens):
    """Tokens up to the first end of turn."""
    listed = tokens.tolist()
    return listed[: listed.index(2)] if 2 in listed else listed


def test_a_static_cache_without_the_prompts_mask_is_refused(tiny_subject, make_edit):
    ids = torch.tensor([tiny_subject.renderer.render(TEXTS[0]).ids])
    with (
        RUNNER.intervene(tiny_subject, [(make_edit("add", 1, 4.0),)]),
        pytest.raises(WorkbenchError, match="give generate the attention_mask"),
    ):
        tiny_subject.model.generate(
            ids, max_new_tokens=2, cache_implementation="static", pad_token_id=2
        )


def test_sampled_sequences_of_a_row_share_its_arm(tiny_subject, make_edit):
    """The first step's scores are the greedy ones of each row's own arm, once for each sequence."""
    arms = [(), (make_edit("add", 1, 5.0),)]
    ids = torch.tensor([tiny_subject.renderer.render(TEXTS[0]).ids]).repeat(2, 1)
    options = {
        "max_new_tokens": 2,
        "output_logits": True,
        "return_dict_in_generate": True,
        "attention_mask": torch.ones_like(ids),
        "pad_token_id": 2,
    }
    with torch.no_grad(), torch.random.fork_rng(), RUNNER.intervene(tiny_subject, arms):
        greedy = tiny_subject.model.generate(ids, do_sample=False, **options).logits[0]
        drawn = tiny_subject.model.generate(
            ids, do_sample=True, num_return_sequences=3, **options
        ).logits[0]
    torch.testing.assert_close(drawn, greedy.repeat_interleave(3, 0))
    assert (greedy[0] - greedy[1]).abs().max() > 0.1


def test_arms_are_rows_of_one_batch(tiny_subject, make_edit):
    arms = [(), (make_edit("add", 1, 5.0),)]
    with RUNNER.intervene(tiny_subject, arms):
        both = RUNNER.generate(tiny_subject, [text for text in TEXTS for _ in arms])
    for number, arm in enumerate(arms):
        with RUNNER.intervene(tiny_subject, [arm]):
            assert RUNNER.generate(tiny_subject, TEXTS) == both[number::2]


def test_only_new_text_comes_back_whatever_the_batch(tiny_subject):
    together = RUNNER.generate(tiny_subject, TEXTS, max_new_tokens=7)
    assert together == RUNNER.generate(tiny_subject, TEXTS, max_new_tokens=7, batch_size=1)
    assert together == [
        RUNNER.generate(tiny_subject, [text], max_new_tokens=7)[0] for text in TEXTS
    ]
    assert RUNNER.generate(tiny_subject, []) == []


def test_samples_depend_on_seed_and_row_alone(tiny_subject):
    options = {"max_new_tokens": 12, "temperature": 1.0}
    first = RUNNER.generate(tiny_subject, TEXTS, seed=1, **options)
    assert first == RUNNER.generate(tiny_subject, TEXTS, seed=1, batch_size=2, **options)
    assert first != RUNNER.generate(tiny_subject, TEXTS, seed=2, **options)
    assert len(set(RUNNER.generate(tiny_subject, TEXTS[:1] * 5, seed=1, **options))) > 1


def test_sampling_leaves_global_random_state_alone(tiny_subject):
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    RUNNER.generate(tiny_subject, TEXTS, temperature=1.0, seed=3)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1])


def test_draws_follow_the_distribution():
    scores = torch.tensor([[0.0, 1.0, -1.0, -torch.inf]]).repeat(20000, 1)
    uniforms = np.random.default_rng(0).random((20000, 1))
    drawn = Draw(uniforms, 0, 0.5)(torch.zeros(20000, 0, dtype=torch.long), scores).argmax(-1)
    shares = torch.bincount(drawn, minlength=4) / 20000
    torch.testing.assert_close(shares, (scores[0] / 0.5).softmax(-1), rtol=0, atol=0.012)
    assert shares[3] == 0


def test_an_edge_of_the_uniforms_draws_a_possible_token():
    scores = torch.tensor([[-torch.inf, 0.0, 0.0, -torch.inf]])
    for uniform, token in ((0.0, 1), (np.nextafter(1.0, 0), 2)):
        out = Draw(np.array([[uniform]]), 0, 1.0)(torch.zeros(1, 0, dtype=torch.long), scores)
        assert int(out.argmax()) == token


def test_generation_reads_are_answered_beside_the_others(tiny_subject, make_edit):
    arms = [(), (make_edit("add", 1, 6.0),)]
    greedy, drawn = GenerateRead(n=2, max_new_tokens=6), GenerateRead(3, 6, 1.0, seed=4)
    requests = [
        Request(str(number), "c", tiny_subject.renderer.render(text).ids, reads)
        for number, (text, reads) in enumerate(
            zip(
                TEXTS,
                [(greedy, LogitsRead()), (drawn,), (CandidatesRead(((7,),)), greedy)],
                strict=True,
            )
        )
    ]
    got = RUNNER.answer(tiny_subject, requests, arms)
    small = RUNNER.answer(tiny_subject, requests, arms, budget=1)
    alone = RUNNER.answer(tiny_subject, requests[1:2], arms[:1])
    for number, arm in enumerate(arms):
        with RUNNER.intervene(tiny_subject, [arm]):
            texts = RUNNER.generate(tiny_subject, TEXTS, max_new_tokens=6)
        values = got.values[number]
        assert values[0][0] == [texts[0]] * 2
        assert values[2][1] == [texts[2]] * 2
        assert len(values[1][0]) == 3
        assert len(set(values[1][0])) > 1
        assert values[1] == small.values[number][1]
    assert got.values[0][1] == alone.values[0][0]
    assert got.realised == pytest.approx([0.0, 6.0], abs=1e-4)


def test_reads_that_differ_in_their_seed_alone_run_together(tiny_subject, monkeypatch):
    requests = [
        Request(f"i{n}", "c", (5, 6, 7, 8)[: 2 + n % 3], (GenerateRead(2, 6, 1.0, seed=n),))
        for n in range(6)
    ]
    alone = [RUNNER.answer(tiny_subject, [request]).values[0][0] for request in requests]
    rows, real = [], tiny_subject.model.generate

    def counted(**given):
        rows.append(len(given["input_ids"]))
        return real(**given)

    monkeypatch.setattr(tiny_subject.model, "generate", counted)
    assert RUNNER.answer(tiny_subject, requests).values[0] == alone
    assert rows == [12]
    assert len({text for ((text, other),) in alone for text in (text, other)}) > 8


def test_wrong_settings_are_wrong_calls(tiny_subject):
    with pytest.raises(ValueError, match="temperature -1"):
        RUNNER.generate(tiny_subject, TEXTS, temperature=-1.0)
    with pytest.raises(ValueError, match="max_new_tokens 0"):
        RUNNER.generate(tiny_subject, TEXTS, max_new_tokens=0)


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_of_no_rows_is_refused(tiny_subject, size):
    """-1 gave no reply at all, and 0 all rows in one batch."""
    with pytest.raises(ValueError, match=r"batch_size .*expected at least 1"):
        RUNNER.generate(tiny_subject, ["A", "B"], max_new_tokens=2, batch_size=size)
