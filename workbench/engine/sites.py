"""Where in a block a read takes its values, and what attention and MLP add to the stream.

``resid_pre`` is a block's input and ``resid_post`` its output. ``attn_out`` and ``mlp_out`` are
what the two halves add to the residual stream, after any norm that a family puts on them (Gemma 2
and 3, OLMo 2 and 3), so that ``resid_pre + attn_out + mlp_out = resid_post``. No table says which
norm that is: it is the child of the block that is handed the very tensor that attention or MLP
returned. The sum is checked on the values read, at every forward, so that a family that scales
what it adds, or adds more, is refused instead of misread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from workbench.engine.blocks import eager, hidden_into, hidden_of, watching
from workbench.engine.pool import SITES, Tap
from workbench.errors import WorkbenchError
from workbench.types import Subject

_KINDS = {
    "attn_out": ("attention", re.compile(r"attn|attention")),
    "mlp_out": ("MLP", re.compile(r"mlp|moe|feed_?forward|ffn")),
}
_WRAPPING = re.compile(r"norm|drop|(^|_)ln(_|$)")
ROUNDINGS = 2.0
"""The sum may miss by so many times the dtype's spacing at the size of its parts; 1 is the bound
for single tokens. A mean, summed in float32, may miss by one more for each of its tokens."""


def deepest_of(taps: Sequence[Tap]) -> tuple[int, bool]:
    """Return the last block that the taps need, and whether its input is enough."""
    layer = max(layer for tap in taps for layer in tap.layers)
    return layer, all(tap.read.site == "resid_pre" for tap in taps if layer in tap.layers)


Spot = Callable[[str, int], bool]
"""From a site and a block to whether it is read."""


def everywhere(_site: str, _layer: int) -> bool:
    """Say yes."""
    return True


def shared_up_to(fork: int) -> Spot:
    """Say what is the same whatever happens to the output of block ``fork`` and after it."""
    return lambda site, layer: layer < fork or (layer == fork and site != "resid_post")


def parted_after(fork: int) -> Spot:
    """Say what may differ then."""
    shared = shared_up_to(fork)
    return lambda site, layer: not shared(site, layer)


@contextmanager
def tapping(
    subject: Subject,
    taps: Sequence[Tap],
    layers: Sequence[int] | None = None,
    repeats: int = 1,
    where: Spot = everywhere,
) -> Iterator[None]:
    """Fill the taps during any forward inside, at these blocks and sites.

    Args:
        subject: the model under study.
        taps: the reads.
        layers: the blocks; all that the taps read where None.
        repeats: times that each row of a tap's batch stands in the forward.
        where: which sites of which blocks.

    Raises:
        WorkbenchError: a block's attention or MLP is not to be found, did not run, or does not
            add up with its input to its output.
    """
    known = sorted({layer for tap in taps for layer in tap.layers}) if layers is None else layers
    wanted = {
        (layer, site): [tap for tap in taps if tap.read.site == site and layer in tap.layers]
        for layer in known
        for site in SITES
        if where(site, layer)
    }
    found = {spot: own for spot, own in wanted.items() if own}

    def after(layer: int, output: Any) -> None:
        for tap in found[layer, "resid_post"]:
            tap.take(layer, hidden_of(output), repeats)

    followers = [
        Follower(subject, layer, tap, repeats)
        for (layer, site), own in found.items()
        if site in _KINDS
        for tap in own
    ]
    with ExitStack() as stack:
        for (layer, site), own in found.items():
            if site == "resid_pre":
                stack.enter_context(_entering(subject, layer, own, repeats))
        for follower in followers:
            stack.enter_context(follower.following())
        posts = [layer for layer, site in found if site == "resid_post"]
        stack.enter_context(watching(subject, posts, after))
        yield
    for follower in followers:
        follower.check()


@contextmanager
def _entering(subject: Subject, layer: int, taps: Sequence[Tap], repeats: int) -> Iterator[None]:
    def before(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for tap in taps:
            tap.take(layer, hidden_into(args, kwargs), repeats)

    handle = subject.blocks[layer].register_forward_pre_hook(eager(before), with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


class Follower:
    """Fills one tap at one block with what attention or MLP adds, and checks that it adds up.

    Args:
        subject: the model under study.
        layer: the block.
        tap: a read of ``attn_out`` or ``mlp_out``.
        repeats: times that each row of the tap's batch stands in the forward.

    Raises:
        WorkbenchError: the block has no such part, or several.
    """

    def __init__(self, subject: Subject, layer: int, tap: Tap, repeats: int) -> None:
        self.subject = subject
        self.layer = layer
        self.tap = tap
        self.repeats = repeats
        self.block = subject.blocks[layer]
        self.parts = {site: self._part(site) for site in _KINDS}
        self._outputs: dict[str, Tensor] = {}
        self._pooled: dict[str, list[Tensor]] = {}
        self._eps = 0.0
        self._missed: Tensor | None = None

    def _part(self, site: str) -> nn.Module:
        noun, name = _KINDS[site]
        children = dict(self.block.named_children())
        found = [own for own in children if name.search(own) and not _WRAPPING.search(own)]
        if len(found) != 1:
            raise WorkbenchError(
                f"block {self.layer} of {self.subject.ref.key} ({type(self.block).__name__}) has "
                f"{len(found)} {noun} modules among its parts ({', '.join(children)}), one "
                f"expected, so {self.tap.read.site} cannot be read; read resid_pre or resid_post"
            )
        return children[found[0]]

    @contextmanager
    def following(self) -> Iterator[None]:
        """Watch the block and its parts; its output is seen before anybody edits it."""
        handles = [
            self.block.register_forward_pre_hook(eager(self._enter), with_kwargs=True),
            self.block.register_forward_hook(eager(self._leave), prepend=True),
        ]
        handles += [
            child.register_forward_hook(eager(self._seen(child)), with_kwargs=True)
            for child in self.block.children()
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _seen(self, child: nn.Module) -> Callable[..., None]:
        own = next((site for site, part in self.parts.items() if part is child), None)

        def hook(
            _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
        ) -> None:
            given = args[0] if args else next(iter(kwargs.values()), None)
            site = own or next((s for s, h in self._outputs.items() if h is given), None)
            if site is not None:
                self._outputs[site] = hidden_of(output)
                self._keep(site, self._outputs[site])

        return hook

    def _keep(self, site: str, h: Tensor) -> None:
        value = self.tap.pooled(h, self.repeats)
        self._pooled[site] = [value] if isinstance(value, Tensor) else value
        if site == self.tap.read.site:
            self.tap.taken[self.layer] = value

    def _enter(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        h = hidden_into(args, kwargs)
        self._outputs, self._pooled = {}, {}
        self._eps = torch.finfo(h.dtype).eps
        self._keep("resid_pre", h)

    def _leave(self, _module: nn.Module, _args: Any, output: Any) -> None:
        silent = [_KINDS[site][0] for site in _KINDS if site not in self._pooled]
        if silent:
            raise WorkbenchError(
                f"{' and '.join(silent)} of block {self.layer} never ran as a module, so "
                f"{self.tap.read.site} cannot be read; a block compiled before the read hides its "
                "parts: load the model again without torch.compile"
            )
        self._keep("resid_post", hidden_of(output))
        pooled = [torch.cat([v.float() for v in values]) for values in self._pooled.values()]
        sites = dict(zip(self._pooled, pooled, strict=True))
        post = sites.pop("resid_post")
        size = sum((part.norm(dim=-1) for part in sites.values()), torch.zeros(1).to(post))
        miss = (sum(sites.values(), -post)).norm(dim=-1)
        allowed = ROUNDINGS * self._eps
        if self.tap.position.kind == "mean":
            allowed += self.tap.mask.shape[1] * torch.finfo(torch.float32).eps
        self._missed = (miss / (allowed * size).clamp(min=1e-30)).amax()
        self._outputs, self._pooled = {}, {}

    def check(self) -> None:
        """Refuse values that do not add up.

        Raises:
            WorkbenchError: input, attention and MLP miss the block's output by more than rounding.
        """
        if self._missed is not None and float(self._missed) > 1:
            raise WorkbenchError(
                f"block {self.layer} of {self.subject.ref.key} ({type(self.block).__name__}): "
                "resid_pre + attn_out + mlp_out misses resid_post by "
                f"{float(self._missed):.0f} times what rounding allows, so this family scales what "
                f"it adds or adds more, and {self.tap.read.site} would not be what joins the "
                "stream; read resid_pre or resid_post"
            )
