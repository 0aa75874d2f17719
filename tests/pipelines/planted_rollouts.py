"""Stores and transcripts with planted traits, as the verbs of persona vectors read them."""

from dataclasses import replace

import numpy as np

from workbench.activations import Activations
from workbench.activations.store import Store
from workbench.prompts import PromptSet
from workbench.transcripts import Scores, Transcripts, write_transcripts
from workbench.types import ModelStamp

STAMP = ModelStamp(
    key="tiny", model_type="llama", n_layers=6, width=24, tokenizer="0" * 16, fingerprint="1" * 16
)
LAYERS = (1, 3)
TRAITS = ("candid", "loud", "malicious")


def write_store(path, values, columns, position, stamp=STAMP, layers=LAYERS):
    """Write a store folder, as a capture leaves it."""
    acts = Activations.from_values(
        values.astype(np.float32), columns, model=stamp, layers=layers, position=position
    )
    store = Store.create(path, acts.manifest)
    store.write(acts._parts[0])
    store.finish()
    return str(path)


def rollouts(prompts=2, questions=8, judge="stand-in", seed=0):
    """Transcripts of every trait, pair of instructions, question and pole, with planted scores.

    ``strength`` is what a rollout has of its trait; half of it shows in the score.
    """
    rng = np.random.default_rng(seed)
    rows = [
        {
            "id": f"{trait}/{prompt}/q{question}/{'positive' if pole > 0 else 'negative'}",
            "messages": [{"role": "user", "content": f"question {question}"}],
            "trait": trait, "pole": pole, "pair": f"{prompt}/q{question}", "prompt": prompt,
            "question": f"q{question}", "strength": float(pole + 0.4 * rng.standard_normal()),
        }
        for trait in TRAITS for prompt in range(prompts) for question in range(questions)
        for pole in (1, -1)
    ]  # fmt: skip
    chats = PromptSet.from_records(rows)
    answers = ["yes " * (3 if row["pole"] > 0 else 1) for row in rows]
    told = Transcripts.of(chats, answers, generator="tiny", sampling={}, seeds=range(len(rows)))
    if judge is None:
        return told
    values = np.clip(50 + 30 * chats.column("strength"), 0, 100)
    for measure, given in (("score", values), ("coherence", np.full(len(rows), 90.0))):
        said = Scores(judge, given, ("",) * len(rows), ("",) * len(rows))
        told = told.with_scores(measure, said)
    return told


def states(transcripts, size=2.0, noise=1.0, seed=1):
    """States whose axis k holds the strength of trait k, at layer 3 twice as much."""
    rng, n = np.random.default_rng(seed), len(transcripts)
    values = noise * rng.standard_normal((2, n, STAMP.width))
    axis = np.searchsorted(TRAITS, transcripts.columns["trait"])
    for layer in range(2):
        values[layer, np.arange(n), axis] += (layer + 1) * size * transcripts.columns["strength"]
    return values


def write_rollouts(folder, judge="stand-in", **how):
    """Write transcripts and the stores of the three reads; return the settings of ``personas``."""
    told = rollouts(judge=judge, **how)
    write_transcripts(told, folder / "transcripts.parquet")
    positions = {"response-mean": "mean:assistant", "prompt-mean": "mean+first",
                 "prompt-last": "last"}  # fmt: skip
    stores = {
        read: write_store(
            folder / read, states(told, seed=number + 1), {"id": np.array(told.ids)}, position
        )
        for number, (read, position) in enumerate(positions.items())
    }
    return {"transcripts": str(folder / "transcripts.parquet"), "acts": stores, "draws": 100}


def organism(name, values, columns, folder, moved, axis=0, noise=0.3, seed=5):
    """Write an organism's store: the base's states, moved along an axis."""
    other = values + noise * np.random.default_rng(seed).standard_normal(values.shape)
    other[..., axis] += moved
    stamp = replace(STAMP, key=f"tiny+{name}", fingerprint=f"{seed:016d}")
    return write_store(folder / name, other, columns, "last", stamp)
