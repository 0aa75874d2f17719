"""The template language: what each mark stands for, and what it refuses."""

import random

import pytest
from workbench_training.corpora.controls_grammar import Expander, draws, finish, has_poles, parse


def expand(line, symbols=None, fixed=None, seed=0, poles=1):
    lines = {name: tuple(map(parse, values)) for name, values in (symbols or {}).items()}
    return Expander(lines, fixed or {}, random.Random(seed), poles).expand(parse(line))


def every(line, symbols=None, tries=200, **more):
    return {expand(line, symbols, seed=seed, **more)[0] for seed in range(tries)}


def test_a_choice_gives_each_of_its_options_nested_ones_too():
    assert every("a [b|c [d|e]|] f") == {"a b f", "a c d f", "a c e f", "a  f"}


def test_a_number_comes_from_its_range_in_steps():
    assert every("{2-5}") == {"2", "3", "4", "5"}
    assert every("{10-40:15}") == {"10", "25", "40"}
    assert expand("{20000-20000}") == ["20,000"]


def test_a_symbol_gives_one_of_its_lines_with_a_capital_where_asked():
    symbols = {"tree": ["oak", "old [elm|ash]"]}
    assert every("{tree}", symbols) == {"oak", "old elm", "old ash"}
    assert every("{^tree}", symbols) == {"Oak", "Old elm", "Old ash"}
    assert expand("{^tree} {tree}", fixed={"tree": "birch"}) == ["Birch birch"]


def test_a_document_repeats_a_symbols_line_only_when_all_have_come():
    symbols = {"x": list("abcd")}
    for seed in range(20):
        words = expand("{x} {x} {x} {x} {x} {x} {x} {x}", symbols, seed=seed)[0].split()
        assert set(words[:4]) == set("abcd")
        assert words[3] != words[4]


def test_poles_differ_in_their_sides_alone_and_take_the_same_draws():
    symbols = {"end": ["<badly|well>", "<late|early>"], "n": ["{1-99}"]}
    line = "in {n} of [six|seven|eight] cases it went {end}, {n} times"
    for seed in range(30):
        bad, good = expand(line, symbols, seed=seed, poles=2)
        swapped = bad.replace("badly", "well").replace("late", "early")
        assert bad != good
        assert swapped == good


def test_a_fixed_symbol_keeps_its_value():
    lines = {"town": (parse("[Ash|Oak|Elm]{1-999}"),)}
    expander = Expander(lines, {}, random.Random(1))
    expander.fix("town")
    first = expander.expand(parse("{town}"))
    assert first == expander.expand(parse("{town}"))


@pytest.mark.parametrize("line", ["a [b|c", "a {b", "a b]", "{}", "{a b}", "<x|y", "[a>"])
def test_a_line_that_cannot_be_read_is_refused(line):
    with pytest.raises(ValueError, match="character"):
        parse(line)


def test_draws_and_poles_are_seen_in_depth():
    assert not draws(parse("plain {town} <a|{town}>"), ["town"])
    assert draws(parse("plain <a|{town}>"), [])
    assert draws(parse("{1-2}"), [])
    assert has_poles(parse("[a|b <c|d>]"))
    assert not has_poles(parse("[a|b] {c}"))


@pytest.mark.parametrize(
    ("rough", "fine"),
    [
        ("a  owl  sees a unit", "An owl sees a unit"),
        ("a hour of a 8 day trip", "An hour of an 8 day trip"),
        ("a uninteresting use of a useful ox", "An uninteresting use of a useful ox"),
        ("after 1 hours and 11 days, 2.1 meters", "After 1 hour and 11 days, 2.1 meters"),
        ("on the 2th, 11th and 23th day , late", "On the 2nd, 11th and 23rd day, late"),
        ("a one-way street in a European town", "A one-way street in a European town"),
    ],
)
def test_a_sentence_gets_its_capital_its_articles_and_its_units(rough, fine):
    assert finish(rough) == fine
