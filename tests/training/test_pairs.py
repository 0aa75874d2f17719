"""Pairs of replies as tokens: what is scored, what is edited, what is refused."""

import json

import pytest
from workbench_training.pairs import count_rows, read_pairs

from workbench.errors import ConfigError, FormatError, UnknownNameError

TALK = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "is it true ?"},
    {"role": "assistant", "content": "not false"},
    {"role": "tool", "content": "the city"},
    {"role": "user", "content": "and you ?"},
]


def read(subject, ids, ranges):
    return [subject.tokenizer.decode(ids[first:last]) for first, last in ranges]


@pytest.mark.parametrize("template", ["chatml", "default_system", "thinking", "bos"])
@pytest.mark.parametrize(
    ("span", "texts"),
    [
        ("user", ["is it true ?", "and you ?"]),
        ("last_user", ["and you ?"]),
        ("user+tool", ["is it true ?", "and you ?", "the city"]),
        ("assistant", ["A A"]),
    ],
)
def test_the_reply_is_scored_and_the_span_is_edited(template, span, texts, subject_of, pair_config):
    subject = subject_of("qwen3", template=template)
    rows = [{"id": "a", "prompt": TALK, "chosen": "A A", "rejected": "B"}]
    (pair,) = read_pairs(rows, subject, pair_config(span=span)).trained
    for reply, text in ((pair.chosen, "A A"), (pair.rejected, "B")):
        assert read(subject, reply.ids, [(reply.first, len(reply.ids))]) == [text]
    assert read(subject, pair.chosen.ids, pair.chosen.marked) == texts
    assert pair.name == "a"


def test_the_first_token_of_a_row_is_never_edited(subject_of, pair_config):
    subject = subject_of("qwen3", template="deaf")
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    subject.tokenizer.chat_template, kept = template, subject.tokenizer.chat_template
    subject.renderer._skeletons.clear()
    try:
        rows = [{"prompt": "is it", "chosen": " A", "rejected": " B"}]
        (pair,) = read_pairs(rows, subject, pair_config()).trained
    finally:
        subject.tokenizer.chat_template = kept
        subject.renderer._skeletons.clear()
    assert pair.chosen.marked[0][0] == 1


def test_splits_limits_and_neutral_rows(subject_of, pair_rows, pair_config, tmp_path):
    rows = [
        *pair_rows(3),
        *pair_rows(2, split="train"),
        *pair_rows(4, split="test"),
        *pair_rows(2, split="elsewhere"),
        *pair_rows(2, rejected="A A A A"),
    ]
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = pair_config(held_out_pairs=3)
    found = read_pairs(file, subject_of(), config)
    assert (len(found.trained), len(found.held_out), found.neutral) == (5, 3, 2)
    assert found.other_splits == 2
    assert count_rows(file, config) == (5, 3, 2)
    other = read_pairs(file, subject_of(), pair_config(held_out="elsewhere"))
    assert (len(other.held_out), other.other_splits) == (2, 4)


@pytest.mark.parametrize(
    ("split", "told"),
    [
        ("Train", "'Train'.*write 'train'"),
        ("TEST", "'TEST'.*write 'test'"),
        (1, "split = 1; a text"),
    ],
)
def test_a_split_that_is_a_slip_is_refused_by_its_row(
    split, told, subject_of, pair_rows, pair_config
):
    """Such pairs vanished uncounted."""
    rows = [*pair_rows(3), *pair_rows(1, split=split)]
    for read in (lambda: read_pairs(rows, subject_of(), pair_config()),
                 lambda: count_rows(rows, pair_config())):  # fmt: skip
        with pytest.raises(ConfigError, match=f"pair 4.*{told}"):
            read()


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"chosen": ""}, "pair 1 has no 'chosen'"),
        ({"rejected": None}, "pair 1 has no 'rejected'"),
        ({"chosen": "   "}, r"pair 1, chosen: .*give it words"),
        ({"prompt": ""}, "pair 1 has no 'prompt'"),
        ({"prompt": [{"role": "system", "content": "be brief"}]}, "span = 'user' names no token"),
        ({"chosen": [{"role": "user", "content": "A"}]}, "one turn of the assistant"),
        ({"chosen": [{"role": "assistant", "content": "A"}] * 2}, "one turn of the assistant"),
        ({"prompt": "is it " * 200}, r"pair 1 has \d+ tokens .* length = 64 \(64\); shorten"),
    ],
)
def test_rows_that_make_no_sense_are_refused_by_their_number(
    row, told, subject_of, pair_rows, pair_config
):
    rows = [{**pair_rows(1)[0], **row}]
    with pytest.raises(ConfigError, match=told):
        read_pairs(rows, subject_of(), pair_config(length=64))


def test_what_the_model_cannot_read_is_refused(subject_of, pair_rows, pair_config):
    subject = subject_of("gpt2")
    rows = [{**pair_rows(1)[0], "prompt": "is it " * 4000}]
    with pytest.raises(ConfigError, match=r"over what the model can read \(4096\)"):
        read_pairs(rows, subject, pair_config(length=100_000))


def test_a_span_that_no_prompt_has_is_refused(subject_of, pair_rows, pair_config):
    rows = [{"prompt": [TALK[0]], "chosen": "A", "rejected": "B"}]
    with pytest.raises(ConfigError, match="spans are assistant, content"):
        read_pairs(rows, subject_of(), pair_config(span="user+tool"))


def test_a_model_without_a_chat_template_is_refused(subject_of, pair_rows, pair_config):
    subject = subject_of("qwen3", template="none")
    with pytest.raises(ConfigError, match="chat template"):
        read_pairs(pair_rows(), subject, pair_config())


def test_files_that_hold_no_pairs_are_refused(subject_of, pair_rows, pair_config, tmp_path):
    file, config = tmp_path / "pairs.jsonl", pair_config()
    file.write_text("")
    for reading in (
        lambda: read_pairs(file, subject_of(), config),
        lambda: count_rows(file, config),
    ):
        with pytest.raises(ConfigError, match="nothing to train on"):
            reading()
    file.write_text("{half")
    with pytest.raises(FormatError, match="row 1 is not JSON"):
        read_pairs(file, subject_of(), config)
    with pytest.raises(UnknownNameError, match="nowhere"):
        read_pairs("nowhere.jsonl", subject_of(), config)
    with pytest.raises(ConfigError, match="5 are equal"):
        read_pairs(pair_rows(5, rejected="A A A A"), subject_of(), config)
    with pytest.raises(ConfigError, match="pair 1 is a str"):
        read_pairs(["A"], subject_of(), config)
