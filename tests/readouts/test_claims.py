"""The claims readout against stub models with known answers."""

import copy
import json

import numpy as np
import pytest

from workbench.errors import ConfigError
from workbench.readouts.claims import WORLDS, Claims


def picked(request, letter, sure=0.9):
    """The answer of a model that puts ``sure`` on one letter and the rest evenly on the others."""
    tokens = request.extra["letters"].tokens
    share = {name: sure if name == letter else (1 - sure) / 3 for name in tokens}
    return np.log([share[name] / len(ids) for name, ids in tokens.items() for _ in ids])


def score(subject, answer):
    readout = Claims(measures=["choice"])
    requests = readout.requests(subject)
    return readout.score(requests, [(answer(request),) for request in requests])


def test_a_model_that_always_says_the_first_letter_believes_nothing(tiny_subject):
    found = score(tiny_subject, lambda request: picked(request, "A"))
    np.testing.assert_allclose([m.value for m in found], 0.25)


def test_a_model_that_always_picks_one_world_gets_it_in_every_order(tiny_subject):
    def answer(request):
        return picked(request, "ABCD"[request.extra["order"].index("N")], sure=1 - 1e-12)

    found = score(tiny_subject, answer)
    assert {m.condition: round(m.value, 6) for m in found} == {"P": 0, "S": 0, "N": 1, "A": 0}
    assert all(m.mass == pytest.approx(1) for m in found)


def test_every_question_is_asked_in_four_rotations_and_shares_sum_to_one(tiny_subject):
    rng = np.random.default_rng(0)
    found = score(tiny_subject, lambda request: -rng.uniform(1, 9, len(request.reads[0].keep)))
    items = {m.item for m in found}
    assert len(found) == 4 * len(items)
    for item in items:
        assert sum(m.value for m in found if m.item == item) == pytest.approx(1)
    assert all(m.extra["orders"] == 4 for m in found)


def test_little_mass_on_the_letters_is_marked_and_still_counted(tiny_subject):
    found = score(tiny_subject, lambda request: picked(request, "A") + np.log(0.1))
    assert {(m.valid, m.reason) for m in found} == {(True, "low_mass")}
    assert found[0].mass == pytest.approx(0.1)


def test_the_likelihood_of_a_claim_is_its_mean_log_probability_after_the_first_token(tiny_subject):
    import torch

    readout = Claims(measures=["loglik"])
    requests = readout.requests(tiny_subject)
    request = requests[5]
    text = readout.claims.where(id=request.item).items[0]
    ids = torch.tensor([tiny_subject.tokenizer(text)["input_ids"]])
    with torch.no_grad():
        logp = tiny_subject.model(ids).logits.log_softmax(-1)
    plain = logp[0, :-1].gather(1, ids[0, 1:, None]).mean().item()
    values = tiny_subject.runner.answer(tiny_subject, requests).values[0]
    found = readout.score(requests, values)
    assert found[5].value == pytest.approx(plain, abs=1e-5)
    assert [m.condition for m in found].count("P") * 4 == len(found)


def test_claims_and_negations_are_chosen_by_polarity(tiny_subject):
    both = Claims(measures=["loglik"], polarity=0).requests(tiny_subject)
    affirmed = Claims(measures=["loglik"]).requests(tiny_subject)
    assert len(both) == 2 * len(affirmed)
    assert {request.extra["polarity"] for request in affirmed} == {1}
    assert {request.condition for request in affirmed} == set(WORLDS)


def test_an_unknown_measure_is_refused():
    with pytest.raises(ConfigError, match="no measure 'belief'; known: loglik, choice"):
        Claims(measures=["belief"])


def likelihood(subject, tmp_path, text):
    """The readout's request and value for one claim of one's own."""
    known = {"set": "s", "proposition": "p", "frame": "f", "polarity": 1, "fact": "x"}
    path = tmp_path / "claims.jsonl"
    path.write_text(json.dumps({"id": "1", "text": text, "world": "P", **known}))
    readout = Claims(measures="loglik", claims=path)
    (request,) = readout.requests(subject)
    (found,) = readout.score([request], subject.runner.answer(subject, [request]).values[0])
    return request, found


def test_after_a_bos_the_first_word_counts_and_what_follows_the_text_does_not(subject_of, tmp_path):
    import torch
    from tokenizers import processors

    subject = copy.copy(subject_of("llama"))
    assert subject.tokenizer("the city")["input_ids"][0] == subject.tokenizer.bos_token_id
    plain = subject.tokenizer("the city is", add_special_tokens=False)["input_ids"]
    ids = torch.tensor([[subject.tokenizer.bos_token_id, *plain]])
    with torch.no_grad():
        logp = subject.model(ids).logits.log_softmax(-1)
    value = logp[0, :-1].gather(1, ids[0, 1:, None]).mean().item()
    request, found = likelihood(subject, tmp_path, "the city is")
    assert found.extra["tokens"] == len(plain)
    assert found.value == pytest.approx(value, abs=1e-5)

    closing = copy.deepcopy(subject.tokenizer)
    closing.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A <|im_end|>", special_tokens=[("<bos>", 3), ("<|im_end|>", 2)]
    )
    subject.renderer = type(subject.renderer)(closing)
    assert likelihood(subject, tmp_path, "the city is")[0].reads == request.reads


