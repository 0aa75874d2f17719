"""What a live card did, as a script that does it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from pprint import pformat

from workbench_apps.personas import Source

_LOAD = """\
import workbench as wb
from workbench.api import load_for_readouts

axis = wb.open_directions({axis!r})
messages = {messages}
"""
_DRIFT = """
for ref, base in {models}:
    subject = load_for_readouts(ref) if base is None else load_for_readouts(ref, base=base)
    tokens = conversation_drift(subject, axis, messages, layers=[{layer}])
    print(ref, turn_means(tokens), sep="\\n")
"""
_CAPPED = """
ref, base = {model}
subject = load_for_readouts(ref) if base is None else load_for_readouts(ref, base=base)
floors = {floors}
cap = wb.Intervention.cap(axis, layers=list(floors), floor=floors)
arms = {{"uncapped": (), "capped": (cap,)}}
replies = dict.fromkeys(arms, "")
sampling = {sampling}
for piece in wb.stream(subject, [messages], arms, render="chat", **sampling):
    replies[piece.arm] += piece.text
for arm, reply in replies.items():
    print(f"{{arm}}: {{reply}}")
"""


def drift_script(
    models: Sequence[Source], axis: Path, layer: int, messages: Sequence[Mapping[str, str]]
) -> str:
    """Return a script that reads a conversation with each model and prints its turns."""
    head = _LOAD.format(axis=str(axis), messages=pformat(list(messages), sort_dicts=False))
    drift = "from workbench.drift import conversation_drift, turn_means\n"
    head = head.replace("load_for_readouts\n", f"load_for_readouts\n{drift}", 1)
    return head + _DRIFT.format(models=pformat(list(models)), layer=layer)


def capped_script(
    model: Source,
    axis: Path,
    floors: Mapping[int, float],
    messages: Sequence[Mapping[str, str]],
    **sampling: int | float,
) -> str:
    """Return a script that prints the same two replies."""
    head = _LOAD.format(axis=str(axis), messages=pformat(list(messages), sort_dicts=False))
    return head + _CAPPED.format(
        model=repr(model),
        floors=pformat(dict(floors)),
        sampling=pformat(sampling, sort_dicts=False),
    )
