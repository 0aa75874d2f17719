"""The fixtures themselves: a mistake must be able to show."""

import torch


def skip(module, args, output):
    return args[0]


def test_tiny_logits_are_spread_and_depend_on_every_block(tiny_network, family):
    model = tiny_network(family)
    ids = torch.randint(0, 512, (2, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        plain = model(ids).logits
    assert 0.5 < plain.std() < 2
    for block in model.get_decoder().layers if family != "gpt2" else model.get_decoder().h:
        handle = block.register_forward_hook(skip)
        with torch.no_grad():
            skipped = model(ids).logits
        handle.remove()
        assert (skipped - plain).abs().max() > 0.1


def test_tiny_models_are_the_same_each_time(tiny_network, family):
    first, second, other = (tiny_network(family, seed=seed) for seed in (0, 0, 1))
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, second.state_dict()[name])
    assert not torch.equal(*(m.get_input_embeddings().weight for m in (first, other)))


def test_the_tiny_tokenizer_round_trips_and_splits_numbers(tiny_tokenizer):
    tokenizer = tiny_tokenizer()
    text = "The city of Łódź sends 42 dollars.\n\nTrue?"
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert tokenizer.tokenize("42 A") == ["4", "2", "ĠA"]
    assert tiny_tokenizer(bos=True)("hi").input_ids[0] == 3
