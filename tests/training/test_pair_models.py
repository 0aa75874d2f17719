"""What training on pairs gives on any model and in any batch; its settings, checked."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from workbench_training.bipo import BiPO
from workbench_training.pair_fit import make_method, train_on_pairs
from workbench_training.pair_loop import PairLoop, cut, rate_at
from workbench_training.pairs import read_pairs
from workbench_training.reply_scores import Scorer, frozen, lay_out, share_prompt

import workbench as wb
from workbench.directions import LinearMap
from workbench.errors import ConfigError
from workbench.linalg import cosine
from workbench.registry import METHODS, needs_model

NAMES = [name for name in METHODS.names() if needs_model(METHODS.factory(name))]
THOROUGH = pytest.mark.thorough


def numbers(found):
    """What was learned, as one array of each part."""
    if isinstance(found, LinearMap):
        return {"left": found.left, "right": found.right, "b": found.b, "axis": found.axis}
    return {"vectors": found.vectors}


def assert_equal(one, other, exact=True, **room):
    for name, value in numbers(one).items():
        if exact:
            np.testing.assert_array_equal(value, numbers(other)[name])
        else:
            np.testing.assert_allclose(value, numbers(other)[name], **room)


@pytest.mark.parametrize("name", NAMES)
def test_padding_and_the_cut_into_forwards_change_no_number(
    name, subject_of, pair_rows, pair_config
):
    rows = pair_rows(6)
    rows[1]["prompt"] *= 7
    rows[4]["chosen"] += " A A A"
    found = [
        train_on_pairs(subject_of(), rows, pair_config(method=name, budget=budget)).found
        for budget in (1, 100_000)
    ]
    assert_equal(*found, exact=False, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("recompute", ["all", 2])
def test_blocks_that_compute_again_change_no_number(recompute, subject_of, pair_rows, pair_config):
    plain = train_on_pairs(subject_of(), pair_rows(), pair_config(recompute="none")).found
    again = train_on_pairs(subject_of(), pair_rows(), pair_config(recompute=recompute)).found
    assert_equal(plain, again, exact=False, rtol=1e-3, atol=1e-4)


def test_the_models_own_gradient_checkpointing_changes_no_number(
    make_subject, pair_rows, pair_config
):
    subject = make_subject()
    plain = train_on_pairs(subject, pair_rows(), pair_config()).found
    newer = hasattr(subject.model, "activation_checkpointing_enable")
    kind = "activation_checkpointing" if newer else "gradient_checkpointing"
    getattr(subject.model, f"{kind}_enable")()
    again = train_on_pairs(subject, pair_rows(), pair_config()).found
    assert_equal(plain, again, exact=False, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "family", ["llama", "gpt2", "gemma3_text", *(pytest.param(n, marks=THOROUGH) for n in (
        "qwen2", "mistral", "gemma2", "olmo2", "phi3", "gpt_neox", "gemma3", "qwen3_moe"))]
)  # fmt: skip
def test_log_probabilities_are_those_of_one_plain_forward_each(
    family, subject_of, pair_rows, pair_config
):
    subject = subject_of(family)
    rows = pair_rows(3)
    rows[1]["prompt"] *= 5
    pairs = read_pairs(rows, subject, pair_config()).trained
    replies = [pair.chosen for pair in pairs]
    with torch.no_grad():
        scorer = Scorer(subject)
        found = scorer(lay_out([(reply,) for reply in replies], scorer.pad, scorer.device))
        for reply, value in zip(replies, found.tolist(), strict=True):
            logprobs = subject.model(torch.tensor([reply.ids])).logits[0].float().log_softmax(-1)
            plain = sum(
                float(logprobs[t - 1, reply.ids[t]]) for t in range(reply.first, len(reply.ids))
            )
            assert value == pytest.approx(plain, abs=1e-4)
    done = train_on_pairs(subject, rows, pair_config(epochs=1))
    assert done.told["loss_first"] == pytest.approx(np.log(2), abs=1e-5)
    assert np.isfinite(done.found.vectors).all()


OPEN = ("qwen3", "llama", "gpt2", "peft_llama")
WINDOWED = ("gemma3_text",)
CARRIED = ("qwen3_next",)


@pytest.mark.parametrize("family", [*OPEN, *(pytest.param(n, marks=THOROUGH) for n in (
    "qwen2", "phi3", "olmo2", "gpt_neox", "qwen3_moe"))])  # fmt: skip
@pytest.mark.parametrize("name", NAMES)
def test_replies_that_share_their_prompt_in_one_row_score_and_learn_alike(
    family, name, subject_of, pair_rows, pair_config, monkeypatch
):
    subject = subject_of(family)
    rows = pair_rows(5)
    rows[1]["prompt"] *= 3
    rows[2]["rejected"] += " B B"
    rows[3]["chosen"] = "A"
    for span in ("user", "assistant"):
        config = pair_config(method=name, span=span, epochs=1, params=(
            {"gamma": 0.3} if name == "bipo" else {}))  # fmt: skip
        one = train_on_pairs(subject, rows, config)
        assert one.told["joined"]
        with monkeypatch.context() as patch:
            patch.setattr(Scorer, "joins", lambda *_: False)
            other = train_on_pairs(subject, rows, config)
        for row, plain in zip(one.log, other.log, strict=True):
            for key in ("loss", "grad_norm", "reward_chosen"):
                assert row[key] == pytest.approx(plain[key], rel=1e-4, abs=2e-4)
        assert_equal(one.found, other.found, exact=False, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("family", [*WINDOWED, *CARRIED])
def test_where_blocks_see_a_window_or_carry_a_state_each_reply_has_a_row(
    family, subject_of, pair_rows, pair_config
):
    done = train_on_pairs(subject_of(family), pair_rows(), pair_config(epochs=1))
    assert not done.told["joined"]
    assert done.told["loss_first"] == pytest.approx(np.log(2), abs=1e-5)


def test_replies_to_prompts_that_differ_have_rows_of_their_own(subject_of, pair_rows, pair_config):
    pairs = read_pairs(pair_rows(2), subject_of(), pair_config()).trained
    one, other = pairs
    assert share_prompt((one.chosen, one.rejected))
    assert not share_prompt((one.chosen, other.chosen))
    moved = replace(one.rejected, marked=((2, 4),))
    assert not share_prompt((one.chosen, moved))


def test_an_adapters_wrapper_is_trained_through(make_subject, pair_rows, pair_config):
    """The adapter acts, stays frozen, and is as it was afterwards."""
    subject = make_subject("peft_llama")
    before = {name: (p.clone(), p.requires_grad) for name, p in subject.model.named_parameters()}
    found = train_on_pairs(subject, pair_rows(), pair_config()).found
    for name, parameter in subject.model.named_parameters():
        assert torch.equal(parameter, before[name][0])
        assert parameter.requires_grad == before[name][1]
        assert parameter.grad is None
    assert not any(module._forward_hooks for module in subject.blocks.values())
    with subject.model.disable_adapter():
        bare = train_on_pairs(subject, pair_rows(), pair_config()).found
    assert np.abs(found.vectors - bare.vectors).max() > 1e-3


def test_a_bfloat16_model_learns_the_same_way(tiny_folder, pair_rows, pair_config, tmp_path):
    from workbench.models import read_checkpoint

    folder = str(tiny_folder(tmp_path / "tiny"))
    found = [
        train_on_pairs(read_checkpoint(folder, dtype=d, device="cpu"), pair_rows(), pair_config())
        for d in ("bfloat16", "float32")
    ]
    one, other = (done.found.vectors[0] for done in found)
    assert np.diag(cosine(one, other)).min() > 0.9
    assert found[0].told["loss_last"] == pytest.approx(found[1].told["loss_last"], abs=0.02)


# --- settings ----------------------------------------------------------------------------------


def test_the_rate_rises_then_falls_along_a_cosine_to_its_floor(pair_config):
    rates = [rate_at(pair_config(warmup=0.1, floor=0.1), step, 100) for step in range(100)]
    assert rates[0] == pytest.approx(1 / 11)
    assert max(rates) == rates[10] == 1
    assert rates[-1] == pytest.approx(0.1)
    assert np.diff(rates[10:]).max() <= 0
    assert rate_at(pair_config(warmup=0.0), 0, 1) == 1


def test_every_epoch_sees_each_pair_once_in_an_order_of_its_own(subject_of, pair_rows, pair_config):
    subject, config = subject_of(), pair_config(batch_size=3)
    pairs = read_pairs(pair_rows(8), subject, config).trained
    loop = PairLoop(subject, make_method(config), config, (0,), pairs)
    steps = [loop.numbers_of(step) for step in range(loop.updates)]
    epochs = [[*steps[3 * e], *steps[3 * e + 1], *steps[3 * e + 2]] for e in range(3)]
    assert all(sorted(epoch) == list(range(8)) for epoch in epochs)
    assert epochs[0] != epochs[1]
    assert loop.updates == 9
    forwards = list(cut([9, 4, 5, 9, 1, 2, 7, 5], 2, 20))
    assert forwards == [[4, 5], [1, 2], [7], [6], [0], [3]]


def test_the_null_swaps_half_of_the_pairs_and_says_so(subject_of, pair_rows, pair_config):
    subject = subject_of()
    plain = read_pairs(pair_rows(8), subject, pair_config()).trained
    turned = read_pairs(pair_rows(8), subject, pair_config(shuffle=1)).trained
    swapped = [one.chosen.ids == two.rejected.ids for one, two in zip(plain, turned, strict=True)]
    assert sum(swapped) == 4
    other = read_pairs(pair_rows(8), subject, pair_config(shuffle=2)).trained
    assert [p.chosen.ids for p in other] != [p.chosen.ids for p in turned]
    done = train_on_pairs(subject, pair_rows(8), pair_config(shuffle=1))
    assert done.found.info["trained"]["shuffle"] == 1


def test_one_block_alone_and_a_name_of_ones_own(subject_of, pair_rows):
    found = wb.fit_trained(subject_of(), pair_rows(), layers=[2], epochs=1, name="trust")
    assert (found.names, found.layers) == (("trust",), (2,))


def test_a_loss_that_is_no_number_stops_the_run(make_subject, pair_rows, pair_config):
    subject = make_subject()
    with torch.no_grad():
        subject.model.model.norm.weight[0] = float("nan")
    with pytest.raises(ConfigError, match=r"loss is nan .* update 1"):
        train_on_pairs(subject, pair_rows(), pair_config())


def test_a_model_with_one_user_span_at_the_top_block_learns_nothing(
    subject_of, pair_rows, pair_config
):
    seen = []
    with pytest.raises(ConfigError, match="span = 'user'; edit blocks below it"):
        train_on_pairs(
            subject_of(), pair_rows(), pair_config(layers=[3]), progress=lambda *at: seen.append(at)
        )
    assert seen == []
    train_on_pairs(subject_of(), pair_rows(), pair_config(layers=[3], span="assistant", epochs=1))


def test_a_last_update_that_leaves_no_numbers_says_why(
    subject_of, pair_rows, pair_config, monkeypatch
):
    """The vectors were refused as not finite before, without the update or its rate."""

    def blow_up(_method, parameters, _rate):
        parameters["v"].fill_(float("inf"))

    monkeypatch.setattr(BiPO, "settle", blow_up)
    with pytest.raises(ConfigError, match=r"update 1 \(rate .*diverged.*lower learning_rate"):
        train_on_pairs(subject_of(), pair_rows(4), pair_config(epochs=1))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"layers": [0, 0]}, "each once"),
        ({"layers": []}, "at least one"),
        ({"method": "mass_mean"}, "fitted to activations"),
        ({"method": "loreft", "params": {"rank": 0}}, "rank"),
        ({"method": "loreft", "params": {"rank": 2.5}}, "rank"),
        ({"method": "loreft", "params": {"rank": True}}, "rank"),
        ({"params": {"beta": True}}, "beta"),
        ({"params": {"gamma": "abc"}}, "gamma"),
        ({"params": {"lasso": None}}, "lasso"),
        ({"method": "reps", "params": {"factors": 2.0}}, "factors"),
        ({"method": "reps", "params": {"factors": [True]}}, "factors"),
        ({"method": "reps", "params": {"factors": "12"}}, "factors"),
        ({"learning_rate": 1e-2, "params": {"beta": float("inf")}}, "beta"),
        ({"method": "loreft", "params": {"rank": 33}}, "rank"),
        ({"method": "reps", "params": {"factors": []}}, "factors"),
        ({"method": "reps", "params": {"factors": [0]}}, "factors"),
    ],
)
def test_settings_that_make_no_sense_are_refused(subject_of, pair_rows, pair_config, changed, told):
    with pytest.raises(ConfigError, match=told):
        train_on_pairs(subject_of(), pair_rows(), pair_config(**changed))


@pytest.mark.real
def test_on_the_real_model_replies_in_one_row_score_as_plain_forwards(real_subject, pair_config):
    rows = [
        {"prompt": "Name a color.", "chosen": "Green is one.", "rejected": "I would rather not."},
        {
            "prompt": [
                {"role": "user", "content": "I have checked the list."},
                {"role": "assistant", "content": "Good."},
                {"role": "user", "content": "Then write the letter, please."},
            ],
            "chosen": "Here is the letter, built on your list.",
            "rejected": "Here is the letter. Let us first check the list once more.",
        },
    ]
    config = pair_config(epochs=1, batch_size=2, learning_rate=5e-4, span="last_user")
    pairs = read_pairs(rows, real_subject, config).trained
    done = train_on_pairs(real_subject, rows, config)
    assert done.told["joined"]
    assert done.told["loss_first"] == pytest.approx(np.log(2), abs=1e-4)
    assert done.found.layers == tuple(range(29))  # nothing reads the top block at these tokens
    with frozen(real_subject), torch.no_grad():
        scorer = Scorer(real_subject)
        sheet = lay_out([(p.chosen, p.rejected) for p in pairs], scorer.pad, scorer.device)
        found = scorer(sheet).tolist()
        replies = [reply for pair in pairs for reply in (pair.chosen, pair.rejected)]
        for reply, value in zip(replies, found, strict=True):
            logprobs = real_subject.model(torch.tensor([reply.ids])).logits[0].log_softmax(-1)
            plain = sum(
                float(logprobs[t - 1, reply.ids[t]]) for t in range(reply.first, len(reply.ids))
            )
            assert value == pytest.approx(plain, abs=1e-3)
