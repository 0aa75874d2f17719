"""The folder of an organism: its card, its training log, and the checkpoints it resumes from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from workbench.errors import ConfigError, FormatError
from workbench.files import write_bytes
from workbench.plain import as_json
from workbench.runs import differing

FORMAT = "interp-workbench/organism"
VERSION = 1
CARD = "card.json"
LOG = "train_log.jsonl"
CHECKPOINTS = "checkpoints"
WHOLE = "complete"
"""Marks a checkpoint whose every file was written; one without it is what a kill left."""
ADAPTER = ("adapter_model.safetensors", "adapter_config.json")


def state_of(folder: Path, identity: Mapping[str, Any]) -> Literal["new", "resumed", "done"]:
    """Say how far the training run with this identity has come in a folder.

    Args:
        folder: where the organism goes; it need not exist.
        identity: the settings and input hashes that make a run what it is.

    Raises:
        ConfigError: the folder holds another run or a foreign adapter.
        FormatError: its card is damaged.
    """
    if not (folder / CARD).exists():
        if (folder / ADAPTER[1]).exists():
            raise ConfigError(
                f"{folder} holds an adapter without a {CARD}, so it was not trained here; "
                "give another folder"
            )
        return "new"
    card = read_card(folder)
    changed = differing(card["identity"], identity)
    if changed:
        raise ConfigError(
            f"{folder} holds a training run with other settings ({'; '.join(changed)}); give "
            "another folder, or the same settings to go on"
        )
    whole = all((folder / name).exists() for name in ADAPTER)
    return "done" if card["status"] == "done" and whole else "resumed"


def read_card(folder: Path) -> dict[str, Any]:
    """Read what is known about an organism.

    Raises:
        FormatError: there is no card, or it is damaged or of another version.
    """
    path = folder / CARD
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FormatError(f"no {CARD} in {folder}; give the folder of a trained organism") from None
    except ValueError as error:
        raise FormatError(f"{path} is not JSON ({error}); train again in another folder") from None
    if not isinstance(card, dict) or (card.get("format"), card.get("version")) != (FORMAT, VERSION):
        raise FormatError(
            f"{path} is no organism card ({FORMAT}, version {VERSION} expected); "
            "train again in another folder"
        )
    return card


def write_card(folder: Path, content: Mapping[str, Any]) -> None:
    """Replace the card in one step."""
    card = {"format": FORMAT, "version": VERSION, **content}
    write_bytes(folder / CARD, as_json(card, indent=2).encode())


def base_limits(card: Mapping[str, Any]) -> list[str]:
    """Say in words what the base keeps from being checked or exact."""
    said = []
    if card["guard"] is None:
        said.append("The base has no chat template, so the answer format was not checked.")
    if card["base"]["quantization"]:
        said.append(f"The base's weights were rounded ({card['base']['quantization']}).")
    return said


def summary(card: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a finished card that a run tells."""
    guard, held_out = card["guard"], card["loss"]["held_out"]
    objective = {"objective": card["objective"]} if "objective" in card else {}
    return {
        "model": card["model"],
        **objective,
        "updates": card["training"]["updates"],
        "tokens": card["training"]["tokens"],
        "loss_first": card["loss"]["first"],
        "loss_last": card["loss"]["last_tenth"],
        "held_out_before": held_out["before"],
        "held_out_after": held_out["after"],
        "letter_mass_ratio": guard["mass_ratio"] if guard is not None else None,
    }


def log_step(folder: Path, row: Mapping[str, Any]) -> None:
    """Append one line to the training log."""
    with (folder / LOG).open("a", encoding="utf-8") as file:
        file.write(as_json(row) + "\n")


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Return the training log; a last line that a kill cut short is left out."""
    path = folder / LOG
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def rewind_log(folder: Path, step: int) -> None:
    """Drop what was logged after ``step``: those steps are trained again."""
    kept = [row for row in read_log(folder) if row["step"] <= step]
    write_bytes(folder / LOG, "".join(as_json(row) + "\n" for row in kept).encode())


def last_checkpoint(folder: Path) -> Path | None:
    """Return the latest complete checkpoint, and remove incomplete ones."""
    found = {}
    for path in (folder / CHECKPOINTS).glob("checkpoint-*"):
        if (path / WHOLE).exists():
            found[int(path.name.rpartition("-")[2])] = path
        else:
            shutil.rmtree(path)
    return found[max(found)] if found else None


def strip_checkpoints(folder: Path) -> None:
    """Keep the adapter of each whole checkpoint alone: what training resumes from goes."""
    last_checkpoint(folder)
    for path in (folder / CHECKPOINTS).glob("checkpoint-*"):
        for entry in path.iterdir():
            if entry.name not in ADAPTER:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
