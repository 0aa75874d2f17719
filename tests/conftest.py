"""Fixtures shared by every test: tiny models without network, and the real SmolLM2.

Helpers reach tests as fixtures that return functions (``tiny_folder``, ``subject_of``, ...), since
test files are no package.
"""

import gc
import importlib.util
import os
import sys
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before transformers: fast tests never ask a hub

_spec = importlib.util.spec_from_file_location("shapes", Path(__file__).with_name("shapes.py"))
shapes = sys.modules["shapes"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(shapes)
shapes.check("workbench", "workbench_training", "workbench_apps")

_spec = importlib.util.spec_from_file_location("tiny", Path(__file__).with_name("tiny.py"))
tiny = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tiny)


_spec = importlib.util.spec_from_file_location("stand_in", Path(__file__).with_name("stand_in.py"))
_stand_in = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_stand_in)


def with_runner(subject):
    """Give the subject the default engine, as ``wb.load`` does."""
    if importlib.util.find_spec("workbench.engine.hooks") is not None:
        from workbench.registry import ENGINES

        subject.runner = ENGINES.create("hooks")
    return subject


def pytest_collection_finish():
    """Leave what is imported by now out of every later garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def check_notes():
    """``(*packages) -> finder``: check the notes of what is imported of them; tests/shapes.py."""
    return shapes.check


@pytest.fixture(scope="session")
def stand_in():
    """``with stand_in(answer) as (what was asked, url)``: a chat server; see tests/stand_in.py."""
    return _stand_in.serving


@pytest.fixture(scope="session")
def completion():
    """``(text, end="stop", **message) -> the JSON of a chat server's answer``."""
    return _stand_in.completion


@pytest.fixture(scope="session")
def tiny_tokenizer():
    """``(template="chatml", bos=False, pad="<|im_end|>") -> tokenizer``; see tests/tiny.py."""
    return tiny.tiny_tokenizer


@pytest.fixture(scope="session")
def tiny_network():
    """``(family="qwen3", vocabulary=512, layers=4, seed=0) -> model`` with random weights."""
    return tiny.tiny_network


@pytest.fixture(scope="session")
def tiny_model():
    """A 4-block, width-32 Qwen3 that fits the default tiny tokenizer; do not change it."""
    return tiny.tiny_network("qwen3", len(tiny.tiny_tokenizer()))


@pytest.fixture(scope="session")
def tiny_folder():
    """``(path, family="qwen3", template=..., bos=..., seed=0, layers=4) -> model folder``."""
    return tiny.tiny_folder


@pytest.fixture(scope="session")
def tiny_adapter():
    """``(path, base_folder, seed=1, rank=4, scale=0.3) -> LoRA adapter folder``."""
    return tiny.tiny_adapter


@pytest.fixture(params=tiny.FAMILIES)
def family(request):
    """Each family in turn, for laws that hold on all of them."""
    return request.param


@pytest.fixture(params=tiny.ALL_FAMILIES)
def any_family(request):
    """As ``family``, over every architecture that has a tiny model."""
    return request.param


@pytest.fixture(scope="session")
def families():
    """The names of the tiny families."""
    return tiny.FAMILIES


@pytest.fixture(scope="session")
def make_subject(tmp_path_factory):
    """``(family="qwen3", **options of tiny_folder) -> a fresh float32 Subject on the CPU``."""
    from workbench.models import read_checkpoint

    def make(family="qwen3", **options):
        folder = tiny.tiny_folder(tmp_path_factory.mktemp("tiny") / family, family, **options)
        adapter = None
        if family.startswith("peft_"):
            adapter = str(tiny.tiny_adapter(folder.with_name("adapter"), folder))
        return with_runner(
            read_checkpoint(str(folder), adapter=adapter, dtype="float32", device="cpu")
        )

    return make


@pytest.fixture(scope="session")
def subject_of(make_subject):
    """As ``make_subject``, but one Subject for the whole session: do not change its weights."""
    kept = {}

    def keep(family="qwen3", **options):
        key = (family, *sorted(options.items()))
        if key not in kept:
            kept[key] = make_subject(family, **options)
        return kept[key]

    return keep


@pytest.fixture(scope="session")
def tiny_subject(subject_of):
    """The tiny Qwen3 as a Subject with the default engine; do not change its weights."""
    return subject_of("qwen3")


@pytest.fixture(scope="session")
def real_subject():
    """SmolLM2-135M-Instruct in float32, for tests marked ``real``."""
    from workbench.models import read_checkpoint

    return with_runner(read_checkpoint("smollm2", dtype="float32", device="cpu"))


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """``(*words) -> (exit code, stdout, stderr)`` inside an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("workbench.api.cache_root", lambda: tmp_path / "cache")

    def call(*words):
        from workbench import cli

        monkeypatch.setattr(sys, "argv", ["workbench", *map(str, words)])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code or 0
        said = capsys.readouterr()
        return code, said.out, said.err

    return call
