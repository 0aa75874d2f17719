import numpy as np
import pytest
import torch
from planted import planted

from workbench.directions.ccs import Ccs, adamw, consistency, matched
from workbench.linalg import cosine
from workbench.registry import METHODS

RNG = np.random.default_rng(3)


def columns(acts):
    names = {"groups": "topic", "polarity": "polarity", "pairs": "fact"}
    return {part: acts.columns[name] for part, name in names.items()}


def sides(n=40, d=6):
    return RNG.standard_normal((n, d)), RNG.standard_normal((n, d))


def plain_loss(plus, minus, w):
    p, q = torch.sigmoid(plus @ w), torch.sigmoid(minus @ w)
    return ((p - (1 - q)) ** 2 + torch.minimum(p, q) ** 2).mean()


def test_each_start_takes_the_steps_that_adamw_takes_alone():
    plus, minus = sides()
    W = RNG.standard_normal((6, 3))
    ours = adamw(plus, minus, W, steps=50, rate=0.01, decay=0.1)
    for start, found in zip(W.T, ours.T, strict=True):
        w = torch.tensor(start.copy(), requires_grad=True)
        optimizer = torch.optim.AdamW([w], lr=0.01, weight_decay=0.1)
        for _ in range(50):
            optimizer.zero_grad()
            plain_loss(torch.tensor(plus), torch.tensor(minus), w).backward()
            optimizer.step()
        np.testing.assert_allclose(found, w.detach().numpy(), rtol=1e-6, atol=1e-8)
    losses = [
        float(plain_loss(torch.tensor(plus), torch.tensor(minus), torch.tensor(w))) for w in ours.T
    ]
    np.testing.assert_allclose(consistency(plus, minus, ours)[0], losses, rtol=1e-10)


def test_the_lowest_loss_is_kept_and_the_range_told():
    acts = planted(strength=(0.0, 1.0))
    y, told = acts.columns["label"] == 1, columns(acts)
    fit = Ccs(starts=12, steps=200).fit(acts.at(1), y, **told)
    losses = fit.info_["losses"]
    assert losses.shape == (12,)
    assert losses[0] < losses[-1]
    assert (np.diff(losses) >= 0).all()
    affirmed, negated = matched(y, told["polarity"] > 0, told["pairs"])
    plus, minus, size = fit._sides(acts.at(1), affirmed, negated, told["groups"], told["polarity"])
    kept = consistency(plus, minus, fit.coef_[:, None] * size)[0][0]
    turned = consistency(plus, minus, -fit.coef_[:, None] * size)[0][0]
    assert losses[0] == pytest.approx(min(kept, turned), rel=1e-4)
    assert np.abs(fit.info_["cosines"]).min() < 0.99


def test_without_a_truth_to_find_the_starts_disagree():
    acts = planted(strength=(0.0,), polar=0.0)
    fit = Ccs(steps=200).fit(acts.at(0), acts.columns["label"], **columns(acts))
    assert np.abs(fit.info_["cosines"][1:]).min() < 0.9
    assert fit.info_["accuracy"] < 0.7


def test_another_seed_takes_other_starts_and_the_same_seed_the_same():
    acts = planted(strength=(1.0,))
    fits = [
        Ccs(steps=20, seed=seed).fit(acts.at(0), acts.columns["label"], **columns(acts))
        for seed in (0, 0, 1)
    ]
    assert np.array_equal(fits[0].coef_, fits[1].coef_)
    assert not np.array_equal(fits[0].coef_, fits[2].coef_)


def test_labels_decide_the_sign_alone():
    acts = planted()
    y, told = acts.columns["label"] == 1, columns(acts)
    half = np.unique(told["pairs"])[::2]
    noisy = y ^ np.isin(told["pairs"], half[:-20])  # fewer than half of the pairs turned round
    one, other = (Ccs(steps=100).fit(acts.at(2), labels, **told) for labels in (y, noisy))
    assert cosine(one.coef_[None], other.coef_[None])[0, 0] > 1 - 1e-6
    assert one.info_["accuracy"] > other.info_["accuracy"] > 0.5


def test_one_search_serves_labels_that_swap_what_is_true_within_facts(monkeypatch):
    acts = planted(facts=5)
    fact = np.unique(acts.columns["fact"], return_inverse=True)[1]
    turned = RNG.random((fact.max() + 1, 20)) < 0.5
    Y, searches = (acts.columns["label"] == 1)[:, None] ^ turned[fact], []
    monkeypatch.setattr(
        "workbench.directions.ccs.adamw", lambda *given: searches.append(1) or adamw(*given)
    )
    found = Ccs(steps=50).fit_many(acts.at(2), Y, **columns(acts))
    assert len(searches) == 1
    assert 0 < (found[:, 0] > 0).sum() < 20


def test_a_true_affirmed_item_goes_with_the_false_negated_item_of_its_name():
    pairs = np.array(["b", "b", "a", "b", "a", "b"])
    affirmed = np.array([1, 0, 0, 1, 1, 0], bool)
    y = np.array([1, 1, 0, 0, 1, 0], bool)
    first, second = matched(y, affirmed, pairs)
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == [(4, 2), (3, 1), (0, 5)]


@pytest.mark.parametrize(("lost", "held"), [(0, "0 affirmed and 1"), (3, "1 affirmed and 0")])
def test_an_item_without_its_negation_is_named(lost, held):
    acts = planted(facts=3)
    part = acts.where(np.arange(len(acts.columns["label"])) != lost)
    with pytest.raises(ValueError, match=rf"pair 'a:0' holds {held} negated .* \(1 of 12 do not"):
        Ccs().fit(part.at(2), part.columns["label"], **columns(part))


def test_a_statement_and_its_negation_of_one_label_do_not_pair():
    acts = planted(facts=3)
    acts.columns["label"] = (acts.columns["label"] * acts.columns["polarity"] > 0).astype(int)
    with pytest.raises(ValueError, match="negated items of opposite labels; they must match"):
        Ccs().fit(acts.at(2), acts.columns["label"], **columns(acts))


def test_fewer_than_ten_starts_are_refused():
    acts = planted(facts=3)
    with pytest.raises(ValueError, match="starts=9; at least 10 are needed"):
        METHODS.create("ccs", starts=9).fit(acts.at(2), acts.columns["label"], **columns(acts))
