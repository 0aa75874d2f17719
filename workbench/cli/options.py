"""Options that verbs have in common, and how words, flags and a TOML file become settings."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from workbench.cli.say import Told

RUNS = Path("runs")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")]
Root = Annotated[Path, typer.Option("--runs", help="Where run folders lie.")]
Plugin = Annotated[
    list[Path] | None, typer.Option("--plugin", help="A Python file of your own to load first.")
]
Dtype = Annotated[str | None, typer.Option(help="auto, float32, bfloat16.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda, mps.")]


@dataclass(frozen=True)
class Options:
    """What every batch verb takes."""

    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Override a setting: a.b=c (repeatable).")
    ] = None
    out: Annotated[
        Path | None, typer.Option("--out", help="The run folder (default runs/VERB/ID).")
    ] = None
    root: Root = RUNS
    dry: Annotated[bool, typer.Option("--dry", help="Print the resolved plan; run nothing.")] = (
        False
    )
    force: Annotated[bool, typer.Option("--force", help="Move a folder of another run aside.")] = (
        False
    )
    shard: Annotated[str | None, typer.Option(help="i/n: do share i of n.")] = None
    as_json: Json = False
    plugin: Plugin = None
    told: Told = field(default_factory=lambda: Told(""))
    """Where the command notes which run it is at; no option."""


def batch(body: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the common options; its last parameter, ``options``, gets them.

    Plug-ins are loaded before the body runs.
    """
    common = [entry for entry in fields(Options) if entry.name != "told"]
    hints = get_type_hints(Options, include_extras=True)
    own = inspect.signature(body, eval_str=True).parameters.values()
    options = [
        inspect.Parameter(
            entry.name, inspect.Parameter.KEYWORD_ONLY, default=entry.default,
            annotation=hints[entry.name],
        )
        for entry in common
    ]  # fmt: skip
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)

    @functools.wraps(body)
    def verb(context: Any, **words: Any) -> None:
        chosen = Options(
            told=context.obj, **{entry.name: words.pop(entry.name) for entry in common}
        )
        load_plugins(chosen.plugin)
        body(**words, options=chosen)

    kept = [parameter for parameter in own if parameter.name != "options"]
    signature = inspect.Signature([*kept, *options, context])
    verb.__signature__ = signature  # type: ignore[attr-defined]
    verb.__annotations__ = {name: p.annotation for name, p in signature.parameters.items()}
    del verb.__dict__["__wrapped__"]  # whose annotations would be looked at instead
    return verb


def load_plugins(paths: list[Path] | None) -> None:
    """Load files of the user's own."""
    from workbench.registry import load_plugin

    for path in paths or ():
        load_plugin(path)


def settings_of(
    first: str, words: Mapping[str, Any], flags: Mapping[str, Any], options: Options
) -> dict[str, Any]:
    """Return settings from a TOML file, or from the words; flags and --set go on top.

    Raises:
        ConfigError: no such file, or no words in its place.
    """
    from workbench.config import override, read_toml
    from workbench.errors import ConfigError

    if not words and not first.endswith(".toml"):
        raise ConfigError(f"{first!r} is no settings file; give the path of a .toml file")
    base = read_toml(Path(first)) if first.endswith(".toml") else dict(words)
    given = {key: value for key, value in flags.items() if value is not None}
    return override({**base, **given}, options.settings or ())


def blocks(layers: str | None) -> Any:
    """Return the block indices of ``3,14,15``, or ``all``.

    Raises:
        ConfigError: it is neither.
    """
    if layers is None or layers == "all":
        return layers
    from workbench.errors import ConfigError

    try:
        return [int(part) for part in layers.split(",")]
    except ValueError:
        raise ConfigError(f"--layers {layers!r}: write 'all' or indices such as 3,14,15") from None
