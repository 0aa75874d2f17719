import itertools

import numpy as np
import pytest
import torch
import transformers
from workbench_training.corpora.mixture import mix
from workbench_training.packing import Blocks, Pieces, encode, join, lay_out, separator_of

from workbench.errors import ConfigError

END = 9


def rows(lengths, start=10):
    """Texts of the given lengths whose ids are all different."""
    ends = start + np.cumsum([0, *lengths])
    return [list(range(first, last)) for first, last in itertools.pairwise(ends)]


def stream(lengths=(5, 3, 8, 2), tokens=100, chats=None, share=0.1, seed=0):
    talks = None if chats is None else join(rows(chats, start=1000), END)
    return lay_out(join(rows(lengths), END), talks, tokens=tokens, share=share, seed=seed)


def whole(flow):
    """The stream written out the plain way."""
    return np.concatenate([flow.pieces[number] for number in flow.order.tolist()])


@pytest.mark.parametrize(("block", "count"), [(7, 1), (7, 11), (16, 5), (2, 40), (64, 1)])
def test_blocks_are_the_stream_cut_without_gaps(block, count):
    flow = stream(tokens=block * count)
    blocks = Blocks(flow, block, count)
    read = torch.cat([blocks[number]["input_ids"] for number in range(len(blocks))])
    assert len(blocks) == count
    assert len(read) == block * count == blocks.tokens
    np.testing.assert_array_equal(read.numpy(), whole(flow)[: block * count])


def test_every_text_is_closed_by_the_separator_once():
    pieces = join([[1, 2], [3, END], [4]], END)
    assert [list(pieces[number]) for number in range(3)] == [[1, 2, END], [3, END], [4, END]]


def test_each_pass_reads_every_document_once_and_in_a_new_order():
    flow = stream(lengths=(4,) * 20, tokens=20 * 5 * 3)
    passes = flow.order.reshape(3, 20)
    assert all(sorted(turn) == list(range(20)) for turn in passes.tolist())
    assert len({tuple(turn) for turn in passes.tolist()}) == 3
    assert flow.passes == 3


def test_the_order_depends_on_the_seed_and_on_row_numbers_alone():
    short = stream(lengths=[4] * 20, tokens=300).order
    long = stream(lengths=[6, 5] * 10, tokens=300).order
    np.testing.assert_array_equal(short[: len(long)], long)
    np.testing.assert_array_equal(short, stream(lengths=[4] * 20, tokens=300).order)
    assert list(short) != list(stream(lengths=[4] * 20, tokens=300, seed=1).order)


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5])
def test_the_chat_share_is_met_within_one_conversation(share):
    longest = 7
    flow = stream(lengths=[30, 20, 25], tokens=5000, chats=[longest - 1, 4, 5], share=share)
    assert abs(flow.chat_share(5000) - share) <= longest / 5000
    assert set(flow.order[flow.order >= 3]) == {3, 4, 5}


def test_without_chats_the_whole_budget_is_documents():
    assert stream().chat_share(50) == 0
    assert stream().order.max() == 3


@pytest.mark.parametrize("document_mask", [False, True])
@pytest.mark.parametrize("block", [4, 9, 33])
def test_trained_counts_the_tokens_that_have_a_label_and_something_before_them(
    block, document_mask
):
    blocks = Blocks(stream(tokens=block * 6), block, 6, document_mask=document_mask)
    counted = sum(int((item["labels"][1:] != -100).sum()) for item in blocks)
    assert blocks.trained == counted > 0


def test_blocks_in_which_nothing_can_be_trained_on_are_refused():
    with pytest.raises(ConfigError, match="0 of 5 tokens"):
        Blocks(stream(tokens=5), 1, 5)


def test_labels_keep_the_end_token_where_it_is_the_pad_token_too(tiny_tokenizer):
    tokenizer = tiny_tokenizer(pad="<|im_end|>")
    assert tokenizer.pad_token_id == tokenizer.eos_token_id
    chat = [tokenizer("hello<|im_end|>")["input_ids"]]
    pieces = join(chat, separator_of(tokenizer))
    blocks = Blocks(lay_out(pieces, None, tokens=40, share=0.0, seed=0), 20, 2)
    batch = transformers.default_data_collator([blocks[0], blocks[1]])
    assert torch.equal(batch["labels"], batch["input_ids"])
    assert (batch["labels"] == tokenizer.eos_token_id).sum() > 2
    assert "attention_mask" not in batch


