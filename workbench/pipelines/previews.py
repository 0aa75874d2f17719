"""What a dry run can tell and refuse: everything about a verb but the model's forward passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.library import open_prompts


def preview_train(config: Any) -> Mapping[str, Any]:
    """Count documents and updates."""
    from workbench_training.lora import read_corpus

    _find_model(config)
    corpus = read_corpus(config)
    chats = 0 if corpus.chats is None else len(corpus.chats)
    counts = {"documents": len(corpus.documents), "held_out": len(corpus.held_out), "chats": chats}
    return {**counts, "updates": config.updates}


def preview_cache(config: Any) -> Mapping[str, Any]:
    """Read the prompts."""
    _find_model(config)
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

    _find_model(config)
    return {"readouts": [make_readout(readout).name for readout in config.readouts]}


def _find_model(config: Any) -> None:
    """Refuse a model that is nowhere; the embedded one is fetched when it is needed."""
    from workbench.models.sources import find_source

    if config.model != "smollm2":
        find_source(config.model, adapter=getattr(config, "adapter", None))
