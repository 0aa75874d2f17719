"""What a dry run can tell and refuse: everything about a verb but the model's forward passes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.library import open_prompts


def preview_train(config: Any) -> Mapping[str, Any]:
    """Count documents, updates and tokens.

    A model on the hub is not asked for, and documents that an earlier command will write need not
    be there: ``missing`` names them. What is trained follows from the settings alone.
    """
    from workbench_training.lora import read_corpus

    sizes = {
        "updates": config.updates,
        "tokens_per_update": config.tokens_per_update,
        "tokens": config.updates * config.tokens_per_update,
        "sequences_per_update": config.batch_size * config.accumulation,
        "checkpoints": checkpoints_of(config),
    }
    missing = missing_for_training(config)
    if missing:
        return {"documents": None, **sizes, "missing": missing}
    find_model(config)
    corpus = read_corpus(config)
    chats = 0 if corpus.chats is None else len(corpus.chats)
    counts = {"documents": len(corpus.documents), "held_out": len(corpus.held_out), "chats": chats}
    return {**counts, "filler": len(corpus.filler), **sizes}


def preview_prefer(config: Any) -> Mapping[str, Any]:
    """Count examples and updates, and refuse rewards and rows that do not fit."""
    from workbench_training.preference_data import read_examples
    from workbench_training.rewards import reward_of

    find_model(config)
    for reward in config.reward:
        reward_of(reward)
    # Which of the two a tokenizer decides, and counts are the same.
    trained, held_out = read_examples(config, "bare" if config.render == "bare" else "chat")
    return {
        "examples": len(trained),
        "held_out": len(held_out),
        "updates": config.updates,
        "passes": config.updates * config.prompts_per_update / len(trained),
        "checkpoints": checkpoints_of(config),
    }


def checkpoints_of(config: Any) -> list[int]:
    """Return the updates after which a training run saves; the last one always."""
    every = config.save_every or -(-config.updates // 3)
    return sorted({*range(every, config.updates + 1, every), config.updates})


def missing_for_training(config: Any) -> list[str]:
    """Name hub models that are not here, and files that are not there yet."""
    named = [config.documents, config.dilute, config.chat]
    files = [name for name in named if name is not None and _is_absent_file(name)]
    hub = "/" in config.model and not Path(config.model).exists() and not _is_cached(config.model)
    return [*([config.model] if hub else []), *files]


def _is_absent_file(name: str) -> bool:
    """Whether a name is the path of a file that is not there; item sets have no suffix."""
    return bool(Path(name).suffix) and not Path(os.path.expandvars(name)).expanduser().exists()


def _is_cached(model: str) -> bool:
    """Whether the hub's own cache has the configuration of a model; nothing is asked of the hub."""
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(model, "config.json"), str)


def preview_cache(config: Any) -> Mapping[str, Any]:
    """Read the prompts."""
    find_model(config)
    prompts = open_prompts(config.prompts)
    return {"items": len(prompts), "columns": list(prompts.columns)}


def preview_fit(acts: Any, recipe: Any) -> Mapping[str, Any]:
    """Look the recipe's columns up in the activations."""
    from workbench.directions.truth import read_items

    items = read_items(acts, recipe.fit)
    return {
        "items": len(acts),
        "topics": items.topics,
        "resampled_by": items.unit,
        "layers": len(acts.layers),
    }


def preview_measure(config: Any) -> Mapping[str, Any]:
    """Make the readouts, without asking them anything."""
    from workbench.readouts.ask import make_readout

    find_model(config)
    return {"readouts": [make_readout(readout).name for readout in config.readouts]}


def find_model(config: Any) -> None:
    """Refuse a model that is nowhere; the embedded one is fetched when it is needed.

    Raises:
        UnknownNameError: there is no such model.
    """
    from workbench.models.sources import find_source

    if config.model != "smollm2":
        find_source(config.model, adapter=getattr(config, "adapter", None))
