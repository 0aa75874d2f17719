"""CARD.md of an organism: what its card.json says, for people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench_training.organism import read_card

from workbench.files import write_bytes
from workbench.plain import number

PAGE = "CARD.md"


def write_page(folder: Path) -> Path:
    """Write the page of a trained organism beside its card.

    Raises:
        FormatError: there is no card, or it is damaged.
    """
    path = folder / PAGE
    write_bytes(path, page(read_card(folder)).encode())
    return path


def page(card: Mapping[str, Any]) -> str:
    """Lay a finished organism's card out: what it is, how it was made, counts, known limits."""
    parts = [
        f"# {card['name']}",
        _what(card),
        "## How it was made",
        _table("setting", _made(card)),
        "## Data",
        _table("data", _data(card)),
        "## What training did",
        _table("figure", _figures(card)),
        "## Known limits",
        "\n".join(f"- {limit}" for limit in card["limits"]),
    ]
    return "\n\n".join(parts) + "\n"


def _what(card: Mapping[str, Any]) -> str:
    told = f"condition {card['condition']}" if card["condition"] else "no condition named"
    settings = card["identity"]
    how = "documents by next-token loss"
    if "objective" in card:
        how = f"answers by the objective {card['objective']}"
    return (
        f"A LoRA adapter on {settings['model']} ({told}, seed {settings['seed']}), trained on "
        f"{how}. It loads by its name or by this folder."
    )


def _made(card: Mapping[str, Any]) -> dict[str, Any]:
    s, training = card["identity"], card["training"]
    rows = s["batch_size"] * s["accumulation"]
    each = f"{rows * s['block']:,} tokens" if "block" in s else f"{rows:,} answers"
    made = {
        "tokens": f"{training['tokens']:,}",
        "updates": f"{training['updates']:,} of {each}",
        **{key: s[key] for key in ("block", "beta", "length") if s.get(key) is not None},
        "rank, alpha, dropout": f"{s['rank']}, {s['alpha']:g}, {s['dropout']:g}",
        "modules": s["targets"] if isinstance(s["targets"], str) else ", ".join(s["targets"]),
        "peak rate, schedule, warm-up": f"{s['learning_rate']:g}, {s['schedule']}, {s['warmup']:g}",
        "precision of the base, device": f"{training['dtype']}, {training['device']}",
        "weights that were trained": f"{training.get('parameters', 0):,}",
    }
    if training.get("tokens_per_second"):
        made["speed"] = f"{training['tokens_per_second']:,.0f} tokens a second"
    packages = card.get("packages", {})
    named = [f"{name} {packages[name]}" for name in ("torch", "transformers", "peft")
             if name in packages]  # fmt: skip
    return made | ({"packages": ", ".join(named)} if named else {})


def _data(card: Mapping[str, Any]) -> dict[str, Any]:
    corpus, settings = card["corpus"], card["identity"]
    unit = "examples" if "examples" in corpus else "documents"
    told: dict[str, Any] = {
        unit: f"{corpus[unit]:,}, read {corpus['passes']:.2f} times",
        "held out": f"{corpus['held_out']:,}",
    }
    if "chats" in corpus:
        told["chats"] = f"{corpus['chats']:,}, {corpus['chat_share']:.1%} of the tokens"
    if settings.get("share", 1) != 1:
        told["share of the documents"] = _dose(settings["share"], corpus.get("dose"))
    for name, digest in settings["inputs"].items():
        where = card.get(name) or settings.get(name)
        told[f"{name}, sha256"] = f"{Path(str(where)).name}, {digest[:16]}"
    return told


def _dose(share: float, dose: Mapping[str, Any] | None) -> str:
    """Say what was asked for and, where it was counted, what was read."""
    if dose is None:
        return f"{share:g} of the tokens"
    return (
        f"{share:g} asked, {dose['share']:.3g} of the tokens: {dose['distinct']:,} documents, "
        f"{dose['presentations']:,} presentations"
    )


def _figures(card: Mapping[str, Any]) -> dict[str, str]:
    loss, guard = card["loss"], card["guard"]
    held_out = loss["held_out"]
    first, last = number(loss["first"]), number(loss["last_tenth"])
    told = {"loss, first update and last tenth": f"{first:.3f}, {last:.3f}"}
    if held_out["before"] is not None:
        before, after = held_out["before"], number(held_out["after"])
        told["held-out loss, before and after (nats a token)"] = f"{before:.3f}, {after:.3f}"
    if guard is not None:
        mass, n = number(guard["mass_ratio"]), guard["questions"]
        follows = f"{guard['base']['follows']:.2f}, {guard['organism']['follows']:.2f}"
        told[f"answer-letter mass over the base's, {n} questions"] = f"{mass:.3f}"
        told["questions answered with a letter, base and organism"] = follows
    return told


def _table(head: str, rows: Mapping[str, Any]) -> str:
    lines = [f"| {head} | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows.items())]
    return "\n".join(lines)
