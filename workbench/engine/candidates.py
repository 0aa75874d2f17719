"""Candidates as a tree of tokens to feed after a prompt, and the sums that score them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from workbench.types import AnyRead, CandidatesRead, LogitsRead

ROOT = -1
"""The node of the prompt's last token."""


@dataclass(frozen=True)
class Step:
    """One factor of a candidate's likelihood: any of ``tokens`` comes after ``node``."""

    read: int
    candidate: int
    node: int
    tokens: tuple[int, ...]


@dataclass
class Tree:
    """Tokens to feed after one prompt, shared beginnings merged; a parent precedes its children."""

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    _nodes: dict[tuple[int, int], int] = field(default_factory=dict)

    def child(self, node: int, token: int) -> int:
        """Return the node of ``token`` after ``node``, made where it is missing."""
        if (node, token) not in self._nodes:
            self._nodes[node, token] = len(self.tokens)
            self.tokens.append(token)
            self.parents.append(node)
            self.depths.append(0 if node == ROOT else self.depths[node] + 1)
        return self._nodes[node, token]

    def line(self, node: int) -> list[int]:
        """Return the nodes from the first token to ``node``."""
        nodes: list[int] = []
        while node != ROOT:
            nodes.append(node)
            node = self.parents[node]
        return nodes[::-1]

    def lines(self) -> list[list[int]]:
        """Return every way from the first token to a token without children."""
        inner = set(self.parents)
        return [self.line(node) for node in range(len(self.tokens)) if node not in inner]


def grow(reads: Sequence[AnyRead]) -> Tree:
    """Return the tree of all candidates that one request asks about.

    A candidate's last token is fed only where a terminator must be scored after it.
    """
    tree = Tree()
    for number, read in enumerate(reads):
        if isinstance(read, CandidatesRead):
            for place, candidate in enumerate(read.candidates):
                _grow(tree, number, place, candidate, tuple(sorted(set(read.terminators))))
    return tree


def _grow(
    tree: Tree, read: int, place: int, candidate: Sequence[int], ends: tuple[int, ...]
) -> None:
    if not candidate and not ends:
        raise ValueError(f"candidate {place} of read {read} has neither a token nor a terminator")
    factors = [(token,) for token in candidate] + ([ends] if ends else [])
    node = ROOT
    for depth, tokens in enumerate(factors):
        tree.steps.append(Step(read, place, node, tokens))
        if depth + 1 < len(factors):
            node = tree.child(node, candidate[depth])


def wants_logits(reads: Sequence[AnyRead]) -> bool:
    """Whether a request needs next-token probabilities after its prompt."""
    return any(isinstance(read, (CandidatesRead, LogitsRead)) for read in reads)


@dataclass(frozen=True)
class Feed:
    """Rows of tokens that continue prompts, padded on the right.

    Either one row a line of a tree, or one row a tree with ``sees`` saying which tokens of the row
    each may attend to.
    """

    prompts: Int[Tensor, " f"]
    """The row of the prompt batch that each row continues."""
    ids: Int[Tensor, "f w"]
    depths: Int[Tensor, "f w"]
    real: Bool[Tensor, "f w"]
    counted: Bool[Tensor, "f w"]
    """Real, and not already in an earlier row."""
    sees: Bool[Tensor, "f w w"] | None
    where: dict[tuple[int, int], tuple[int, int]]
    """(prompt, node) -> (row, column), of nodes that stand in no earlier row."""


Line = tuple[int, list[int]]
"""A prompt and nodes of its tree that stand in one row."""


def lines_of(trees: Sequence[Tree], whole: bool) -> list[Line]:
    """Return the rows to feed: one for each line of a tree, or one for each whole tree."""
    if whole:
        return [(p, list(range(len(tree.tokens)))) for p, tree in enumerate(trees) if tree.tokens]
    return [(prompt, line) for prompt, tree in enumerate(trees) for line in tree.lines()]


def feed(
    trees: Sequence[Tree],
    lines: Sequence[Line],
    *,
    whole: bool,
    pad: int,
    device: torch.device,
    seen: set[tuple[int, int]],
) -> Feed:
    """Lay lines out as one batch; ``seen`` collects nodes that stand in an earlier row."""
    shape = (len(lines), max(len(nodes) for _, nodes in lines))
    ids, depths = torch.full(shape, pad), torch.zeros(shape, dtype=torch.long)
    real, counted = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
    where: dict[tuple[int, int], tuple[int, int]] = {}
    for row, (prompt, nodes) in enumerate(lines):
        tree, n = trees[prompt], len(nodes)
        ids[row, :n] = torch.tensor([tree.tokens[node] for node in nodes])
        depths[row, :n] = torch.tensor([tree.depths[node] for node in nodes])
        real[row, :n] = True
        for column, node in enumerate(nodes):
            if (prompt, node) not in seen:
                seen.add((prompt, node))
                counted[row, column] = True
                where[prompt, node] = (row, column)
    sees = [_ancestry(trees[prompt], shape[1]) for prompt, _ in lines] if whole else None
    return Feed(
        prompts=torch.tensor([prompt for prompt, _ in lines], device=device),
        ids=ids.to(device),
        depths=depths.to(device),
        real=real.to(device),
        counted=counted.to(device),
        sees=None if sees is None else torch.stack(sees).to(device),
        where=where,
    )


def _ancestry(tree: Tree, width: int) -> Bool[Tensor, "w w"]:
    """Let each token see itself and what leads to it; a pad sees itself, lest a row be empty."""
    sees = torch.eye(width, dtype=torch.bool)
    for node, parent in enumerate(tree.parents):
        if parent != ROOT:
            sees[node] |= sees[parent]
    return sees


def log_likelihoods(
    logits: Float[Tensor, "p a v"], places: Int[Tensor, " s"], tokens: Int[Tensor, "s c"]
) -> Float[Tensor, "s a"]:
    """Return log P(any of a step's tokens) at its place, for each arm; tokens of -1 are padding."""
    wide = logits.float()
    picked = wide[places[:, None], :, tokens.clamp(min=0)]
    picked = torch.where((tokens >= 0)[..., None], picked, -torch.inf)
    return picked.logsumexp(1) - wide.logsumexp(-1)[places]


def padded_tokens(steps: Sequence[Step], device: torch.device) -> Int[Tensor, "s c"]:
    """Lay the tokens of steps side by side, -1 where one has fewer."""
    width = max(len(step.tokens) for step in steps)
    rows = [[*step.tokens, *[-1] * (width - len(step.tokens))] for step in steps]
    return torch.tensor(rows, device=device)
