"""Runs side by side: cards are dealt out, unless a run has its own idea of where it goes."""

import pytest

from workbench.models import placement
from workbench.pipelines.abreast import cards_for
from workbench.runs import run_id


def visible(monkeypatch, count, named=None):
    monkeypatch.setattr(placement.torch.cuda, "device_count", lambda: count)
    if named is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)


@pytest.mark.parametrize(
    ("count", "named", "cards"),
    [
        (2, None, ["0", "1"]),
        (2, "5,6", ["5", "6"]),
        (3, "GPU-a, GPU-b ,GPU-c", ["GPU-a", "GPU-b", "GPU-c"]),
        (1, None, []),
        (0, "", []),
    ],
)
def test_runs_on_any_device_share_all_cards(monkeypatch, count, named, cards):
    visible(monkeypatch, count, named)
    assert cards_for([("train", {}), ("measure", {"device": "cuda"})]) == cards
    assert cards_for([]) == []


@pytest.mark.parametrize(
    "settings", [{"device": "cuda:1"}, {"device": "cpu"}, {"load": {"device_map": "auto"}}]
)
def test_a_run_that_says_where_it_goes_sees_every_card(monkeypatch, settings):
    visible(monkeypatch, 2)
    assert cards_for([("measure", {}), ("measure", settings)]) == []


def test_a_run_is_the_same_on_every_card(monkeypatch):
    settings = {"model": "m", "device": "auto"}
    names = set()
    for named in ("0", "1"):
        visible(monkeypatch, 1, named)
        names.add(run_id("measure", settings, []))
    assert len(names) == 1
