import pytest

from workbench.directions import read_recipe, shipped_recipes
from workbench.directions.recipe import Recipe, recipe_path
from workbench.errors import ConfigError, UnknownNameError

SMALL = '[prompts]\nset = "statements"\n[fit]\nmethod = "mass_mean"\n'


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_shipped_recipe_reads_and_names_a_method(name):
    from workbench.registry import METHODS

    assert read_recipe(name).fit.method in METHODS.names()


def test_the_truth_recipe_fixes_its_layer_rule_before_any_check():
    recipe = read_recipe("truth")
    assert (recipe.fit.method, recipe.layers.rule) == ("ttpd", "lowest_polarity")
    assert (recipe.prompts.render, recipe.read.position) == ("bare", "last")
    assert set(recipe.check.split) == {"unseen", "within"}
    assert set(recipe.check.controls) == {"shuffled", "random"}


def test_a_users_own_file_is_read_with_the_same_defaults(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(SMALL)
    recipe = read_recipe(path)
    assert isinstance(recipe, Recipe)
    assert (recipe.fit.y, recipe.check.gate) == ("label", 0.9)


def test_an_unknown_recipe_is_answered_with_the_known_ones():
    with pytest.raises(UnknownNameError, match="'truth'"):
        recipe_path("truht")
    with pytest.raises(ConfigError, match=r"no file .*nothing\.toml"):
        read_recipe("nothing.toml")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('metod = "x"', "metod"),
        ('[layers]\nrule = "best"', r"layers\.rule = 'best'"),
        ("[check]\ndraws = 3", r"check\.draws = 3"),
        ('[check]\nsplit = ["all"]', r"check\.split"),
    ],
)
def test_a_wrong_key_or_value_is_named(tmp_path, lines, message):
    path = tmp_path / "mine.toml"
    path.write_text(SMALL + lines)
    with pytest.raises(ConfigError, match=message):
        read_recipe(path)
