"""A planted trust run: one method that raises every facet's margin, a weaker one, and controls."""

import json

import numpy as np
import pandas as pd

from workbench.runs import open_run

FACETS = ("ability", "benevolence", "integrity")
DOSES = (-2.0, -1.0, 0.0, 1.0, 2.0)
SLOPES = {("bipo", "none"): 0.2, ("mean_difference", "none"): 0.05, ("bipo", "shuffled"): 0.01}
ITEMS = 12
"""Pairs of each facet."""
LAYERS = 6


def item_rows(seed=0):
    rng = np.random.default_rng(seed)
    slopes = SLOPES | {("bipo", f"random:{n}"): rng.normal() * 0.02 for n in range(3)}
    base = {(f, n): rng.normal() * 0.15 for f in FACETS for n in range(ITEMS)}
    return pd.DataFrame(
        [
            {"method": method, "control": control, "dose": dose, "facet": facet,
             "item": f"{facet}-{n:02d}", "margin": base[facet, n] + slope * dose}
            for (method, control), slope in slopes.items()
            for dose in DOSES
            for facet in FACETS
            for n in range(ITEMS)
        ]
    )  # fmt: skip


def _both(items):
    """Every facet, and all together."""
    return pd.concat([items, items.assign(facet="all")])


def margins(items):
    found = _both(items).groupby(["method", "control", "facet", "dose"])["margin"]
    table = found.agg(mean="mean", sd="std", n="size").reset_index()
    half = 1.96 * table["sd"] / np.sqrt(table["n"])
    told = {"interval": "95% t over scenarios", "unit": "scenario"}
    return table.assign(low=table["mean"] - half, high=table["mean"] + half, **told)


def accuracy(items):
    found = _both(items.assign(won=items["margin"] > 0))
    table = found.groupby(["method", "control", "facet", "dose"])["won"].agg(["mean", "size"])
    table = table.reset_index().rename(columns={"mean": "accuracy", "size": "n"})
    ends = {"low": table["accuracy"] - 0.1, "high": table["accuracy"] + 0.1}
    return table.assign(**ends, unit="scenario", interval="95% t over scenarios")


def monotone():
    """Slopes as planted; over shuffled labels the strong method rises and the weak one does not."""
    over = {("bipo", "none"): 0.19, ("mean_difference", "none"): 0.002}
    stated = {"slope": SLOPES, "smallest_step": SLOPES, "slope_minus_shuffled": over}
    return pd.DataFrame(
        [
            {"method": method, "control": control, "facet": facet, "statistic": statistic,
             "value": value, "low": value - 0.004, "high": value + 0.004, "p": 0.01,
             "n": 3 * ITEMS, "unit": "scenario", "test": "sign flips over scenarios",
             "interval": "95% t over scenarios"}
            for statistic, values in stated.items()
            for (method, control), value in values.items()
            for facet in ("all", "ability")
        ]
    )  # fmt: skip


def displacement():
    """The strong method lifts the trusting reply and leaves text without a pole alone."""
    moved = {("chosen", "all"): 0.15, ("rejected", "all"): -0.05, ("chosen", "neutral"): -0.01}
    return pd.DataFrame(
        [
            {"method": "bipo", "control": "none", "facet": facet, "dose": dose, "side": side,
             "change": change * dose, "low": change * dose - 0.02, "high": change * dose + 0.02,
             "interval": "95% t over scenarios", "n": 36, "unit": "scenario"}
            for (side, facet), change in moved.items()
            for dose in DOSES
            if dose
        ]
    )  # fmt: skip


def transfer():
    """More is sent as the dose grows, beyond random matrices at the ends, where the mass is low."""
    slopes = {"none": 0.3, "shuffled": 0.1}
    return pd.DataFrame(
        [
            {"method": "bipo", "measure": "transfer", "condition": "person", "control": control,
             "dose": dose, "change": slope * dose, "low": slope * dose - 0.1,
             "high": slope * dose + 0.1, "band": 0.5 if dose else np.nan,
             "beyond_band": abs(slope * dose) > 0.5, "mass": 0.8 - 0.2 * abs(dose), "n": 6,
             "unit": "item", "interval": "95% bootstrap over items"}
            for control, slope in slopes.items()
            for dose in DOSES
        ]
    )  # fmt: skip


def blocks():
    """Under the user's span the last block has no gradient."""
    return pd.DataFrame(
        [
            {"method": method, "control": control, "layer": layer,
             "norm": 0.0 if layer == LAYERS - 1 else slope * (1 + layer), "share": 0.01 * layer,
             "cosine_below": np.nan if layer == 0 else 0.7,
             "cosine_other": 0.3 if method == "bipo" else np.nan}
            for (method, control), slope in SLOPES.items()
            for layer in range(LAYERS)
        ]
    )  # fmt: skip


def pairs():
    def turns(facet, n):
        said = f"I checked the {facet} figures twice. Please write note {n}."
        return json.dumps([{"role": "user", "content": said}])

    return pd.DataFrame(
        [
            {"item": f"{facet}-{n:02d}", "facet": facet, "scenario": f"scenario {n}",
             "style": "short", "prompt": turns(facet, n),
             "chosen": f"Note {n}: as you say, the {facet} figures are right.",
             "rejected": f"Note {n}: the {facet} figures, with a check of each. <b>Not bold.</b>"}
            for facet in FACETS
            for n in range(ITEMS)
        ]
    )  # fmt: skip


def write_trust(root, without=()):
    """The run folder of the verb ``trust``."""
    items = item_rows()
    tables = {
        "margin": margins(items),
        "facets": accuracy(items),
        "monotone": monotone(),
        "blocks": blocks(),
        "items": items,
        "pairs": pairs(),
        "displacement": displacement(),
        "transfer": transfer(),
    }
    tables = {name: table for name, table in tables.items() if name not in without}
    with open_run("trust", {"split": "test", "without": list(without)}, root=root) as run:
        for name, table in tables.items():
            table.to_parquet(run.path / f"{name}.parquet", index=False)
        run.finish({}, models=["tiny"])
    return run.path
