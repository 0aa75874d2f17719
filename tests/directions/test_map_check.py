"""Held-out evidence of a map: against refitting by hand, on planted maps and on mere shifts."""

import numpy as np
import pytest
from planted import STAMP, Acts
from sklearn.base import clone

from workbench.directions import fit_map
from workbench.directions.fit import Columns
from workbench.directions.map_check import explained
from workbench.directions.outer import Outer
from workbench.directions.pairs import pair_rows
from workbench.directions.reduced_rank import ReducedRank
from workbench.directions.ridge_map import RidgeMap, paired
from workbench.errors import ConfigError

D = STAMP.width


def pairs_of(m=80, rank=2, noise=0.3, seed=0, groups=8):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((D, rank)) @ rng.standard_normal((rank, D)) / D**0.5
    lower = rng.standard_normal((m, D))
    upper = lower + lower @ A.T + 2 + noise * rng.standard_normal((m, D))
    X, y = np.concatenate([lower, upper]), np.repeat([False, True], m)
    order = rng.permutation(2 * m)
    names, group = np.tile(np.arange(m), 2), np.tile(np.arange(m) % groups, 2)
    return X[order], Columns(y[order], groups=group[order], pairs=names[order])


def test_leaving_each_pair_out_by_itself_is_the_closed_form_of_the_ridge():
    X, columns = pairs_of(m=20)
    alone = Columns(columns.y, pairs=columns.pairs)
    found = paired(X, columns.y, columns.pairs)
    scale = np.square(found.X).sum() / D
    refitted = [explained(_Fixed(lam), X, alone, 20) for lam in (0.5 * scale, 5 * scale)]
    np.testing.assert_allclose(refitted, found.left_out([0.5 * scale, 5 * scale]), atol=1e-9)


class _Fixed(RidgeMap):
    """A ridge that is the same number whatever the items."""

    def __init__(self, lam=1.0):
        self.lam = lam

    def fit(self, X, y, *, groups=None, polarity=None, pairs=None):
        self.ridge = self.lam / (np.square(paired(X, y, pairs).X).sum() / D)
        return super().fit(X, y, pairs=pairs)


def test_a_planted_map_of_low_rank_is_foreseen_and_a_mere_shift_is_not():
    X, columns = pairs_of()
    good = explained(ReducedRank(rank=2, ridge=0.1), X, columns, 4)
    assert good > 0.8
    assert explained(ReducedRank(rank=1, ridge=0.1), X, columns, 4) < good - 0.1
    mere, columns = pairs_of(rank=0)
    assert explained(RidgeMap(ridge=0.1), mere, columns, 4) < 0
    assert explained(RidgeMap(ridge=1e9), mere, columns, 4) == pytest.approx(0, abs=1e-6)


def test_no_item_of_a_left_out_group_is_fitted_on():
    X, columns = pairs_of()
    seen = []

    class Spy(RidgeMap):
        def fit(self, X, y, *, groups=None, polarity=None, pairs=None):
            seen.append((set(groups.tolist()), len(y)))
            return super().fit(X, y, pairs=pairs)

    explained(Spy(ridge=1.0), X, columns, 4)
    assert [len(groups) for groups, _ in seen] == [6] * 4
    assert set.intersection(*(groups for groups, _ in seen)) == set()
    assert {rows for _, rows in seen} == {120}


def test_the_draw_of_parts_is_the_seeds_and_more_parts_than_groups_are_one_each():
    X, columns = pairs_of()
    method = RidgeMap(ridge=1.0)
    one, same, other = (explained(clone(method), X, columns, 4, seed=s) for s in (0, 0, 1))
    assert one == same != other
    assert explained(method, X, columns, 8) == explained(method, X, columns, 99)


@pytest.mark.parametrize(
    ("change", "folds", "error", "message"),
    [
        ({"pairs": None}, 4, ConfigError, "need pairs"),
        ({}, 1, ValueError, "folds 1; expected 2 or more"),
        ({"groups": np.zeros(160)}, 4, ConfigError, "all pairs are in group 0.0"),
        ({"groups": np.arange(160)}, 4, ConfigError, "a pair lies in two groups, "),
    ],
)
def test_what_cannot_be_left_out_is_refused(change, folds, error, message):
    X, columns = pairs_of()
    given = {"y": columns.y, "groups": columns.groups, "pairs": columns.pairs, **change}
    with pytest.raises(error, match=message):
        explained(RidgeMap(), X, Columns(**given), folds)


def test_a_fit_keeps_the_evidence_of_each_layer():
    X, columns = pairs_of()
    mere = X.copy()
    plus, minus = pair_rows(columns.y, columns.pairs)
    mere[plus] = X[minus] + 2 + 0.3 * np.random.default_rng(5).standard_normal((80, D))
    names = {"label": columns.y.astype(int), "pair": columns.pairs, "topic": columns.groups}
    acts = Acts(np.stack([X, mere]).astype(np.float32), names, (1, 4))
    settings = {"method": "reduced_rank", "rank": 2, "ridge": 0.1, "pairs": "pair"}
    found = fit_map(acts, groups="topic", folds=4, **settings)
    assert found.info["explained"][0] > 0.8 > 0 > found.info["explained"][1]
    assert (found.info["folds"], found.info["seed"]) == (4, 0)
    assert "explained" not in fit_map(acts, **settings).info
    with pytest.raises(ConfigError, match="left-out parts at layer 1: folds 1"):
        fit_map(acts, folds=1, **settings)
    assert explained(Outer(), X, columns, 4) < 0.8
