"""Verbs of the Assistant Axis: rollout, judge, axis, cosines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from workbench.cli.app import app
from workbench.cli.batch import launch
from workbench.cli.options import Device, Dtype, Options, batch, settings_of
from workbench.cli.say import line, print_table

Each = Annotated[list[str] | None, typer.Option(help="A store of answers (one a seed).")]


@app.command()
@batch
def rollout(
    model: Annotated[str, typer.Argument(help="The model that answers, or a .toml.")],
    options: Options,
    kind: Annotated[str | None, typer.Option(help="roles, traits, prompts, ...")] = None,
    take: Annotated[
        list[str] | None, typer.Option(help="How many of what: roles=24 (repeatable).")
    ] = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="Of each answer.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy.")] = None,
    draws: Annotated[int | None, typer.Option(help="Answers to each chat.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the draws.")] = None,
    dtype: Dtype = None,
    device: Device = None,
) -> None:
    """Let a model answer as roles, for and against traits. Leaves transcripts.

    A server of the OpenAI protocol answers where a .toml has a [server] table in place of a model.
    """
    from workbench.config import override

    flags: dict[str, Any] = {"kind": kind, "draws": draws, "seed": seed}
    flags |= {"max_new_tokens": max_new_tokens, "temperature": temperature}
    flags |= {"dtype": dtype, "device": device}
    data = settings_of(model, {"model": model}, flags, options)
    data = override(data, [f"take.{setting}" for setting in take or ()])
    done = launch("rollout", data, options)
    if done is None or options.as_json or done.status == "part":
        return
    told = ", ".join(f"{count:,} {reason}" for reason, count in done.result["answers"].items())
    line(f"{done.result['n']:,} chats: {told}; {done.result['tokens']:,} tokens written")


@app.command()
@batch
def judge(
    transcripts: Annotated[str, typer.Argument(help="A rollout's run or file, or a .toml.")],
    options: Options,
    by: Annotated[str | None, typer.Option(help="none, likelihood, local or server.")] = None,
    model: Annotated[str | None, typer.Option(help="For likelihood and local.")] = None,
    measure: Annotated[
        list[str] | None, typer.Option(help="role, trait or coherence (repeatable).")
    ] = None,
    folder: Annotated[str | None, typer.Option(help="Where rubrics are read.")] = None,
    dtype: Dtype = None,
    device: Device = None,
) -> None:
    """Score rollouts of roles (0 to 3) or traits (0 to 100). What has no score keeps its reason."""
    flags: dict[str, Any] = {"judge": by, "model": model, "measures": measure or None}
    flags |= {"folder": folder, "dtype": dtype, "device": device}
    words = {"transcripts": transcripts}
    done = launch("judge", settings_of(transcripts, words, flags, options), options)
    if done is None or options.as_json or done.status == "part":
        return
    line(f"judge: {done.result['judge']}")
    for name in ("role", "trait", "coherence"):
        if name in done.result:
            told = ", ".join(f"{count:,} {reason}" for reason, count in done.result[name].items())
            line(f"{name}: {told}")


@app.command()
@batch
def axis(
    roles: Annotated[str, typer.Argument(help="A store of rollouts of roles, or a .toml.")],
    options: Options,
    traits: Annotated[str | None, typer.Option(help="A store of rollouts of traits.")] = None,
    judged_roles: Annotated[str | None, typer.Option(help="Transcripts with scores.")] = None,
    judged_traits: Annotated[str | None, typer.Option(help="Transcripts with scores.")] = None,
    organism: Each = None,
    rule: Annotated[str | None, typer.Option(help="repo, paper or all.")] = None,
    least: Annotated[int | None, typer.Option(help="Rollouts that a role needs.")] = None,
    layer: Annotated[int | None, typer.Option(help="The block to tell of.")] = None,
) -> None:
    """Make role and trait vectors and the Assistant Axis. Its floors, the map of personas."""
    flags: dict[str, Any] = {"traits": traits, "organisms": organism or None, "rule": rule}
    flags |= {"judged_roles": judged_roles, "judged_traits": judged_traits}
    flags |= {"least": least, "layer": layer}
    done = launch("axis", settings_of(roles, {"roles": roles}, flags, options), options)
    if done is None or options.as_json:
        return
    shown = ["layer", "cosine", "low", "high", "n", "explained", "control", "control_high"]
    _show(done.path / "pc1.parquet", shown)
    judges = ", ".join(f"{what}s by {who}" for what, who in done.result["judges"].items())
    line(f"judged: {judges}; {done.result['rule']}")


@app.command()
@batch
def cosines(
    file: Annotated[str, typer.Argument(help="COSINES.toml, or the direction's name.")],
    options: Options,
    first: Each = None,
    second: Each = None,
    roles: Annotated[str | None, typer.Option(help="roles.safetensors of an axis run.")] = None,
    traits: Annotated[str | None, typer.Option(help="Its traits.safetensors.")] = None,
    axis: Annotated[str | None, typer.Option(help="Its axis.safetensors.")] = None,
    groups: Annotated[str | None, typer.Option(help="Column resampled together.")] = None,
) -> None:
    """Compare two organisms' difference with roles and traits. Beside five nulls."""
    flags: dict[str, Any] = {"first": first or None, "second": second or None, "groups": groups}
    flags |= {"roles": roles, "traits": traits, "axis": axis}
    done = launch("cosines", settings_of(file, {"name": file}, flags, options), options)
    if done is not None and not options.as_json:
        from workbench.pipelines.report_axis import largest_cosines

        print_table(largest_cosines(done))


def _show(path: Path, columns: list[str]) -> None:
    import pandas as pd

    print_table(pd.read_parquet(path)[columns])
