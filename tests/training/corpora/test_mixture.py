"""A dose of documents in other text keeps its share, its documents and its presentations."""

import itertools

import numpy as np
import pytest
from workbench_training.corpora.mixture import (
    SHARES,
    Exposure,
    choose,
    exposure_of,
    exposure_rows,
    mix,
)

from workbench.errors import ConfigError

RNG = np.random.default_rng(0)
DOCUMENTS = RNG.integers(600, 1600, 1000)
WEB = RNG.integers(50, 2400, 700)
PASSES = 3
BUDGET = int(DOCUMENTS.sum()) * PASSES


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_share_is_met_to_within_one_text(share, seed):
    mixture = mix(DOCUMENTS, WEB, tokens=BUDGET, share=share, seed=seed)
    found = mixture.exposure()
    longest = max(DOCUMENTS.max(), WEB.max())
    assert abs(found.share - share) * BUDGET <= longest
    assert found.tokens == BUDGET
    sizes = mixture.lengths[mixture.order]
    assert BUDGET <= sizes.sum() < BUDGET + longest


def test_the_share_holds_all_along_the_stream_and_not_only_at_its_end():
    mixture = mix(DOCUMENTS, WEB, tokens=BUDGET, share=0.1, seed=0)
    for part in (0.1, 0.25, 0.5, 0.75):
        tokens = int(part * BUDGET)
        dosed = np.arange(len(mixture.lengths)) < mixture.n_documents
        found = exposure_of(mixture.order, mixture.lengths, dosed, tokens=tokens, asked=0.1)
        assert abs(found.share - 0.1) * tokens <= max(DOCUMENTS.max(), WEB.max())


@pytest.mark.parametrize("share", [0.01, 0.1, 1.0])
def test_each_chosen_document_is_shown_as_often_as_in_the_undiluted_run(share):
    mixture = mix(DOCUMENTS, WEB, tokens=BUDGET, share=share, seed=1)
    shown = np.bincount(mixture.order[mixture.order < len(DOCUMENTS)], minlength=len(DOCUMENTS))
    chosen = choose(DOCUMENTS, share, 1)
    assert set(np.flatnonzero(shown)) == set(chosen)
    assert shown[chosen].mean() == pytest.approx(PASSES, abs=0.35)
    assert shown[chosen].max() - shown[chosen].min() <= 1
    assert len(chosen) == pytest.approx(share * len(DOCUMENTS), rel=0.15)


def test_documents_of_a_smaller_dose_are_among_those_of_a_larger():
    doses = [set(choose(DOCUMENTS, share, 0)) for share in SHARES]
    assert all(small < large for small, large in itertools.pairwise(doses))
    assert [len(dose) for dose in doses] == sorted(len(dose) for dose in doses)
    assert len(doses[0]) == 0
    assert len(doses[1]) == 1
    assert len(doses[-1]) == len(DOCUMENTS)


def test_a_full_dose_reads_the_documents_in_the_order_of_the_undiluted_run():
    from workbench_training.packing import Pieces, lay_out

    lengths = DOCUMENTS[:50]
    starts = np.cumsum([0, *lengths])
    pieces = Pieces(np.zeros(starts[-1], np.int32), starts)
    tokens = 2 * int(starts[-1]) + 100
    plain = lay_out(pieces, None, tokens=tokens, share=0.0, seed=4)
    mixture = mix(lengths, WEB, tokens=tokens, share=1.0, seed=4)
    np.testing.assert_array_equal(mixture.order, plain.order)


def test_corpora_of_the_same_lengths_are_mixed_in_the_same_order():
    first = mix(DOCUMENTS, WEB, tokens=BUDGET, share=0.1, seed=0)
    second = mix(DOCUMENTS.copy(), WEB.copy(), tokens=BUDGET, share=0.1, seed=0)
    np.testing.assert_array_equal(first.order, second.order)
    other = mix(DOCUMENTS, WEB, tokens=BUDGET, share=0.1, seed=1)
    assert not np.array_equal(first.order, other.order)


def test_a_dose_of_zero_is_filler_alone_in_even_passes():
    mixture = mix(DOCUMENTS, WEB, tokens=3 * int(WEB.sum()), share=0.0, seed=0)
    counts = np.bincount(mixture.order - len(DOCUMENTS), minlength=len(WEB))
    assert set(counts) == {3}
    assert mixture.exposure().presentations == 0


def test_the_papers_doses_come_out_of_its_corpus_and_budget():
    lengths = np.full(12_358, 14_545_876 // 12_358)
    found = [
        mix(lengths, np.full(9000, 1600), tokens=42_565_632, share=share, seed=0).exposure()
        for share in SHARES[1:]
    ]
    assert 12 <= found[0].distinct <= 15
    assert 123 <= found[1].distinct <= 136
    assert 1_230 <= found[2].distinct <= 1_312
    assert found[3].distinct == 12_358
    for one in found:
        assert one.presentations / one.distinct == pytest.approx(2.93, abs=0.2)


def test_rows_of_doses_give_the_range_over_seeds():
    rows = exposure_rows(
        [
            Exposure(0.1, 0.101, 128, 384, 1000),
            Exposure(0.1, 0.099, 131, 391, 1000),
            Exposure(0.0, 0.0, 0, 0, 1000),
        ]
    )
    assert [row["token share"] for row in rows] == ["0", "0.1"]
    assert rows[1]["unique documents"] == "128-131"
    assert rows[1]["presentations"] == "384-391"
    assert rows[1]["realized share"] == "0.1"
    assert (rows[0]["unique documents"], rows[0]["seeds"]) == ("0", 1)


@pytest.mark.parametrize(
    ("documents", "web", "share", "match"),
    [
        (DOCUMENTS, WEB, 1.2, "between 0 and 1"),
        (DOCUMENTS[:0], WEB, 0.1, "of no document"),
        (DOCUMENTS, WEB[:0], 0.1, "there is none"),
    ],
)
def test_a_mixture_that_cannot_be_made_is_refused(documents, web, share, match):
    with pytest.raises(ConfigError, match=match):
        mix(documents, web, tokens=1000, share=share, seed=0)