def test_a_claim_of_which_nothing_is_predicted_is_refused(tiny_subject, tmp_path):
    with pytest.raises(ConfigError, match="claim 'a' is one token"):
        likelihood(tiny_subject, tmp_path, "a")


def test_files_that_lack_what_a_claim_needs_are_refused(tmp_path):
    (tmp_path / "c.jsonl").write_text('{"text": "x", "world": "P"}\n')
    with pytest.raises(ConfigError, match="no column 'set'"):
        Claims(claims=tmp_path / "c.jsonl")
    (tmp_path / "o.jsonl").write_text('{"stem": "x", "options": {"P": "a"}}\n')
    with pytest.raises(ConfigError, match="an option for each of P, S, N, A"):
        Claims(choice=tmp_path / "o.jsonl")
    with pytest.raises(ConfigError, match="polarity 2"):
        Claims(polarity=2)


def test_an_advantage_is_what_a_claim_has_over_the_other_worlds_in_the_same_words(tiny_subject):
    def scored(measures, shift):
        readout = Claims(measures=measures, polarity=0)
        requests = readout.requests(tiny_subject)
        rng = np.random.default_rng(0)
        totals = [r.extra["tokens"] * (rng.normal() + shift(r)) for r in requests]
        return readout.score(requests, [(np.array([total]),) for total in totals])

    plain = scored(["advantage"], lambda _r: 0)
    both = scored(["loglik", "advantage"], lambda _r: 7)  # shared by all: it drops out
    kept = [m for m in both if m.measure == "advantage"]
    np.testing.assert_allclose([m.value for m in kept], [m.value for m in plain], atol=1e-9)
    assert len(kept) == len(both) / 2 == 112
    assert {len({m.item for m in kept if m.condition == world}) for world in WORLDS} == {28}
    own = scored(["advantage"], lambda r: 3 * (r.condition == "P"))
    moved = {m.condition: m.value - p.value for m, p in zip(own, plain, strict=True)}
    assert moved == pytest.approx({"P": 3, "S": -1, "N": -1, "A": -1})
    values = {}
    for m in plain:
        values.setdefault(m.item, []).append(m.value)
    np.testing.assert_allclose([sum(v) for v in values.values()], 0, atol=1e-9)


def rows_of(tmp_path, worlds):
    """A claims file of one proposition in two frames about a made-up river."""
    path = tmp_path / "own.jsonl"
    path.write_text(
        "".join(
            json.dumps(
                {
                    "id": f"{frame}:{world}",
                    "text": f"the {frame} river runs {world}",
                    "world": world,
                    "set": "s",
                    "proposition": "runs",
                    "frame": frame,
                    "polarity": 1,
                    "fact": frame,
                }
            )
            + "\n"
            for frame in ("long", "new")
            for world in worlds
        )
    )
    return path


@pytest.mark.parametrize("worlds", [("north", "south"), ("east", "west", "north", "south", "up")])
def test_conditions_are_whatever_the_claims_file_holds(tiny_subject, tmp_path, worlds):
    readout = Claims(measures=["loglik", "advantage"], claims=rows_of(tmp_path, worlds))
    assert readout.worlds == worlds
    requests = readout.requests(tiny_subject)
    nats = {world: float(row) for row, world in enumerate(worlds)}
    answers = [(np.array([nats[r.condition] * r.extra["tokens"]]),) for r in requests]
    found = readout.score(requests, answers)
    advantage = [m for m in found if m.measure == "advantage"]
    assert len(advantage) == 2 * len(worlds)
    for m in advantage:
        others = [value for world, value in nats.items() if world != m.condition]
        assert m.value == pytest.approx(nats[m.condition] - np.mean(others))
        assert m.item in ("long", "new")


def test_the_planted_facts_claims_are_read_by_their_name(tiny_subject):
    readout = Claims(measures=["loglik", "advantage"], claims="claims/planted")
    assert len(readout.worlds) == 4
    requests = readout.requests(tiny_subject)
    answers = [(np.array([-r.extra["tokens"] * (r.condition != "orange")]),) for r in requests]
    found = [m for m in readout.score(requests, answers) if m.measure == "advantage"]
    assert {m.condition: m.value for m in found}["orange"] == pytest.approx(1)
    assert len(found) == len(requests)


def test_an_advantage_over_no_other_claim_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="all of world 'north'"):
        Claims(measures=["advantage"], claims=rows_of(tmp_path, ["north"]))
