"""Contrast-consistent search: a direction on which a statement and its negation disagree."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit

from workbench.directions.cells import Linear, cells, center_by, inputs, midpoint, needed, signs
from workbench.linalg import unit, wide
from workbench.registry import METHODS
from workbench.types import ndarray

FEWEST_STARTS = 10


@METHODS.register("ccs")
class Ccs(Linear):
    """Contrast-consistent search: of a statement and its negation one is true (Burns et al. 2023).

    Minimizes ``mean((p+ + p- - 1)^2 + min(p+, p-)^2)``, p = sigmoid(w . x), over pairs of an
    affirmed item (x+) and its negation (x-). Each (group, polarity) cell is centered and all is
    divided by one number, the root mean square, so that a step means the same at every layer.
    Labels give the sign alone: the direction is turned where fewer than half of the pairs have the
    right member as true. The loss has many minima, and the lowest is not always the best direction:
    ``info_`` holds the loss of every start, and how far the other directions lie.

    A pair is one name in ``pairs`` with an affirmed and a negated item of opposite labels. Where a
    name holds several (a fact with a true and a false content), a true affirmed item goes with a
    false negated one.

    Args:
        starts: at least 10; the one of lowest loss is kept.
        steps: of AdamW, each on all pairs.
        rate: learning rate.
        decay: weight decay.
        seed: of the starts.
    """

    needs: ClassVar[tuple[str, ...]] = ("pairs", "polarity")
    labels: ClassVar[str] = "sign"

    def __init__(
        self,
        starts: int = FEWEST_STARTS,
        steps: int = 1000,
        rate: float | int = 1e-3,
        decay: float | int = 0.1,
        seed: int = 0,
    ) -> None:
        self.starts = starts
        self.steps = steps
        self.rate = rate
        self.decay = decay
        self.seed = seed

    def fit(
        self,
        X: Float[ndarray, "n d"],
        y: ndarray,
        *,
        groups: ndarray | None = None,
        polarity: ndarray | None = None,
        pairs: ndarray | None = None,
    ) -> Ccs:
        """Fit one layer.

        ``info_`` holds ``losses`` in rising order, ``cosines`` of the starts with the one kept in
        that order, and the ``accuracy`` that decided the sign.

        Raises:
            ValueError: fewer than 10 starts, or items that do not pair.
        """
        X, y = inputs(X, y)
        affirmed, negated = matched(y, *self._columns(polarity, pairs))
        plus, minus, size = self._sides(X, affirmed, negated, groups, polarity)
        found, losses = self._search(plus, minus)
        right = (((plus - minus) @ found[0] > 0) == y[affirmed]).mean()
        sign = -1.0 if right < 0.5 else 1.0
        self.coef_ = np.asarray(sign * found[0] / size, X.dtype)
        self.center_ = midpoint(X, y)
        self.info_ = {
            "losses": losses,
            "cosines": unit(found) @ unit(found[0]) * 1.0,
            "accuracy": max(right, 1 - right),
        }
        return self

    def fit_many(
        self,
        X: Float[ndarray, "n d"],
        Y: Bool[ndarray, "n m"],
        *,
        groups: ndarray | None = None,
        polarity: ndarray | None = None,
        pairs: ndarray | None = None,
    ) -> Float[ndarray, "m d"]:
        """Return the direction of each column of labels; one search for all that pair alike."""
        X, found, searched = wide(X), [], {}
        for y in Y.T:
            affirmed, negated = matched(y, *self._columns(polarity, pairs))
            key = np.sort(affirmed * len(X) + negated).tobytes()
            if key not in searched:
                plus, minus, size = self._sides(X, affirmed, negated, groups, polarity)
                v = self._search(plus, minus)[0][0]
                ahead = np.zeros(len(X), bool)
                ahead[affirmed] = (plus - minus) @ v > 0
                searched[key] = np.asarray(v / size, X.dtype), ahead
            v, ahead = searched[key]
            right = (ahead[affirmed] == y[affirmed]).mean()
            found.append(-v if right < 0.5 else v)
        return np.stack(found)

    def _columns(self, polarity: ndarray | None, pairs: ndarray | None) -> tuple[ndarray, ndarray]:
        pairs = needed(pairs, "pairs", "ccs")
        return signs(needed(polarity, "polarity", "ccs"), len(pairs)) > 0, pairs

    def _sides(
        self,
        X: Float[ndarray, "n d"],
        affirmed: Int[ndarray, " p"],
        negated: Int[ndarray, " p"],
        groups: ndarray | None,
        polarity: ndarray | None,
    ) -> tuple[Float[ndarray, "p d"], Float[ndarray, "p d"], float]:
        """Return both members of the pairs, centered, and the number they were divided by."""
        centered = center_by(X, cells(groups, polarity, len(X)))
        plus, minus = centered[affirmed], centered[negated]
        sides = np.concatenate([plus, minus]).astype(np.float64)
        size = float(np.sqrt(np.square(sides).mean()))
        if size == 0:
            raise ValueError(f"all {len(plus)} pairs are the same once centered: nothing to fit")
        return plus / np.float32(size), minus / np.float32(size), size

    def _search(
        self, plus: Float[ndarray, "p d"], minus: Float[ndarray, "p d"]
    ) -> tuple[Float[ndarray, "s d"], Float[ndarray, " s"]]:
        """Return the directions of all starts and their losses, the lowest first."""
        if self.starts < FEWEST_STARTS:
            raise ValueError(
                f"starts={self.starts}; at least {FEWEST_STARTS} are needed, since one start does "
                "not reproduce"
            )
        reach = 1 / np.sqrt(plus.shape[1])
        rng = np.random.default_rng(self.seed)
        W = rng.uniform(-reach, reach, (self.starts, plus.shape[1])).T.astype(plus.dtype)
        W = adamw(plus, minus, W, self.steps, self.rate, self.decay)
        losses = consistency(plus, minus, W)[0]
        order = np.argsort(losses, kind="stable")
        return np.ascontiguousarray(W.T[order]), losses[order]


def matched(
    y: Bool[ndarray, " n"], affirmed: Bool[ndarray, " n"], pairs: ndarray
) -> tuple[Int[ndarray, " p"], Int[ndarray, " p"]]:
    """Return the rows of the affirmed and of the negated member of every pair, sorted by name.

    Raises:
        ValueError: an item without its counterpart of the other polarity and the opposite label.
    """
    names, number = np.unique(pairs, return_inverse=True)
    content = number * 2 + (y == affirmed)  # what is said, whether affirmed or denied
    sides = [np.flatnonzero(affirmed), np.flatnonzero(~affirmed)]
    counts = [np.bincount(content[rows], minlength=2 * len(names)) for rows in sides]
    odd = np.flatnonzero(counts[0] != counts[1])
    if len(odd):
        raise ValueError(
            f"pair {names[odd[0] // 2].item()!r} holds {counts[0][odd[0]]} affirmed and "
            f"{counts[1][odd[0]]} negated items of opposite labels; they must match one to one "
            f"({len(np.unique(odd // 2))} of {len(names)} do not)"
        )
    first, second = (rows[np.argsort(content[rows], kind="stable")] for rows in sides)
    return first, second


def consistency(
    plus: Float[ndarray, "p d"], minus: Float[ndarray, "p d"], W: Float[ndarray, "d s"]
) -> tuple[Float[ndarray, " s"], Float[ndarray, "d s"]]:
    """Return the loss of every start and its gradient."""
    p, q = expit(plus @ W), expit(minus @ W)
    gap, least = p + q - 1, np.minimum(p, q)
    slopes = [2 * gap + 2 * least * (p <= q), 2 * gap + 2 * least * (q < p)]
    gradient = plus.T @ (slopes[0] * p * (1 - p)) + minus.T @ (slopes[1] * q * (1 - q))
    return (gap**2 + least**2).mean(axis=0), gradient / len(plus)


def adamw(
    plus: Float[ndarray, "p d"],
    minus: Float[ndarray, "p d"],
    W: Float[ndarray, "d s"],
    steps: int,
    rate: float,
    decay: float,
) -> Float[ndarray, "d s"]:
    """Take AdamW steps (betas 0.9 and 0.999) for all starts at once; each goes its own way."""
    mean, square = np.zeros_like(W), np.zeros_like(W)
    for step in range(1, steps + 1):
        gradient = consistency(plus, minus, W)[1]
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        spread = np.sqrt(square / (1 - 0.999**step)) + 1e-8
        W = W * (1 - rate * decay) - rate * mean / (1 - 0.9**step) / spread
    return W
