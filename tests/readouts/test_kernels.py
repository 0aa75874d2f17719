"""Letter mass and candidate scoring on stub answers."""

import numpy as np
import pytest

from workbench.errors import ConfigError, MismatchError, UnknownNameError
from workbench.readouts.ask import make_readout
from workbench.readouts.candidates import candidate_read, continuation, expected_value
from workbench.readouts.choice import Letters, mass_reason, rotations, shares, spellings


def test_every_single_token_spelling_of_a_letter_counts_and_no_lower_case(tiny_tokenizer):
    tokenizer = tiny_tokenizer()
    found = spellings(tokenizer, "AB")
    texts = {tokenizer.decode([token]) for token in found["A"]}
    assert texts == {"A", " A"}
    assert set(found["A"]).isdisjoint(found["B"])


def test_a_label_of_several_tokens_is_refused(tiny_tokenizer):
    with pytest.raises(MismatchError, match=r"'10'.*candidate scoring"):
        spellings(tiny_tokenizer(), ["1", "10"])


def test_masses_sum_the_spellings_and_shares_normalize(tiny_tokenizer):
    letters = Letters.of(tiny_tokenizer(), "AB")
    keep = letters.read.keep
    a = dict.fromkeys(letters.tokens["A"], 0.1) | dict.fromkeys(letters.tokens["B"], 0.05)
    mass = letters.masses(np.log([a[token] for token in keep]))
    np.testing.assert_allclose(mass, [0.2, 0.1])
    np.testing.assert_allclose(shares(mass), [2 / 3, 1 / 3])
    assert mass_reason(float(mass.sum())) == "low_mass"
    assert mass_reason(0.5) == "ok"


def test_rotations_put_each_option_once_at_each_place():
    table = np.array([[ord(o) for o in order] for order in rotations("PSNA")])
    assert all(len(set(column)) == 4 for column in table.T)
    assert rotations("AB") == [("A", "B"), ("B", "A")]


def test_a_candidate_read_ends_in_end_of_turn_or_newline_and_never_a_full_stop(tiny_tokenizer):
    tokenizer = tiny_tokenizer()
    start, read = candidate_read(tokenizer, ["1", "10"])
    assert start == ()
    assert [tokenizer.decode(list(c)) for c in read.candidates] == ["1", "10"]
    assert read.candidates[1][0] == read.candidates[0][0]
    assert {tokenizer.decode([t]) for t in read.terminators} == {"<|im_end|>", "\n"}


def test_a_prefix_goes_to_the_prompt_and_its_blank_to_whoever_the_tokenizer_gives_it(
    tiny_tokenizer,
):
    tokenizer = tiny_tokenizer()
    start, read = candidate_read(tokenizer, ["0", "1", "10"], "Answer: ")
    whole = [tokenizer.decode([*start, *candidate]) for candidate in read.candidates]
    assert whole == ["Answer: 0", "Answer: 1", "Answer: 10"]
    assert tokenizer.decode(list(start)).startswith("Answer:")
    assert all(read.candidates)
    _, alone = candidate_read(tokenizer, ["A"], "Answer: ")
    assert alone.candidates[0]


def test_a_continuation_is_tokenized_as_at_the_start_of_a_line(tiny_tokenizer):
    tokenizer = tiny_tokenizer()
    whole = tokenizer("\n7", add_special_tokens=False)["input_ids"]
    assert [
        *tokenizer("\n", add_special_tokens=False)["input_ids"],
        *continuation(tokenizer, "7"),
    ] == whole


def test_expected_value_weighs_by_joint_probability_and_reports_the_mass():
    value, mass = expected_value(np.log([0.1, 0.3]), np.array([0.0, 10.0]))
    assert value == pytest.approx(7.5)
    assert mass == pytest.approx(0.4)
    far, _ = expected_value(np.array([-2000.0, -2001.0]), np.array([0.0, 1.0]))
    assert far == pytest.approx(1 / (1 + np.e))


def test_a_readout_is_made_from_a_name_or_a_table():
    assert make_readout({"name": "trust_game", "counterparts": ["person"]}).name == "trust_game"
    with pytest.raises(ConfigError, match="has no name"):
        make_readout({"counterparts": ["person"]})
    with pytest.raises(ConfigError, match="unexpected keyword argument 'counterpart'"):
        make_readout({"name": "trust_game", "counterpart": "person"})
    with pytest.raises(UnknownNameError, match="Did you mean 'trust_game'"):
        make_readout("trust_gam")
