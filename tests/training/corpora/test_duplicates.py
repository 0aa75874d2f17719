"""MinHash finds what was planted, and what it finds is what comparing all pairs finds."""

import random
from itertools import combinations

import numpy as np
import pytest
from workbench_training.corpora import duplicates
from workbench_training.corpora.duplicates import (
    Pair,
    candidates,
    jaccard,
    minima,
    near_duplicates,
    repeats,
)
from workbench_training.corpora.words import number_words, run_numbers, shingles, words_of

from workbench.errors import ConfigError


def random_words(rng, count):
    return [f"w{rng.randrange(4000)}" for _ in range(count)]


def altered(words, share, rng):
    """Replace one stretch in the middle, so that about ``share`` of the shingles change."""
    start = len(words) // 3
    return [*words[:start], *random_words(rng, int(share * len(words))), *words[start:]][
        : len(words)
    ]


def sets_of(texts):
    return [shingles(number_words(words)) for words in texts]


def found_in(sets, threshold=0.7):
    signatures = np.stack([minima(one) for one in sets])
    return near_duplicates(signatures, lambda places: ((p, sets[p]) for p in places), threshold)


def plain_jaccard(first, second, length=5):
    runs = [
        {tuple(ws[i : i + length]) for i in range(len(ws) - length + 1)} for ws in (first, second)
    ]
    return len(runs[0] & runs[1]) / len(runs[0] | runs[1])


def test_the_numbers_of_runs_are_equal_exactly_where_the_runs_are():
    words = words_of("the cat sat on the cat sat on the mat")
    runs = run_numbers(number_words(words), 3)
    plain = [tuple(words[i : i + 3]) for i in range(len(words) - 2)]
    assert len(runs) == len(plain)
    for i, j in combinations(range(len(plain)), 2):
        assert (runs[i] == runs[j]) == (plain[i] == plain[j])


def test_order_within_a_run_counts():
    forth, back = (
        run_numbers(number_words(words), 3) for words in (["a", "b", "c"], ["c", "b", "a"])
    )
    assert forth != back


def test_a_text_shorter_than_a_shingle_is_one_shingle():
    short = [
        shingles(number_words(words_of(text))) for text in ("Yes, indeed.", "yes indeed", "no")
    ]
    assert [len(one) for one in short] == [1, 1, 1]
    assert jaccard(short[0], short[1]) == 1.0
    assert jaccard(short[0], short[2]) == 0.0


def test_the_exact_index_is_that_of_plain_sets():
    rng = random.Random(1)
    words = random_words(rng, 300)
    for share in (0.0, 0.05, 0.2, 0.5, 1.0):
        other = altered(words, share, rng)
        exact = jaccard(*sets_of([words, other]))
        assert exact == pytest.approx(plain_jaccard(words, other), abs=0)


def test_minima_agree_as_often_as_the_sets_are_alike():
    rng = random.Random(2)
    gaps = []
    for share in (0.05, 0.15, 0.3, 0.45) * 10:
        words = random_words(rng, 900)
        first, second = sets_of([words, altered(words, share, rng)])
        gaps.append(float((minima(first) == minima(second)).mean()) - jaccard(first, second))
    assert max(map(abs, gaps)) < 4.5 * (0.25 / 128) ** 0.5
    assert abs(np.mean(gaps)) < 0.02


def test_every_planted_pair_is_found_and_nothing_else():
    rng = random.Random(3)
    texts = [random_words(rng, 400) for _ in range(120)]
    shares = [0.0, 0.02, 0.05, 0.08, 0.1, 0.12, 0.14]
    texts += [altered(texts[place], shares[place % len(shares)], rng) for place in range(70)]
    sets = sets_of(texts)
    brute = {
        (i, j): jaccard(sets[i], sets[j])
        for i, j in combinations(range(len(sets)), 2)
        if jaccard(sets[i], sets[j]) >= 0.7
    }
    assert len(brute) >= 60
    assert {(p.first, p.second): p.jaccard for p in found_in(sets)} == brute


def test_pairs_just_above_the_threshold_are_recalled():
    """A pair at 0.7 shares a band of 4 among 32 with probability 0.9998."""
    rng, texts = random.Random(4), []
    for _ in range(400):
        words = random_words(rng, 200)
        texts += [words, altered(words, 0.135, rng)]
    sets = sets_of(texts)
    alike = [jaccard(sets[2 * i], sets[2 * i + 1]) for i in range(400)]
    assert 0.7 <= min(alike) <= max(alike) < 0.76
    assert {(p.first, p.second) for p in found_in(sets)} == {(2 * i, 2 * i + 1) for i in range(400)}


def test_half_alike_documents_are_candidates_at_most():
    rng = random.Random(5)
    words = random_words(rng, 400)
    sets = sets_of([words, altered(words, 0.4, rng)])
    assert 0.3 < jaccard(*sets) < 0.6
    assert found_in(sets) == []


def test_copies_of_one_text_are_all_found():
    words = random_words(random.Random(6), 100)
    pairs = found_in(sets_of([words] * 40))
    assert len(pairs) == 40 * 39 // 2
    assert {pair.jaccard for pair in pairs} == {1.0}


def test_a_corpus_of_copies_is_refused_before_it_fills_the_memory(monkeypatch):
    monkeypatch.setattr(duplicates, "MOST_PAIRS", 100)
    one = minima(sets_of([random_words(random.Random(7), 100)])[0])
    with pytest.raises(ConfigError, match="repeats itself"):
        candidates(np.repeat(one[None], 20, axis=0), 0.7)


def test_no_documents_have_no_pairs():
    assert candidates(np.zeros((0, 128), np.uint32), 0.7).shape == (0, 2)


def test_the_later_one_of_a_pair_goes_and_what_is_gone_takes_nothing_with_it():
    chain = [Pair(0, 1, 0.8), Pair(1, 2, 0.8), Pair(2, 3, 0.8)]
    assert repeats(chain) == {1, 3}
    assert repeats(chain, gone={0}) == {2}
    assert repeats([]) == set()
