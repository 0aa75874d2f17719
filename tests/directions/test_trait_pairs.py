"""Trait vectors of planted pairs: the good pairs alone, both rules, and what is left out."""

from dataclasses import replace

import numpy as np
import pytest
from planted import STAMP, Acts

from workbench.directions import fit_layers
from workbench.directions.trait_pairs import APART, EFFECTIVE, READS, trait_vectors
from workbench.engine.pool import parse_position
from workbench.errors import ConfigError

D = STAMP.width
POISON = 1e4


def pairs(plan, noise=0.1, seed=0):
    """``plan``: (trait, positive score, negative score, coherence) each; good pairs are planted."""
    rng, rows = np.random.default_rng(seed), []
    for number, (trait, positive, negative, coherence, good) in enumerate(plan):
        axis = "xyz".index(trait)
        for pole, score in ((1, positive), (-1, negative)):
            if score == "absent":
                continue
            place = np.zeros(D) if good else np.full(D, POISON * pole)
            place[axis] += pole * (axis + 1.0) if good else 0
            score = np.nan if score is None else score
            rows.append((trait, pole, f"p{number}", score, coherence, place))
    rows.append(("", 0, "role", 3.0, 0.0, np.full(D, POISON)))
    rng.shuffle(rows)
    trait, pole, pair, score, coherence, place = (
        np.array(part) for part in zip(*rows, strict=True)
    )
    values = place.astype(float) + noise * rng.standard_normal((2, len(rows), D))
    names = {"trait": trait, "pole": pole, "pair": pair, "score": score, "coherence": coherence}
    return Acts(values.astype(np.float32), names, (0, 2), position="mean:assistant")


def planned(trait, n, positive=80.0, negative=20.0, coherence=90.0, good=True):
    return [(trait, positive, negative, coherence, good)] * n


def test_only_pairs_whose_scores_lie_far_apart_make_a_vector():
    made = pairs(
        planned("x", 12)
        + planned("x", 5, positive=69.0, good=False)
        + planned("x", 3, positive=None, good=False)
        + planned("x", 2, negative="absent", good=False)
        + planned("y", 10, positive=50.0, negative=0.0)
        + planned("z", 9)
    )
    found = trait_vectors(made, judge="stand-in")
    assert found.vectors.names == ("x", "y")  # z has nine
    expected = np.zeros((2, D))
    expected[0, 0], expected[1, 1] = 2.0, 4.0
    for layer in (0, 2):
        np.testing.assert_allclose(found.vectors.at(layer), expected, atol=0.2)
    table = found.counts.set_index("trait")
    assert table.loc["x"].tolist() == [20, 2, 3, 12, True]
    assert table.loc["z"].tolist() == [9, 0, 0, 9, False]
    assert found.vectors.info["n_pairs"] == {"x": 12, "y": 10}
    assert found.vectors.info["rule"] == APART.name
    assert found.vectors.kind == "difference"


def test_persona_vectors_want_both_sides_right_and_coherent():
    made = pairs(
        planned("x", 4, positive=50.0, negative=49.0)
        + planned("x", 3, negative=50.0, positive=99.0, good=False)
        + planned("x", 3, positive=49.0, negative=0.0, good=False)
        + planned("x", 3, coherence=49.0, good=False)
        + planned("x", 2, coherence=np.nan, good=False)
    )
    found = trait_vectors(made, judge="stand-in", rule=EFFECTIVE)
    assert found.vectors.info["n_pairs"] == {"x": 4}
    assert found.counts["unscored"].tolist() == [2]
    assert found.vectors.at(0)[0, 0] == pytest.approx(2.0, abs=0.2)


def test_pairs_with_one_rollout_a_side_are_the_paired_method():
    made = pairs(planned("x", 15), noise=1.0)
    one = made.where(made.columns["trait"] == "x")
    one.columns["positive"] = (one.columns["pole"] > 0).astype(int)
    plain = fit_layers(one, method="paired", y="positive", pairs="pair")
    np.testing.assert_allclose(
        trait_vectors(made, judge="stand-in").vectors.vectors, plain.vectors, atol=1e-5
    )


def test_without_a_judge_every_whole_pair_counts_and_that_is_said():
    made = pairs(
        planned("x", 11, positive=0.0, negative=100.0) + planned("x", 1, negative="absent")
    )
    del made.columns["score"], made.columns["coherence"]
    for rule in (APART, EFFECTIVE):
        found = trait_vectors(made, judge="none", rule=rule)
        assert found.vectors.info["judge"] == "none"
        assert found.vectors.info["rule"] == f"all pairs, at least {rule.least}"
        assert found.vectors.info["n_pairs"] == {"x": 11}
        assert found.counts["lacking"].tolist() == [1]


def test_the_reads_of_the_three_variants_are_positions():
    assert [parse_position(read).kind for read in READS.values()] == ["mean", "mean", "last"]
    assert parse_position(READS["prompt-mean"]).first
    assert parse_position(READS["response-mean"]).span == "assistant"


def test_what_makes_no_pairs_is_named():
    made = pairs(planned("x", 12))
    twice = replace(made, columns={**made.columns, "pair": np.full(25, "p")})
    with pytest.raises(ConfigError, match=r"pair 'p' of x has several rollouts of pole \+1"):
        trait_vectors(twice, judge="s")
    strange = replace(made, columns={**made.columns, "pole": np.full(25, 2)})
    with pytest.raises(ConfigError, match=r"'pole' holds \[2\]"):
        trait_vectors(strange, judge="s")
    with pytest.raises(ConfigError, match="the most: x has 0"):
        trait_vectors(pairs(planned("x", 12, positive=60.0)), judge="s")
    with pytest.raises(ConfigError, match="no column 'score'"):
        trait_vectors(replace(made, columns={k: v for k, v in made.columns.items()
                                             if k != "score"}), judge="s")  # fmt: skip
