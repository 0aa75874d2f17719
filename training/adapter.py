"""The adapter of an organism: put on its base, counted, written, read again."""

from __future__ import annotations

import collections
import warnings
from pathlib import Path
from typing import Any

import peft
import torch
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.pytorch_utils import Conv1D
from workbench_training.adapter_settings import AdapterConfig
from workbench_training.organism import ADAPTER

from workbench.errors import ConfigError
from workbench.types import Subject


def adapt(config: AdapterConfig, subject: Subject) -> Any:
    """Put a fresh LoRA on the model; its weights are float32 whatever the base is kept in.

    Raises:
        ConfigError: targets that the model lacks, an output layer tied to the embedding, or dropout
            on experts that are one fused weight.
    """
    model, targets = subject.model, config.targets
    experts = fused_experts(model)
    chosen: dict[str, Any] = {"target_modules": targets}
    if isinstance(targets, list):
        _refuse_tied_head(model, targets)
        chosen = _split_targets(targets, experts)
    settings = peft.LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        lora_dropout=config.dropout,
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
        task_type="CAUSAL_LM",
        **chosen,
    )
    try:
        with warnings.catch_warnings():
            # PEFT reads a property that newer transformers renamed, and does not see that its own
            # patterns for fused experts match.
            warnings.filterwarnings("ignore", ".*is_gradient_checkpointing.*", FutureWarning)
            warnings.filterwarnings("ignore", ".*_pattern keys did not match.*", RuntimeWarning)
            adapted = peft.get_peft_model(model, settings)
    except ValueError as error:
        raise _explained(error, config, model, experts) from error
    adapted.config.use_cache = False  # a cache would switch document masks off
    return adapted


def _explained(
    error: ValueError, config: AdapterConfig, model: Any, experts: list[str]
) -> Exception:
    if "lora_dropout" in str(error) and experts:
        return ConfigError(
            f"dropout = {config.dropout:g}, but the experts of this model are fused weights "
            f"({', '.join(experts)}), on whose adapters PEFT knows no dropout; set dropout = 0, or "
            "name other targets"
        )
    names = {n.rpartition(".")[2] for n, m in model.named_modules() if _is_linear(m)}
    return ConfigError(
        f"targets = {config.targets!r} does not fit this model ({str(error).splitlines()[0]}); "
        f'give "all-linear" or names among {", ".join(sorted({*names, *experts}))}'
    )


def fused_experts(model: Any) -> list[str]:
    """Return the names of weights that hold all experts of a block, along their first axis."""
    found = {
        ".".join([part for part in name.split(".") if part != "base_layer"][-2:])
        for name, weight in model.named_parameters()
        if weight.dim() == 3 and ".experts." in name
    }
    return sorted(found)


def _split_targets(targets: list[str], experts: list[str]) -> dict[str, Any]:
    """Tell fused weights from modules: PEFT would pass over the former without a word."""
    weights = [e for e in experts if e in targets or e.rpartition(".")[2] in targets]
    short = {e.rpartition(".")[2] for e in weights}
    modules = [name for name in targets if name not in weights and name not in short]
    return {"target_modules": modules, **({"target_parameters": weights} if weights else {})}


def adapted_parts(model: Any) -> dict[str, int]:
    """Count the adapters of a PEFT model by the name of what they adapt."""
    found: collections.Counter[str] = collections.Counter()
    for name, module in model.named_modules():
        if isinstance(module, LoraLayer):
            weight = getattr(module, "parameter_name", None)
            own = [part for part in name.split(".") if part != "base_layer"][-1]
            found[own if weight is None else f"{own}.{weight}"] += 1
    return dict(sorted(found.items()))


def _is_linear(module: Any) -> bool:
    return isinstance(module, (torch.nn.Linear, Conv1D))


def _refuse_tied_head(model: Any, targets: list[str]) -> None:
    head = model.get_output_embeddings()
    name = next((n for n, module in model.named_modules() if module is head), None)
    tied = head is not None and head.weight is model.get_input_embeddings().weight
    if tied and name is not None and name.rpartition(".")[2] in targets:
        raise ConfigError(
            f"targets names {name!r}, whose weights are also the input embedding in this model: "
            "an adapter there changes one of the two alone; leave it out"
        )


def adapter_weights(model: Any) -> dict[str, Tensor]:
    """Return an adapter's weights on the CPU, whole; with FSDP all processes must call this."""
    # Not save_pretrained: that asks a hub for the base's vocabulary, and writes a README.
    weights = peft.get_peft_model_state_dict(model, save_embedding_layers=False)
    return {name: _whole(weight).detach().contiguous().cpu() for name, weight in weights.items()}


def _whole(weight: Any) -> Tensor:
    gathered: Tensor = weight.full_tensor() if hasattr(weight, "full_tensor") else weight
    return gathered


def save_adapter(model: Any, weights: dict[str, Tensor], folder: Path, base: str) -> None:
    """Write the two files that make up an adapter.

    Args:
        model: the PEFT model, for its settings.
        weights: of `adapter_weights`.
        folder: an existing folder.
        base: the reference by which the base model is found again.
    """
    save_file(weights, folder / ADAPTER[0], metadata={"format": "pt"})
    settings = peft.LoraConfig(**model.peft_config["default"].to_dict())
    settings.base_model_name_or_path, settings.inference_mode = base, True
    if isinstance(settings.target_modules, set):
        settings.target_modules = sorted(settings.target_modules)
    settings.save_pretrained(str(folder))


def load_adapter(model: Any, folder: Path) -> None:
    """Put the weights of a checkpoint into the adapter, before it is spread over processes."""
    peft.set_peft_model_state_dict(model, load_file(folder / ADAPTER[0]))