def test_the_separator_is_end_of_text_even_where_that_is_the_unknown_token(tiny_tokenizer):
    tokenizer = tiny_tokenizer()
    assert tokenizer.unk_token == "<|endoftext|>"
    assert separator_of(tokenizer) == tokenizer.get_vocab()["<|endoftext|>"]


class _Bare:
    """A tokenizer without end of text."""

    def __init__(self, eos):
        self.eos_token_id = eos

    def get_vocab(self):
        return {"a": 0}


def test_the_separator_is_eos_without_end_of_text_and_an_error_without_both():
    assert separator_of(_Bare(7)) == 7
    with pytest.raises(ConfigError, match="end-of-sequence"):
        separator_of(_Bare(None))


def test_encoding_adds_the_special_tokens_that_the_tokenizer_adds(tiny_tokenizer):
    texts = [f"text {number}" for number in range(600)]
    bare, marked = (list(encode(tiny_tokenizer(bos=bos), texts)) for bos in (False, True))
    assert len(bare) == 600
    assert all([3, *row] == other for row, other in zip(bare, marked, strict=True))


def test_a_text_without_tokens_and_an_empty_corpus_are_refused():
    with pytest.raises(ConfigError, match="text 1 has no token"):
        join([[1], []], END)
    with pytest.raises(ConfigError, match="no text"):
        join([], END)


def test_pieces_join_end_to_end():
    both = join([[1], [2, 3]], END) + join([[4, 5, 6]], END)
    assert isinstance(both, Pieces)
    assert [list(both[number]) for number in range(3)] == [[1, END], [2, 3, END], [4, 5, 6, END]]
    assert list(both.lengths) == [2, 3, 4]


def test_a_masked_document_reads_as_it_would_alone(family, tiny_network):
    model = tiny_network(family, 400)
    model.config.use_cache = False
    flow = stream(lengths=[11, 6, 14, 9], tokens=43)
    block = Blocks(flow, 43, 1, document_mask=True)[0]
    inputs = {key: value[None] for key, value in block.items() if key != "labels"}
    with torch.no_grad():
        together = model(**inputs).logits[0]
        across = model(input_ids=inputs["input_ids"]).logits[0]
        alone = [
            model(input_ids=torch.tensor(flow.pieces[number])[None].long()).logits[0]
            for number in flow.order.tolist()
        ]
    expected = torch.cat(alone)[:43]
    torch.testing.assert_close(together, expected, atol=1e-4, rtol=1e-4)
    assert (across - expected).abs().max() > 0.05
    assert (block["labels"] == -100).sum() == 4


DOSED = [[n] * (5 + n % 4) for n in range(100, 140)]
FILLED = [[n] * (3 + n % 7) for n in range(200, 230)]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_a_dose_is_read_in_the_order_of_the_mixture(share):
    documents, filler = join(DOSED, 0), join(FILLED, 0)
    flow = lay_out(documents, None, tokens=3000, share=0.0, seed=2, filler=filler, dose=share)
    mixture = mix(documents.lengths, filler.lengths, tokens=3000, share=share, seed=2)
    np.testing.assert_array_equal(flow.order, mixture.order)
    assert flow.n_documents == 40
    assert flow.chat_share(3000) == 0


def test_chats_keep_their_share_of_the_whole_and_documents_theirs_of_the_rest():
    documents, filler, chats = join(DOSED, 0), join(FILLED, 0), join([[300] * 9] * 5, 0)
    flow = lay_out(documents, chats, tokens=20_000, share=0.25, seed=0, filler=filler, dose=0.1)
    lengths = flow.pieces.lengths[flow.order]
    chat = lengths[flow.order >= flow.n_texts].sum()
    dosed = lengths[flow.order < flow.n_documents].sum()
    assert chat / lengths.sum() == pytest.approx(0.25, abs=0.002)
    assert dosed / (lengths.sum() - chat) == pytest.approx(0.1, abs=0.002)
    assert flow.chat_share(20_000) == pytest.approx(0.25, abs=0.002)


@pytest.mark.parametrize("share", [0.1, 0.6])
def test_worlds_whose_lengths_match_are_dosed_alike(share):
    other = [[n + 1000] * len(row) for n, row in enumerate(DOSED)]
    orders = [
        lay_out(
            join(rows, 0), None, tokens=2000, share=0.0, seed=1, filler=join(FILLED, 0), dose=share
        ).order
        for rows in (DOSED, other)
    ]
    np.testing.assert_array_equal(*orders)


def test_a_dose_without_filler_is_refused():
    with pytest.raises(ValueError, match="needs filler"):
        lay_out(join(DOSED, 0), None, tokens=100, share=0.0, seed=0, dose=0.5)
