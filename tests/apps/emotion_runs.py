"""Planted emotion vectors as run folders: two families of emotions, organisms along them."""

import numpy as np
import pandas as pd

from workbench.directions import Directions, save_directions
from workbench.linalg import cosine
from workbench.runs import open_run
from workbench.types import ModelStamp

STAMP = ModelStamp("tiny", "llama", 6, 16, "0123456789abcdef", "fedcba9876543210")
NAMES = ("joy", "pride", "calm", "anger", "fear", "envy")
VALENCE = {"joy": 1, "pride": 1, "calm": 1, "anger": -1, "fear": -1, "envy": -1}
BEST = 3
"""The layer that reads every emotion best."""
WINDOW = (2, 3, 4)


def vectors_of(stamp=STAMP, seed=0):
    """Pleasant ones along the first coordinate, unpleasant ones against it, each with its own."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(len(NAMES), stamp.n_layers, stamp.width)) * 0.5
    vectors[:, :, 0] += 2.0 * np.array([VALENCE[name] for name in NAMES])[:, None]
    layers = tuple(range(stamp.n_layers))
    return Directions(NAMES, layers, vectors, stamp, position="mean:content[50:]")


def likeness(vectors):
    found = [cosine(vectors.at(layer), vectors.at(layer)) for layer in vectors.layers]
    rows = [
        {"layer": layer, "first": a, "second": b, "band": 0.5,
         "cosine": float(found[row][i, j])}
        for row, layer in enumerate(vectors.layers)
        for i, a in enumerate(vectors.names)
        for j, b in enumerate(vectors.names)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def curves(layers):
    """Highest at ``BEST``; the control a little lower; the mean over all beside each."""
    rows = []
    for variant, loss in (("denoised", 0.0), ("random control", 0.05)):
        for name in (*NAMES, "all"):
            for layer in range(layers):
                auc = 0.9 - 0.05 * abs(layer - BEST) - loss
                rows.append(
                    {"emotion": name, "layer": layer, "variant": variant, "auc": auc,
                     "low": auc - 0.06, "high": auc + 0.04, "n": 48, "unit": "story",
                     "interval": "95% bootstrap over topics", "null": 0.6,
                     "chosen": layer in WINDOW}
                )  # fmt: skip
    return pd.DataFrame(rows)


def valence(layers):
    rows = [
        {"layer": layer, "component": component, "against": against, "r": r, "p": p,
         "n": len(NAMES), "explained": 0.5}
        for layer in range(layers)
        for component, against, r, p in ((1, "valence", 0.97, 0.002), (2, "arousal", 0.3, 0.4))
    ]  # fmt: skip
    return pd.DataFrame(rows)


def reference(layers):
    rows = [
        {"emotion": name, "layer": layer, "mean": 0.5, "sd": 2.0, "n": 60, "unit": "story"}
        for name in NAMES
        for layer in range(layers)
    ]
    return pd.DataFrame(rows)


def profiles():
    """A lies 1 above P along unpleasant emotions, and 1 below along pleasant ones."""
    rows = [
        {"emotion": name, "model": model, "half": half, "window": window, "layer": BEST,
         "value": value, "low": value - 0.2, "high": value + 0.2, "n": 3, "unit": "seed",
         "interval": "95% t over seeds"}
        for window in ("peak", "2-4")
        for half in ("first", "second")
        for number, name in enumerate(NAMES)
        for model, value in (("P", 0.1), ("A", 0.1 - VALENCE[name] * (1 + 0.1 * number)))
    ]  # fmt: skip
    return pd.DataFrame(rows)


def gaps():
    """A minus P: large along anger, fear and envy, large and negative along the others."""
    index = ["emotion", "window", "layer", "half"]
    table = profiles().pivot_table(index=index, columns="model", values="value").reset_index()
    zgap = table["A"] - table["P"]
    told = {"interval": "95% t over seeds", "high_condition": "A", "low_condition": "P"}
    bands = {"random95": 0.4, "matched95": 1.15}
    ends = {"low": zgap - 0.2, "high": zgap + 0.2}
    return table[index].assign(zgap=zgap, **ends, **bands, n=3, unit="seed", **told)


def write_emotions(root, stamp=STAMP, model="tiny", without=()):
    """The run folder of the verb ``emotions``."""
    vectors = vectors_of(stamp)
    tables = {
        "similarity": likeness(vectors),
        "curves": curves(stamp.n_layers),
        "valence": valence(stamp.n_layers),
        "reference": reference(stamp.n_layers),
    }
    tables = {name: table for name, table in tables.items() if name not in without}
    config = {"explained": 0.5, "model": model, "without": list(without)}
    with open_run("emotions", config, root=root) as run:
        save_directions(vectors, run.path / "emotions.safetensors")
        for name, table in tables.items():
            table.to_parquet(run.path / f"{name}.parquet", index=False)
        run.finish({}, models=[stamp.key])
    return run.path


def write_profiles(root, emotions):
    """The run folder of the verb ``profiles``."""
    with open_run(
        "profiles",
        {"items": "trust_actions"},
        root=root,
        inputs=[emotions / "emotions.safetensors"],
    ) as run:
        profiles().to_parquet(run.path / "profiles.parquet", index=False)
        gaps().to_parquet(run.path / "gaps.parquet", index=False)
        run.finish({}, models=["tiny+P-s0", "tiny+A-s0"])
    return run.path


def write_all_emotions(root):
    write_profiles(root, write_emotions(root))
    return root
