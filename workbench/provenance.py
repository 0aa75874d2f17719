"""What a result was made with: code, packages, machine. Recorded, never part of a run's id."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    *("interp-workbench", "torch", "transformers", "peft", "accelerate", "numpy", "scipy"),
    *("scikit-learn", "h5py", "safetensors", "pyarrow", "pandas", "nnsight"),
    *("transformer-lens", "gguf"),
)


def git_state() -> dict[str, Any]:
    """Return commit and dirty flag of the checkout that this package runs from, if it is one."""
    source = Path(__file__)
    git = ["git", "-C", str(source.parent)]
    tracked = _output([*git, "ls-files", "--error-unmatch", source.name])
    commit = _output([*git, "rev-parse", "HEAD"]) if tracked else None
    if not commit:
        return {}
    dirty = _output([*git, "status", "--porcelain", "--untracked-files=no"])
    return {"commit": commit, "dirty": bool(dirty)}


def _output(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def package_versions() -> dict[str, str]:
    """Return the versions of the installed packages that numbers depend on."""
    return dict(_versions())


@functools.cache
def _versions() -> tuple[tuple[str, str], ...]:
    """Read once: a package that is replaced while a process runs is not the one that it runs."""
    found = []
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append((name, metadata.version(name)))
    return tuple(found)


def describe_machine() -> str:
    """Return the accelerator, if any, and the processor, in words."""
    import torch

    cpu = f"{platform.machine()} with {os.cpu_count()} cores, {platform.system()}"
    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name(0)} x {torch.cuda.device_count()}, {cpu}"
    return cpu
