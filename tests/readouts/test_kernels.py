"""Letter mass and candidate scoring on stub answers."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from workbench.errors import ConfigError, MismatchError, UnknownNameError
from workbench.readouts.ask import ask, make_readout
from workbench.readouts.candidates import (
    candidate_read,
    continuation,
    expected_value,
    terminators,
)
from workbench.readouts.choice import (
    Letters,
    letter_mass,
    mass_reason,
    rotations,
    shares,
    spellings,
)
from workbench.readouts.claims import Claims
from workbench.results import table


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
    logs = letters.log_masses(np.log([a[token] for token in keep]))
    np.testing.assert_allclose(np.exp(logs), [0.2, 0.1])
    np.testing.assert_allclose(shares(logs), [2 / 3, 1 / 3])
    assert mass_reason(letter_mass(logs)) == "low_mass"
    assert mass_reason(0.5) == "ok"


def test_shares_survive_masses_below_the_smallest_float_but_not_none_at_all():
    np.testing.assert_allclose(shares(np.log([3.0, 1.0]) - 2000), [0.75, 0.25])
    np.testing.assert_array_equal(shares(np.array([-np.inf, -5.0])), [0, 1])
    assert np.isnan(shares(np.full(3, -np.inf))).all()
    assert np.isnan(expected_value(np.full(3, -np.inf), np.arange(3.0))[0])


def test_a_value_that_is_no_number_is_kept_as_invalid(tiny_subject):
    class Drowned(Claims):
        def score(self, requests, answers):
            return super().score(requests, [(np.full_like(a, np.nan),) for (a,) in answers])

    (outcome,) = ask(tiny_subject, [Drowned(measures=["loglik"])])
    assert {(m.valid, m.reason, m.value) for m in outcome.measurements} == {
        (False, "out_of_range", None)
    }
    assert len(table(outcome.measurements)) == len(outcome.measurements)


def sentencepiece():
    """A tokenizer as Llama 2's: words begin with a bar, unknown characters become bytes."""
    pieces = ["<unk>", "<s>", "</s>", "[/INST]"]
    pieces += [f"<0x{byte:02X}>" for byte in range(256)]
    pieces += ["\u2581", *"ABCD0123456789", *("\u2581" + c for c in "ABCD"), ":"]
    scores = [(piece, -float(len(piece))) for piece in pieces]
    backend = Tokenizer(models.Unigram(scores, unk_id=0, byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens([AddedToken(name, special=True) for name in pieces[1:4]])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )


def ids_of(tokenizer, text):
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def test_letters_are_found_with_a_bar_bare_and_as_a_byte_where_words_begin_with_bars():
    tokenizer = sentencepiece()
    found = tokenizer.convert_ids_to_tokens(spellings(tokenizer, "A")["A"])
    assert sorted(found) == ["<0x41>", "A", "\u2581A"]


@pytest.mark.parametrize("after", ["A\n", "A", "A:", "A[/INST]"])
def test_a_continuation_is_cut_as_the_whole_is_where_words_begin_with_bars(after):
    tokenizer = sentencepiece()
    before = ids_of(tokenizer, after)
    assert (*before, *continuation(tokenizer, "10", before)) == ids_of(tokenizer, after + "10")


def test_the_first_word_of_a_line_has_no_bar():
    tokenizer = sentencepiece()
    found = continuation(tokenizer, "7", ids_of(tokenizer, "A\n"))
    assert tokenizer.convert_ids_to_tokens(found) == ["7"]


def melting(merge):
    """A tokenizer in which a line break and what follows are one token."""
    pieces = ["<e>", *sorted(pre_tokenizers.ByteLevel.alphabet()), merge]
    backend = Tokenizer(
        models.BPE(vocab={piece: n for n, piece in enumerate(pieces)}, merges=[tuple(merge)])
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<e>")


def test_a_text_that_would_melt_into_the_header_is_cut_alone():
    tokenizer = melting("\u010a7")
    line = ids_of(tokenizer, "\n")
    assert len(ids_of(tokenizer, "\n7")) == 1
    found = continuation(tokenizer, "7", line)
    assert tokenizer.decode([*line, *found]) == "\n7"


def test_the_prefix_alone_goes_to_the_prompt_whatever_the_answers_share(tiny_tokenizer):
    tokenizer = tiny_tokenizer()
    after = ids_of(tokenizer, "user\n")
    start, read = candidate_read(tokenizer, after, ["10", "11"], (2,), "Answer:")
    assert tokenizer.decode(list(start)) == "Answer:"
    assert [tokenizer.decode(list(c)) for c in read.candidates] == ["10", "11"]
    start, read = candidate_read(tokenizer, after, [" not true"], (2,), "It is")
    assert [tokenizer.decode(list(part)) for part in (start, *read.candidates)] == [
        "It is",
        " not true",
    ]


def test_an_answer_ends_where_the_chat_template_ends_a_turn(tiny_subject):
    own = tiny_subject.tokenizer
    assert terminators(tiny_subject)[0] == own.eos_token_id
    gemma = copy.deepcopy(own)
    gemma.eos_token = "<|endoftext|>"
    other = replace(tiny_subject, tokenizer=gemma, renderer=type(tiny_subject.renderer)(gemma))
    found = [gemma.decode([token]) for token in terminators(other)]
    assert found == ["<|im_end|>", "<|endoftext|>", "\n"]


def test_rotations_put_each_option_once_at_each_place():
    table = np.array([[ord(o) for o in order] for order in rotations("PSNA")])
    assert all(len(set(column)) == 4 for column in table.T)
    assert rotations("AB") == [("A", "B"), ("B", "A")]


def test_a_candidate_read_ends_in_end_of_turn_or_newline_and_never_a_full_stop(tiny_subject):
    tokenizer = tiny_subject.tokenizer
    start, read = candidate_read(tokenizer, (5,), ["1", "10"], terminators(tiny_subject))
    assert start == ()
    assert [tokenizer.decode(list(c)) for c in read.candidates] == ["1", "10"]
    assert read.candidates[1][0] == read.candidates[0][0]
    assert {tokenizer.decode([t]) for t in read.terminators} == {"<|im_end|>", "\n"}


def test_a_prefix_goes_to_the_prompt_and_its_blank_to_whoever_the_tokenizer_gives_it(
    tiny_tokenizer,
):
    tokenizer = tiny_tokenizer()
    start, read = candidate_read(tokenizer, (5,), ["0", "1", "10"], (2,), "Answer: ")
    whole = [tokenizer.decode([*start, *candidate]) for candidate in read.candidates]
    assert whole == ["Answer: 0", "Answer: 1", "Answer: 10"]
    assert tokenizer.decode(list(start)).startswith("Answer:")
    assert all(read.candidates)
    _, alone = candidate_read(tokenizer, (5,), ["A"], (2,), "Answer: ")
    assert alone.candidates[0]


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
    with pytest.raises(ConfigError, match="has no parameter 'counterpart'; it has counterparts"):
        make_readout({"name": "trust_game", "counterpart": "person"})
    with pytest.raises(UnknownNameError, match="Did you mean 'trust_game'"):
        make_readout("trust_gam")
