"""A synthetic runs root, written with the real writers: planted truth that the pages must show."""

import json

import numpy as np
import pandas as pd

from workbench.activations import Activations
from workbench.activations.store import Store
from workbench.runs import open_run
from workbench.types import ModelStamp

STAMP = ModelStamp("tiny", "llama", 6, 16, "0123456789abcdef", "fedcba9876543210")
TOPICS = ("geography", "translation", "elements")
WORLDS = "PSNA"


def write_cache(root, n=240, layers=6, width=16, seed=0):
    """Items whose first axis is topic and second axis truth, at every layer alike."""
    rng = np.random.default_rng(seed)
    topic = np.array([TOPICS[i % 3] for i in range(n)])
    label = (np.arange(n) // 3) % 2
    polarity = np.where((np.arange(n) // 6) % 2, 1, -1)
    values = rng.normal(size=(layers, n, width)).astype(np.float32) * 0.3
    values[:, :, 0] += (np.arange(n) % 3 - 1) * 4.0
    values[:, :, 1] += (2 * label - 1) * 2.5
    columns = {
        "id": np.array([f"item-{i:03d}" for i in range(n)]),
        "text": np.array(
            [f"The {topic[i]} statement number {i} is written here." for i in range(n)]
        ),
        "topic": topic,
        "label": label,
        "polarity": polarity,
        "fact": np.array([f"fact-{i // 2}" for i in range(n)]),
        "length": rng.normal(size=n).round(3),
    }
    acts = Activations.from_values(values, columns, model=STAMP)
    with open_run("cache", {"model": "tiny", "prompts": "statements"}, root=root) as run:
        store = Store.create(run.path / "acts", acts.manifest)
        store.write(acts._parts[0])
        store.finish()
        run.finish({"rows": n}, models=["tiny"])
    return run.path


def evidence(best=0.95, layers=6, chosen=3):
    rows = []
    for split, drop in (("unseen", 0.06), ("within", 0.0)):
        for topic in (*TOPICS, "all"):
            for polarity in (1, -1, 0):
                for layer in range(layers):
                    value = best - drop - 0.07 * abs(layer - chosen) - 0.01 * (polarity == -1)
                    rows.append(
                        {
                            "method": "ttpd", "layer": layer, "topic": topic, "polarity": polarity,
                            "rendering": "bare", "split": split, "n": 200, "n_facts": 100,
                            "auc": value, "low": value - 0.04, "high": value + 0.03,
                            "null_shuffled": 0.58, "null_random": 0.66, "accuracy": value - 0.05,
                            "chosen": layer == chosen, "usable": value >= 0.9,
                        }
                    )  # fmt: skip
    return pd.DataFrame(rows)


def write_fit(root, best=0.95):
    with open_run("fit", {"method": "ttpd", "best": best}, root=root) as run:
        evidence(best).to_parquet(run.path / "evidence.parquet")
        run.finish({}, models=["tiny"])
    return run.path


def projections(lift=2.0, seed=0):
    """Every organism lifts its own world's claims by ``lift`` and nothing else."""
    rng = np.random.default_rng(seed)
    rows = []
    for organism in (None, "prosocial", "antisocial"):
        for claim_set, count in (("propositions", 9), ("frames", 5)):
            for number in range(count):
                for world in WORLDS:
                    for polarity in (1, -1):
                        own = organism is not None and organism[0].upper() == world
                        frame = f"frame{number}" if claim_set == "frames" else "plain"
                        name = f"p{number}" if claim_set == "propositions" else "main"
                        rows.append(
                            {
                                "subject": f"tiny+{organism}" if organism else "tiny",
                                "organism": organism, "world": world, "set": claim_set,
                                "proposition": name, "frame": frame, "polarity": polarity,
                                "item": f"{name}:{frame}:{world}:{polarity}", "layer": 3,
                                "value": 10 + number * 0.1 + polarity * lift * own
                                + 0.05 * rng.normal(),
                            }
                        )  # fmt: skip
    return pd.DataFrame(rows)


def write_claims(root, lift=2.0):
    with open_run("measure", {"stage": "claims", "lift": lift}, root=root) as run:
        projections(lift).to_parquet(run.path / "projections.parquet")
        run.finish({}, models=["tiny", "tiny+prosocial", "tiny+antisocial"])
    return run.path


def sweep_rows(controls=4, doses=(-8.0, -2.0, -1.0, 0.0, 1.0, 2.0, 8.0), slope=0.5, seed=0):
    """Transfer rises by ``slope`` a dose along the direction and not along random ones."""
    rng = np.random.default_rng(seed)
    rows = []
    for control in ("none", *(f"random:{i}" for i in range(controls))):
        for condition, level in (("person", 5.0), ("dictator", 3.0)):
            for dose in doses:
                if control != "none" and dose == 0:
                    continue
                for item in range(12):
                    value = level + (slope * dose if control == "none" else 0.02 * dose)
                    rows.append(
                        {
                            "run": "", "subject": "tiny", "base": "tiny", "organism": None,
                            "train_seed": None, "readout": "trust_game", "measure": "transfer",
                            "condition": condition, "item": f"frame{item}:{condition}", "draw": 0,
                            "direction": "truth", "edit": "add", "layers": "3", "scope": "all",
                            "dose": dose, "unit": "norm", "dose_raw": dose, "dose_norm": dose,
                            "dose_gap": None, "realised": dose, "engaged": 1.0, "control": control,
                            "value": value + 0.1 * rng.normal(), "valid": True, "reason": "ok",
                            "mass": 0.4 if abs(dose) == 8 else 0.9, "weight": 1.0,
                            "extra": json.dumps({}),
                        }
                    )  # fmt: skip
    return pd.DataFrame(rows)


def write_sweep(root, controls=4):
    config = {"model": "tiny", "controls": controls, "readouts": ["trust_game"]}
    with open_run("sweep", config, root=root) as run:
        sweep_rows(controls).to_parquet(run.path / "results.parquet")
        run.finish({}, models=["tiny"])
    return run.path


def write_all(root):
    """Every kind of run that a page can draw."""
    for write in (write_cache, write_fit, write_claims, write_sweep):
        write(root)
    return root
