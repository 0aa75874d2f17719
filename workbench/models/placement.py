"""Which device and number format the words "auto", "cuda" or "bfloat16" mean here."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from workbench.errors import ConfigError

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
_CPU_BF16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Processor flags (x86 and Arm) of bfloat16 arithmetic in hardware."""


def choose_device(device: str | torch.device) -> torch.device:
    """Return the device; "auto" is the first of CUDA, MPS and the CPU that is there.

    Raises:
        ConfigError: no such device here.
    """
    if str(device) == "auto":
        return torch.device(_best())
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise ConfigError(
            f"device = {str(device)!r} is no device; give auto, cpu, cuda, cuda:1 or mps"
        ) from None
    if not _present(chosen):
        raise ConfigError(f"device = {str(device)!r} is not there; {_best()!r} is, or use auto")
    return chosen


def visible_cards() -> list[str]:
    """Return the CUDA devices of this process, each as CUDA_VISIBLE_DEVICES names it."""
    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = [name.strip() for name in named.split(",")] if named else map(str, range(count))
    return list(names)[:count]


def choose_dtype(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    """Return the number format; "auto" is bfloat16 where the hardware computes in it.

    Raises:
        ConfigError: another word.
    """
    if isinstance(dtype, torch.dtype):
        dtype = str(dtype).removeprefix("torch.")
    if dtype == "auto":
        return torch.bfloat16 if computes_bf16(device) else torch.float32
    if dtype not in DTYPES:
        raise ConfigError(f"dtype = {dtype!r} is unknown; known: auto, {', '.join(DTYPES)}")
    return DTYPES[dtype]


def computes_bf16(device: torch.device) -> bool:
    """Whether bfloat16 is faster than float32 here, asked of the hardware, never assumed."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and bool(_CPU_BF16 & _cpu_flags())


def _cpu_flags() -> frozenset[str]:
    """Processor flags as the kernel lists them; none where it lists none."""
    listing = Path("/proc/cpuinfo")
    if not listing.is_file():
        return frozenset()
    lines = listing.read_text(encoding="utf-8", errors="replace").splitlines()
    named = (line for line in lines if line.lower().startswith(("flags", "features")))
    return frozenset(next(named, "").partition(":")[2].split())


def _best() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _present(device: torch.device) -> bool:
    if device.type == "cuda":
        return (device.index or 0) < torch.cuda.device_count()
    if device.type == "mps":
        return torch.backends.mps.is_available()
    return device.type in ("cpu", "meta")
