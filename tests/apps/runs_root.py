"""A synthetic runs root, written with the real writers: planted truth that the pages must show."""

import json

import numpy as np
import pandas as pd

from workbench.activations import Activations
from workbench.activations.store import Store
from workbench.pipelines.probe import COLUMNS
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
                    framed = claim_set == "frames"
                    extra |= {"proposition": "main_aim" if framed else f"p{number}"}
                    extra |= {"frame": f"frame{number}" if framed else "plain"}
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


def arm_rows(control, doses, slope, seed=0, **told):
    """Rows of one control (or of the direction, "none"): transfer rises by ``slope`` a dose."""
    rng = np.random.default_rng([seed, len(control)])
    frames = []
    for dose in doses:
        found = [
            Measurement("trust_game", "transfer", f"frame{item}", "person",
                        5.0 + (slope * dose if dose is not None else 1.5) + 0.1 * rng.normal(),
                        mass=0.9)
            for item in range(12)
        ]  # fmt: skip
        amount = {} if dose is None else {"dose": dose, "engaged": float(dose != 0)}
        named = {"subject": "tiny", "direction": "truth", "edit": "add", "layers": "3,4"}
        constants = {**named, "base": "tiny", "scope": "all", "unit": "norm", "control": control}
        frames.append(table(found, **{**constants, **amount, **told}))
    return pd.concat(frames, ignore_index=True)


def every_control(**told):
    """A direction beside every kind of control, and a prompt that asks for the same."""
    doses = (-2.0, -1.0, 0.0, 1.0, 2.0)
    moved = tuple(dose for dose in doses if dose)
    slopes = {"random:0": 0.02, "random:1": -0.03, "sign": -0.5, "shuffled": 0.1}
    slopes |= {"layers:0": 0.2, "layers:1": 0.3}
    return pd.concat(
        [
            arm_rows("none", doses, 0.5, **told),
            *(arm_rows(control, moved, slope, **told) for control, slope in slopes.items()),
            arm_rows("prompt:kind", (None,), 0.0, **told),
        ],
        ignore_index=True,
    )


def cap_rows():
    """A cap in percentiles: the farther it reaches, the more it moves; one that reaches nothing."""
    told = {"edit": "cap", "unit": "percentile"}
    moved = (10.0, 50.0, 90.0)
    return pd.concat(
        [
            arm_rows("none", (0.0, *moved), 0.02, **told, realised=0.5),
            arm_rows("random:0", moved, 0.001, **told),
            arm_rows("noop", moved, 0.0, **told, engaged=0.0),
        ],
        ignore_index=True,
    )


def write_rows(root, rows, name="sweep"):
    config = {"model": "tiny", "name": name, "readouts": ["trust_game"]}
    with open_run("sweep", config, root=root) as run:
        write_results(rows, run.path / "results.parquet", run=run.id)
        run.finish({}, models=["tiny"])
    return run.path


def write_sweep(root, controls=4):
    return write_rows(root, sweep_rows(controls), f"{controls} controls")


DOCTOR = {
    "model": "tiny+new", "level": "full", "dtype": "float32", "device": "cpu", "ok": True,
    "checks": [{"name": "tokens", "passed": True}, {"name": "cache", "passed": True}],
    "shortcuts": [], "note": "", "disabled": [],
}  # fmt: skip


def probe_table(base=True, known=True):
    """Truth rises beyond the null in world P alone; P is the nearest known organism."""
    told = {"n": 14, "unit": "item", "interval": "95% bootstrap over items"}
    paired = {"change_interval": "95% bootstrap over items, paired", "base": 1.0}
    rows = []
    for kind, name in (("direction", "truth@3"), ("readout", "claims.loglik")):
        for world in WORLDS:
            change = 2.0 if world == "P" else 0.25
            row = {**told, "kind": kind, "name": name, "condition": world, "value": 1 + change,
                   "low": 0.75 + change, "high": 1.25 + change}  # fmt: skip
            if base:
                row |= {**paired, "change": change, "change_low": change - 0.125,
                        "change_high": change + 0.125}  # fmt: skip
            if base and kind == "direction":
                row |= {"null": 0.5, "null_name": "95% of 200 random directions",
                        "beyond_null": change > 0.5}  # fmt: skip
            rows.append(row)
    for name, distance, share in (("P", 0.25, 0.96), ("A", 1.5, 0.04)) if known else ():
        told |= {"nearest": share, "along": "truth@3", "left_out": "mood@3"}
        rows.append(
            {**told, "kind": "known", "name": name, "condition": "", "value": distance,
             "low": distance - 0.125, "high": distance + 0.125, "n": 56}
        )  # fmt: skip
    return pd.DataFrame(rows, columns=list(COLUMNS))


def write_probe(root, doctor=DOCTOR, **parts):
    with open_run("probe", {"model": "new", **parts}, root=root) as run:
        probe_table(**parts).to_parquet(run.path / "probe.parquet", index=False)
        told = {"model": "tiny+new", "doctor": doctor, "rows": []}
        (run.path / "probe.json").write_text(json.dumps(told))
        run.finish({}, models=["tiny+new"])
    return run.path


def write_all(root):
    """Every kind of run that a page can draw."""
    write_cache(root)
    write_claims(root, write_fit(root))
    write_sweep(root)
    write_probe(root)
    return root
