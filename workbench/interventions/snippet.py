"""A saved intervention as a page of plain transformers code, which reproduces it without us."""

from __future__ import annotations

from workbench.errors import ConfigError
from workbench.interventions.io import SavedIntervention
from workbench.interventions.keep_norm import ZERO
from workbench.interventions.scope import parse_scope

_FORMULAS = {
    "add": "h, dose, v: h + dose * v",
    "ablate": "h, dose, v: h - dose * (h @ v)[..., None] * v",
    "cap": "h, dose, v, floor, ceiling: (\n"
    "        h + dose * ((h @ v).clamp(floor, ceiling) - h @ v)[..., None] * v\n    )",
    "rescale": "h, dose, v, factor: h + dose * ((factor - 1) * (h @ v))[..., None] * v",
    "replace": "h, dose, v, value: h + dose * (value - h @ v)[..., None] * v",
    "affine": "h, dose, v, scale, offset: (\n"
    "        h + dose * ((scale - 1) * (h @ v) + offset)[..., None] * v\n    )",
    "linear_map": "h, dose, v, b, W=None, left=None, right=None: (\n"
    "        h + dose * ((h @ W.T if left is None else h @ right.T @ left.T) + b)\n    )",
    "project_to_subspace": "h, dose, v, basis, inside, outside, center=0.0: (\n"
    "        h + dose * ((outside - 1) * (h - center)"
    " + (inside - outside) * ((h - center) @ basis.T @ basis))\n    )",
}
_TERMS = {
    "all": "place > 0",
    "first": "place == 0",
    "prompt": "(place > 0) & (column < prompt)",
    "generated": "(column >= prompt).expand_as(place)",
    "last": "column >= torch.where(real & (column < prompt), column, -1).amax(1, keepdim=True)",
}
"""What a plain model can know of: where a token stands, and whether it came after the prompt."""
_TEMPLATE = '''\
"""{name}: edits {count} of {n_layers} blocks of {key}, in plain transformers."""

import contextlib
import json

import torch
from safetensors import safe_open

FORMULAS = {{
{formulas}
}}
SCOPES = {{
{scopes}
}}


@contextlib.contextmanager
def edited(model, path={path!r}):
    """Edit every forward of `model` inside; give `attention_mask` where rows are padded."""
    with safe_open(path, framework="pt") as file:
        edits = json.loads(file.metadata()["edits"])
        for number, edit in enumerate(edits):
            arrays = {{name: file.get_tensor(f"{{number}}.{{name}}") for name in edit["arrays"]}}
            edit["parts"] = {{**{{k: float(x) for k, x in edit["rows"].items()}}, **arrays}}
    blocks = next(
        module for module in model.modules()
        if isinstance(module, torch.nn.ModuleList) and len(module) == {n_layers}
    )
    now = {{}}

    def look(module, args, kwargs):
        ids = kwargs.get("input_ids", args[0] if args else None)
        cache = kwargs.get("past_key_values")
        cached = 0 if cache is None else cache.get_seq_length()
        real = kwargs.get("attention_mask")
        if real is None:
            real = ids.new_ones(ids.shape[0], cached + ids.shape[1])
        real, t = real.bool(), ids.shape[1]
        column, place = torch.arange(real.shape[1], device=real.device), real.cumsum(1) - 1
        prompt = (real.shape[1] - t) or real.shape[1]  # what is cached, else the whole row
        for scope, mask in SCOPES.items():
            now[scope] = (real & mask(real, column, place, prompt))[:, -t:, None]

    def edit_block(own):
        def hook(module, args, output):
            h = output[0] if isinstance(output, tuple) else output
            for edit in own:
                wide = h.float()
                parts = {{
                    name: part.to(wide.device) if isinstance(part, torch.Tensor) else part
                    for name, part in edit["parts"].items()
                }}
                new = FORMULAS[edit["edit"]](wide, edit["dose"], **parts)
                if edit["keep_norm"]:
                    before, after = wide.norm(dim=-1, keepdim=True), new.norm(dim=-1, keepdim=True)
                    new = new * torch.where(after > {zero} * before, before / after, 1)
                h = torch.where(now[edit["scope"]], new.to(h.dtype), h)
            return (h, *output[1:]) if isinstance(output, tuple) else h

        return hook

    handles = [model.register_forward_pre_hook(look, with_kwargs=True)]
    for layer in {{edit["layer"] for edit in edits}}:
        own = [edit for edit in edits if edit["layer"] == layer]
        handles.append(blocks[layer].register_forward_hook(edit_block(own)))
    try:
        yield model
    finally:
        for handle in handles:
            handle.remove()


# with edited(model), torch.no_grad():
#     model.generate(**tokenizer(["..."], return_tensors="pt"), max_new_tokens=40)
'''


def plain_code(saved: SavedIntervention, path: str) -> str:
    """Return Python code that applies the file to a plain transformers model.

    It gives the numbers of ``wb.intervene`` to rounding; it does not check that the model fits.

    Raises:
        ConfigError: an edit or a scope without a plain form, such as one from a plug-in.
    """
    for edit in saved.edits:
        if edit.name not in _FORMULAS or parse_scope(edit.scope).spans:
            raise ConfigError(
                f"edit {edit.name!r} with scope {edit.scope!r} has no plain code"
                + ("" if edit.name not in _FORMULAS else ", since a plain model knows no spans")
                + f"; apply it with wb.intervene(subject, [wb.load_intervention({path!r})])"
            )
    names = sorted({edit.name for edit in saved.edits})
    scopes = sorted({edit.scope for edit in saved.edits})
    return _TEMPLATE.format(
        name=saved.name,
        key=saved.model.key,
        count=len(saved.layers),
        n_layers=saved.model.n_layers,
        path=path,
        zero=ZERO,
        formulas="\n".join(f"    {name!r}: lambda {_FORMULAS[name]}," for name in names),
        scopes="\n".join(map(_scope_line, scopes)),
    )


def _scope_line(text: str) -> str:
    """Write a scope as an entry of the page's table."""
    scope = parse_scope(text)
    terms = [f"({_TERMS[name]})" for name in _TERMS if name in scope.places]
    for start, stop in scope.ranges:
        end = "" if stop is None else f" & (place < {stop})"
        terms.append(f"((place >= {start}){end})")
    union = "\n        | ".join(terms)
    return f"    {text!r}: lambda real, column, place, prompt: (\n        {union}\n    ),"
