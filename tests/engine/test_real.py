"""The engine on SmolLM2 in float32: shortcuts within a thousandth of a nat of the plain way."""

import numpy as np
import pytest
import torch

from workbench.engine.hooks import HookRunner
from workbench.types import CandidatesRead, LogitsRead, Read, Request

pytestmark = pytest.mark.real
RUNNER = HookRunner()
CHATS = [
    [{"role": "user", "content": "How many of your ten coins do you send?"}],
    [{"role": "user", "content": "Name a number."}],
]


def requests_of(subject):
    encode = subject.tokenizer.encode
    amounts = [tuple(encode(str(number), add_special_tokens=False)) for number in (1, 10)]
    read = CandidatesRead(tuple(amounts), (subject.tokenizer.eos_token_id, encode("\n")[0]))
    reads = (read, LogitsRead(), Read(layers=(10, 15, 29)))
    rendered = [subject.renderer.render(chat) for chat in CHATS]
    return [Request(str(n), "c", one.ids, reads, one.spans) for n, one in enumerate(rendered)]


def test_answers_equal_the_plain_way(real_subject, make_edit, oracle):
    def edit(name, layer, dose, scope, **rows):
        return make_edit(name, layer, dose, scope, width=576, **rows)

    band = {"floor": 1.0, "ceiling": float("inf")}
    arms = [
        (),
        (edit("add", 15, 30.0, "all"),),
        (edit("cap", 20, 1.0, "last", **band), edit("ablate", 22, 1.0, "all+first")),
        (edit("add", 15, 30.0, "user+generated"), edit("add", 20, 20.0, "prompt")),
    ]
    requests = requests_of(real_subject)
    got = RUNNER.answer(real_subject, requests, arms)
    expected = oracle(real_subject, requests, arms)
    for arm, expected_arm in zip(got.values, expected, strict=True):
        for (scores, logits, hidden), plain in zip(arm, expected_arm, strict=True):
            assert np.abs(scores - plain[0]).max() < 1e-3
            assert np.abs(np.exp(logits) - np.exp(plain[1])).max() < 1e-4
            size = np.linalg.norm(plain[2], axis=-1, keepdims=True)
            assert (np.abs(hidden - plain[2]) / size).max() < 1e-4
    assert np.abs(got.values[1][0][0] - got.values[0][0][0]).max() > 0.05


@pytest.mark.parametrize(("scope", "beams"), [("last", 1), ("generated", 1), ("user+generated", 2)])
def test_a_steered_text_is_the_same_with_and_without_a_cache(scope, beams, real_subject, make_edit):
    ids = real_subject.encode(CHATS[1:]).input_ids
    options = {
        "max_new_tokens": 6, "do_sample": False, "pad_token_id": 2, "num_beams": beams,
        "num_return_sequences": beams, "attention_mask": torch.ones_like(ids),
    }  # fmt: skip
    texts = []
    with RUNNER.intervene(real_subject, [(make_edit("add", 15, 60.0, scope, width=576),)]):
        for cached in ({}, {"use_cache": False}, {"prefill_chunk_size": 4}):
            with torch.no_grad():
                texts.append(real_subject.model.generate(ids, **cached, **options))
    plain = real_subject.model.generate(ids, **options)
    assert torch.equal(texts[0], texts[1])
    assert torch.equal(texts[0], texts[2])
    assert not torch.equal(texts[0], plain)
