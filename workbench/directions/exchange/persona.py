"""Persona vectors (Chen et al. 2025): one tensor, a row for each entry of ``hidden_states``.

Row l is what block l - 1 puts out, so row 0 is the embedding. The last row has been through the
final norm and is of another space than the block's output; both are left out.
"""

from __future__ import annotations

import re
from typing import Any

from workbench.directions.container import Directions
from workbench.directions.exchange.pickled import load_pickled
from workbench.directions.exchange.wanted import Wanted, float32
from workbench.errors import FormatError, MismatchError

FORMAT = "persona-vectors"
POSITIONS = {
    "response_avg": "mean:assistant",
    "prompt_avg": "mean:prompt",
    "prompt_last": "last",
}
"""Where the three files of a trait were read; the mean over a whole prompt is no span here."""
_NAME = re.compile(rf"(.+)_({'|'.join(POSITIONS)})_diff")


def read_persona(wanted: Wanted) -> Directions:
    """Read the vectors of one trait, for blocks 0 to the last but one.

    Raises:
        FormatError: no tensor of (layers + 1, width), or a pickle that runs code.
        MismatchError: another number of layers or width.
    """
    rows = tensor_of(load_pickled(wanted.path), wanted)
    n_layers = wanted.model.n_layers
    wanted.refuse_width("a row", rows.shape[1])
    if len(rows) != n_layers + 1:
        raise MismatchError(
            f"{wanted.path} has {len(rows)} rows, but {wanted.model.key} has {n_layers} blocks and "
            f"so {n_layers + 1} hidden_states; take a file that was made with this model"
        )
    named = _NAME.fullmatch(wanted.path.stem)
    return wanted.build(
        [wanted.name or (named[1] if named else wanted.path.stem)],
        range(n_layers - 1),
        float32(rows)[None, 1:n_layers],
        format=FORMAT,
        position=POSITIONS[named[2]] if named else None,
        info={
            "layer_convention": "row l of hidden_states = output of block l - 1",
            "left_out": f"row 0 (the embedding) and row {n_layers} (after the final norm)",
        },
    )


def tensor_of(content: Any, wanted: Wanted) -> Any:
    """Return the content if it is one matrix of floats.

    Raises:
        FormatError: it is something else.
    """
    import torch

    if not isinstance(content, torch.Tensor):
        raise FormatError(
            f"{wanted.path} holds {_said(content)}; one tensor of (layers, width) expected"
        )
    if content.ndim != 2 or not content.is_floating_point():
        raise FormatError(
            f"{wanted.path} holds a tensor of {content.dtype} {tuple(content.shape)}; numbers with "
            "a fraction, (layers, width), expected"
        )
    return content


def _said(content: Any) -> str:
    keys = f" with {', '.join(map(str, list(content)[:6]))}" if isinstance(content, dict) else ""
    return f"a {type(content).__name__}{keys}"
