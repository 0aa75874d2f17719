"""Truth on the real SmolLM2: what its middle blocks read of the shipped statements."""

import os
from pathlib import Path

import numpy as np
import pytest

from workbench.activations import capture
from workbench.data import data_path
from workbench.directions import evaluate, fit_truth, read_recipe
from workbench.prompts import PromptSet, read_prompts

pytestmark = pytest.mark.real
ROOT = Path(__file__).parents[2]
OUTSIDE = Path(os.environ.get("GEOMETRY_OF_TRUTH", ROOT / "../shared/data/geometry_of_truth"))
LAYERS = [14, 15, 16]


@pytest.fixture(scope="module")
def fitted(real_subject):
    prompts = read_prompts(data_path("statements"))
    rng = np.random.default_rng(0)
    keep = prompts.columns["topic"] == "geography"
    for topic in ("animals", "translation"):  # enough for the layer rule; all of geography
        facts = np.unique(prompts.columns["fact"][prompts.columns["topic"] == topic])
        keep |= np.isin(prompts.columns["fact"], rng.permutation(facts)[:20])
    acts = capture(real_subject, prompts.take(np.flatnonzero(keep)), layers=LAYERS)
    return fit_truth(acts, read_recipe("truth"))


def test_geography_is_read_on_both_polarities_with_facts_apart(fitted):
    _, table = fitted
    rows = table[(table["split"] == "within:topic") & (table["topic"] == "geography")]
    sides = rows[rows["polarity"] != 0].groupby("layer")["auc"].min()
    assert sides.max() >= 0.8, sides.to_dict()
    assert (rows["auc"] > rows["null_shuffled"]).all()


@pytest.mark.skipif(not OUTSIDE.is_dir(), reason="no outside statements; set GEOMETRY_OF_TRUTH")
def test_the_frozen_direction_reads_statements_that_others_wrote(fitted, real_subject):
    records = []
    for name, polarity in (("cities", 1), ("neg_cities", -1)):
        prompts = PromptSet.from_csv(OUTSIDE / f"{name}.csv", text="statement")
        for text, label, city in zip(
            prompts.items, prompts.columns["label"], prompts.columns["city"], strict=True
        ):
            records.append({"text": text, "label": int(label), "polarity": polarity, "fact": city})
    cities = sorted({record["fact"] for record in records})[::10]
    prompts = PromptSet.from_records([r for r in records if r["fact"] in set(cities)])
    table = evaluate(fitted[0], capture(real_subject, prompts, layers=LAYERS), name="cities")
    assert (table["auc"] > table["null_shuffled"]).all()
    assert table[table["polarity"] != 0].groupby("layer")["auc"].min().max() > 0.7
