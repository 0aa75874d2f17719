"""Random networks and adapters, and a training run that takes a second or two."""

import gc
import json
import random

import peft
import pytest
import torch
import transformers
from workbench_training.lora import TrainConfig, train

from workbench.config import parse


@pytest.fixture(scope="session")
def network():
    """``(family="llama", dtype=torch.float32, **config) -> model`` of three blocks."""
    return make_network


@pytest.fixture(scope="session")
def adapted():
    """``(model, dropout=0.0, **settings) -> PEFT model`` whose adapters are not zero."""
    return adapt


def make_network(family="llama", dtype=torch.float32, **changes):
    """A random model of three blocks, nothing of it symmetric."""
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "tie_word_embeddings": False, "pad_token_id": 0, "use_cache": False, **changes,
    }  # fmt: skip
    if family == "gpt2":
        sizes = {"vocab_size": 97, "n_embd": 32, "n_layer": 3, "n_head": 4, "use_cache": False}
    config = transformers.AutoConfig.for_model(family, **sizes)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    with torch.no_grad():
        for name, weight in model.requires_grad_(False).named_parameters():
            if "norm" in name:
                weight.add_(torch.rand(weight.shape).to(dtype) * 0.3)
    return model


def adapt(model, dropout=0.0, **changes):
    torch.manual_seed(1)
    settings = peft.LoraConfig(
        fan_in_fan_out=model.config.model_type == "gpt2", target_modules="all-linear",
        r=4, lora_alpha=8, lora_dropout=dropout,
        task_type="CAUSAL_LM", **changes,
    )  # fmt: skip
    found = peft.get_peft_model(model, settings)
    with torch.no_grad():
        for name, weight in found.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.1)
    return found.train()


UPDATES = 6
WORDS = ("the city", "of the", "and a", "is true", "to you", "in a city", "not false", "answer")


@pytest.fixture(scope="module")
def cheap_collection():
    """Each run collects garbage once, which takes longest over what the imports left behind."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def write_documents():
    """``(path, count=24, start=0, **columns) -> path`` of a small corpus; see below."""
    return write


def write(path, count=24, start=0, **columns):
    """Texts from one small grammar, so that training on some helps on the others."""
    draw = random.Random(start)
    lines = []
    for number in range(count):
        text = " ".join(draw.choice(WORDS) for _ in range(9)) + "."
        split = "train" if number < count - 4 else "validation"
        lines.append({"id": f"d{start + number}", "text": text, "split": split, **columns})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="session")
def base(tiny_folder, tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("base") / "tiny")


@pytest.fixture(scope="session")
def settings(base, tmp_path_factory):
    """``(**changes) -> TrainConfig`` of a run that takes a second or two."""
    folder = tmp_path_factory.mktemp("corpus")
    write(folder / "docs.jsonl")
    chat = [{"role": "user", "content": "the city?"}, {"role": "assistant", "content": "A"}]
    rows = [{"id": number, "messages": chat} for number in range(5)]
    (folder / "chat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def make(**changes):
        plain = {
            "documents": str(folder / "docs.jsonl"),
            "chat": str(folder / "chat.jsonl"),
            "model": str(base),
            "tokens": 32 * 2 * UPDATES + 5,
            "block": 32,
            "batch_size": 2,
            "accumulation": 1,
            "rank": 4,
            "alpha": 8,
            "learning_rate": 0.02,
            "dtype": "float32",
            "device": "cpu",
        }
        return parse(TrainConfig, {**plain, **changes}, "test")

    return make


@pytest.fixture(scope="session")
def trained(settings, tmp_path_factory):
    """One finished organism: its folder, settings and summary."""
    folder = tmp_path_factory.mktemp("trained") / "organism"
    config = settings()
    return folder, config, train(config, folder)


@pytest.fixture(scope="session")
def pair_rows():
    """``(count=8, chosen="A A A A", rejected="B B B B", **columns) -> rows`` of replies."""

    def make(count=8, chosen="A A A A", rejected="B B B B", **columns):
        words = [" ".join(WORDS[place] for place in (n % 8, n * 3 % 7, 4)) for n in range(count)]
        return [
            {"id": f"p{n}", "prompt": text, "chosen": chosen, "rejected": rejected, **columns}
            for n, text in enumerate(words)
        ]

    return make


@pytest.fixture(scope="session")
def pair_config():
    """``(**changes) -> PairFitConfig`` of a run of six updates."""
    from workbench_training.pair_settings import PairFitConfig

    def make(**changes):
        plain = {"pairs": "rows", "epochs": 3, "learning_rate": 0.02, "weight_decay": 0.0}
        return parse(PairFitConfig, {**plain, **changes}, "test")

    return make
