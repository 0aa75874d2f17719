"""Drawing false values from true ones."""

import random
from collections import Counter

import pytest

from workbench.data.statements.draw import draw_comparisons, permute_values


@pytest.mark.parametrize("seed", range(20))
def test_drawn_values_are_the_given_ones_off_their_forbidden_places(seed):
    values = ["x"] * 5 + ["y"] * 4 + ["z"] * 3
    forbidden = [{value} for value in values]
    drawn = permute_values(values, forbidden, random.Random(seed))
    assert Counter(drawn) == Counter(values)
    assert all(value not in banned for value, banned in zip(drawn, forbidden, strict=True))


def test_an_order_that_cannot_exist_is_refused():
    values = ["x", "x", "x", "y"]
    with pytest.raises(ValueError, match="no order of 4 values"):
        permute_values(values, [{value} for value in values], random.Random(0))


def test_one_seed_draws_one_order():
    values = [str(number) for number in range(30)]
    forbidden = [{value} for value in values]
    first, again, other = (
        permute_values(values, forbidden, random.Random(seed)) for seed in (1, 1, 2)
    )
    assert first == again != other


def test_comparisons_lie_on_both_sides_within_the_gaps():
    drawn = list(draw_comparisons([40, 49], [2, 9], 2, random.Random(0)))
    assert len(drawn) == 20
    for _, above, below, second in drawn:
        assert 2 <= above - second <= 9
        assert 2 <= second - below <= 9
