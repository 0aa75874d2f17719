"""Random networks and adapters for the tests of how training is made fast."""

import peft
import pytest
import torch
import transformers


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
