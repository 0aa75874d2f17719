"""Several stores read as one give what one store of all their items gives."""

import shutil

import numpy as np
import pytest

import workbench as wb
from workbench.activations.together import Together, open_together
from workbench.directions import thresholds
from workbench.errors import ConfigError, MismatchError

TEXTS = ["the city of the", "is true and a city", "in a city of the", "not false", "send to B"]


@pytest.fixture(scope="module")
def stores(tiny_subject, tmp_path_factory):
    """Two stores, and one of both."""
    folder = tmp_path_factory.mktemp("stores")
    rows = [{"id": f"i{n}", "text": text, "role": text[:2]} for n, text in enumerate(TEXTS)]
    cut = {"first": rows[:2], "second": [{**row, "own": 1} for row in rows[2:]], "both": rows}
    for name, part in cut.items():
        prompts = wb.PromptSet.from_records(part, text="text")
        wb.capture(tiny_subject, prompts, layers=[1, 2], position="mean", out=folder / name)
    prompts = wb.PromptSet.from_records(rows, text="text")
    wb.capture(tiny_subject, prompts, layers=[2], position="last", out=folder / "last")
    wb.capture(tiny_subject, prompts, layers=[2], position="all", out=folder / "all")
    return folder


def test_two_stores_are_the_store_of_all_items(stores, tiny_subject):
    found, whole = (
        open_together([stores / "first", stores / "second"]),
        wb.open_activations(stores / "both"),
    )
    assert found.layers == (1, 2)
    assert (found.site, found.position, found.model) == (whole.site, whole.position, whole.model)
    assert set(found.columns) == set(whole.columns) - {"own"} == {"id", "role", "text"}
    for name, values in found.columns.items():
        assert values.tolist() == whole.columns[name].tolist()
    for layer in (1, 2):
        np.testing.assert_array_equal(found.at(layer), whole.at(layer))
    vectors = np.random.default_rng(0).normal(size=(1, 2, tiny_subject.width))
    axis = wb.Directions(("a",), (1, 2), vectors, tiny_subject.stamp)
    assert dict(thresholds(axis, found, 40)) == dict(thresholds(axis, whole, 40))


def test_one_store_is_opened_as_it_is(stores):
    for given in (stores / "first", str(stores / "first"), [stores / "first"]):
        assert not isinstance(open_together(given), Together)
        assert len(open_together(given)) == 2


@pytest.mark.parametrize(
    ("other", "words"), [("last", "at last; resid_post at mean"), ("all", "at all; resid_post")]
)
def test_stores_that_were_read_elsewhere_are_refused(stores, tmp_path, other, words):
    with pytest.raises(MismatchError, match=words):
        open_together([stores / "first", stores / other])
    with pytest.raises(MismatchError, match="2 stores of resid_post at all; stores that"):
        open_together([stores / "all", shutil.copytree(stores / "all", tmp_path / "all")])
    with pytest.raises(ConfigError, match=r"stands twice .*and would count twice"):
        open_together([stores / "first", f"{stores}/./first"])


def test_stores_of_another_model_are_refused(stores, subject_of, tmp_path):
    prompts = wb.PromptSet.from_records([{"text": text} for text in TEXTS])
    other = subject_of("llama")
    wb.capture(other, prompts, layers=[1, 2], position="mean", out=tmp_path / "other")
    with pytest.raises(MismatchError, match="model_type"):
        open_together([stores / "first", tmp_path / "other"])
