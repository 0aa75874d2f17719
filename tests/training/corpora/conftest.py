"""A writer of random words, and the corpus runs that it makes."""

import sys
from pathlib import Path

import pytest

from workbench.registry import load_plugin

PLUGIN = Path(__file__).with_name("words_plugin.py")


@pytest.fixture
def words_writer():
    """Load the plug-in with the writer "words"; tests before and after do not see it."""
    from workbench_training.corpora.registry import WRITERS

    load_plugin(PLUGIN)
    yield "words"
    del sys.modules["workbench_plugin_words_plugin"]
    for name in ("words", "many"):
        WRITERS._factories.pop(name)


@pytest.fixture
def corpus(words_writer, tmp_path, monkeypatch):
    """``(out="a", **settings) -> Done`` of a small corpus of random words."""
    from workbench.pipelines.verbs import carry_out

    monkeypatch.chdir(tmp_path)

    def make(out="a", *, shard=None, progress=None, force=False, **settings):
        small = {"writer": words_writer, "quartets": 24, "words": {"short": 60, "long": 90}}
        known = {**small, "max_dropped": 1.0, "workers": 1, **settings}
        place = tmp_path / out
        return carry_out("corpus", known, out=place, shard=shard, progress=progress, force=force)

    return make
