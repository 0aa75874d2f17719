"""Recipes whose method needs matched items: the fact's items are the pair unless it says else."""

import pytest
from planted import planted

from workbench.directions import fit_truth, read_recipe
from workbench.directions.recipe import Recipe
from workbench.errors import ConfigError


def recipe_with(method, **fit):
    told = read_recipe("truth").model_dump(exclude_unset=True)
    told["fit"] = {**told["fit"], "method": method, "params": {}, **fit}
    told["check"] = {**told["check"], "draws": 20, "bootstrap": 100, "held_out": None}
    return Recipe.model_validate(told)


@pytest.mark.parametrize("method", ["paired", "pca"])
def test_a_method_of_pairs_finds_the_planted_truth_through_a_recipe(method):
    directions, evidence = fit_truth(planted(), recipe_with(method))
    assert directions.info["layer"] == 2
    assert directions.info["columns"]["pairs"] == "fact"
    rows = evidence[(evidence["split"] == "unseen topic") & evidence["chosen"]]
    assert rows.loc[rows["topic"] == "all", "auc"].min() > 0.75
    assert abs(directions.at(2)[0, 0]) > 0.8 * abs(directions.at(2)[0]).max()


def test_a_pairs_column_that_is_named_must_be_there():
    with pytest.raises(ConfigError, match="no column 'twin'"):
        fit_truth(planted(), recipe_with("paired", pairs="twin"))


def test_a_method_of_pairs_says_what_is_missing_where_no_column_pairs_the_items():
    acts = planted()
    acts.columns["other"] = acts.columns.pop("fact")
    with pytest.raises(ConfigError, match="pairs"):
        fit_truth(acts, recipe_with("paired"))
    directions, _ = fit_truth(acts, recipe_with("paired", facts="other", pairs="other"))
    assert directions.info["layer"] == 2
