"""Planted activations reach tests as fixtures, since test files are no package."""

import importlib.util
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("planted", Path(__file__).with_name("planted.py"))
planted = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(planted)


@pytest.fixture(scope="session")
def plant():
    """``(seed=0, noise=0.5, per_topic=2, ...) -> activations``; see planted.py."""
    return planted.plant


@pytest.fixture(scope="session")
def names():
    """The planted emotions, in order."""
    return planted.NAMES


@pytest.fixture(scope="session")
def stamp():
    """``(key="m", fingerprint="f") -> ModelStamp`` of the planted activations."""
    return planted.stamp


@pytest.fixture(scope="session")
def write_acts():
    """``(path, acts) -> store folder``, as a capture leaves it."""
    from workbench.activations.store import Store

    def write(path, acts):
        store = Store.create(path, acts.manifest)
        store.write(acts._parts[0])
        store.finish()
        return str(path)

    return write
