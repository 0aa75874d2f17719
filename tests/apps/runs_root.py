"""A synthetic runs root, written with the real writers: planted truth that the pages must show."""

import numpy as np
import pandas as pd

from workbench.activations import Activations
from workbench.activations.store import Store
from workbench.results import table, write_results
from workbench.runs import open_run
from workbench.types import Measurement, ModelStamp

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
    for split, drop in (("unseen topic", 0.06), ("within:topic", 0.0)):
        for topic in (*TOPICS, "all"):
            for polarity in (1, -1, 0):
                for layer in range(layers):
                    value = best - drop - 0.07 * abs(layer - chosen) - 0.01 * (polarity == -1)
                    rows.append(
                        {
                            "method": "ttpd", "layer": layer, "topic": topic, "polarity": polarity,
                            "rendering": "bare", "split": split, "n": 200, "n_facts": 100,
                            "auc": value, "low": value - 0.04, "high": value + 0.03,
                            "interval": "95% bootstrap over facts", "gate": 0.9,
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


def claim_rows(organism, lift=2.0, seed=0):
    """An organism lifts its own world's claims, and lowers their negations, by ``lift``."""
    rng = np.random.default_rng([seed, len(organism or "")])
    found = []
    for claim_set, count in (("propositions", 9), ("frames", 5)):
        for number in range(count):
            fact = f"claims:{claim_set}:{number}"
            for world in WORLDS:
                for polarity in (1, -1):
                    value = 10 + 0.1 * number + polarity * lift * (organism == world)
                    extra = {"set": claim_set, "fact": fact, "polarity": polarity}
                    extra |= {"proposition": f"p{number}", "frame": "plain"}
                    for readout, measure, more in (
                        ("projection", "truth", {"layer": 3, "world": world}),
                        ("claims", "loglik", {"tokens": 12}),
                    ):
                        found.append(
                            Measurement(
                                readout,
                                measure,
                                f"{fact}:{world}:{polarity}",
                                world,
                                value + 0.05 * rng.normal(),
                                extra={**extra, **more},
                            )
                        )
    subject = f"tiny+{organism}-s0" if organism else "tiny"
    seeds = {"organism": organism, "train_seed": 0 if organism else None}
    return table(found, subject=subject, base="tiny", control="none", **seeds)


def write_claims(root, fit, lift=2.0):
    """One measure run for each model, all reading the same frozen direction."""
    for organism in (None, "P", "A"):
        readout = {"name": "projection", "directions": str(fit), "prompts": "claims"}
        config = {"model": organism or "tiny", "readouts": ["claims", readout]}
        with open_run("measure", config, root=root, inputs=[fit]) as run:
            write_results(claim_rows(organism, lift), run.path / "results.parquet", run=run.id)
            run.finish({}, models=[f"tiny+{organism}-s0" if organism else "tiny"])


def reply(item, dose):
    """A text for each prompt and dose."""
    text = {"prompt": f"Question {item}?", "text": f"An answer at {dose:g}."}
    return Measurement("reply", "words", f"p{item}", "plain", 4.0, extra=text)


def sweep_rows(controls=4, doses=(-8.0, -2.0, -1.0, 0.0, 1.0, 2.0, 8.0), slope=0.5, seed=0):
    """Transfer rises by ``slope`` a dose along the direction and not along random ones."""
    rng = np.random.default_rng(seed)
    frames = []
    for control in ("none", *(f"random:{i}" for i in range(controls))):
        for dose in doses:
            if control != "none" and dose == 0:
                continue
            found = [
                Measurement(
                    "trust_game",
                    "transfer",
                    f"frame{item}:{condition}",
                    condition,
                    level + (slope if control == "none" else 0.02) * dose + 0.1 * rng.normal(),
                    mass=0.4 if abs(dose) == 8 else 0.9,
                )
                for condition, level in (("person", 5.0), ("device", 3.0))
                for item in range(12)
            ]
            found += [reply(item, dose) for item in range(2)]
            constants = {"direction": "truth", "edit": "add", "layers": "3", "scope": "all"}
            amounts = {"dose": dose, "unit": "norm", "dose_raw": dose, "dose_norm": dose}
            told = {"subject": "tiny", "base": "tiny", "control": control}
            told |= {"realised": 0.9 * dose, "engaged": float(dose != 0)}
            frames.append(table(found, **told, **constants, **amounts))
    return pd.concat(frames, ignore_index=True)


def write_sweep(root, controls=4):
    config = {"model": "tiny", "controls": controls, "readouts": ["trust_game"]}
    with open_run("sweep", config, root=root) as run:
        write_results(sweep_rows(controls), run.path / "results.parquet", run=run.id)
        run.finish({}, models=["tiny"])
    return run.path


def write_all(root):
    """Every kind of run that a page can draw."""
    write_cache(root)
    write_claims(root, write_fit(root))
    write_sweep(root)
    return root
