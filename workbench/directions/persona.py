"""Roles and the Assistant: means over judged rollouts, and the axis between (Lu et al. 2026)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from workbench.directions.algebra import refuse_other_space
from workbench.directions.calibrate import Thresholds
from workbench.directions.container import Directions, stack
from workbench.directions.fit import layers_of, mean_norms
from workbench.directions.rollouts import (
    UNJUDGED,
    mean_weights,
    names_in,
    scores_of,
    tally,
    weighted_sums,
)
from workbench.directions.rows import read_items
from workbench.errors import ConfigError, MismatchError, UnknownNameError
from workbench.linalg import unit
from workbench.types import ActivationsLike, ndarray

AXIS, DEFAULT = "assistant", "default"
FULL, SOMEWHAT = 3, 2
MARK = " (somewhat)"
"""Ends the name of a vector over rollouts that play the role in part."""


@dataclass(frozen=True)
class CountRule:
    """Which rollouts make a role's vector."""

    name: str
    least: int
    """Rollouts of one score that a vector needs."""
    somewhat: bool
    """Whether score 2 makes vectors of its own, beside those of score 3."""

    @property
    def told(self) -> str:
        apart = ", score 2 apart" if self.somewhat else ""
        return f"{self.name}: score {FULL}{apart}, at least {self.least} rollouts"


RULES = {
    "repo": CountRule("repo", least=50, somewhat=False),
    "paper": CountRule("paper", least=10, somewhat=True),
}
"""The released code's rule, and that of the paper's section 2.1."""


@dataclass(frozen=True)
class PersonaSpace:
    """Mean activations of roles and of the default Assistant, and what they were counted from."""

    roles: Directions
    """Kind ``mean``; each name's rollouts of score 3, or all where nobody judged."""
    default: Directions
    """Mean over all default rollouts, whatever their score."""
    counts: pd.DataFrame | None = None
    """role, n, score_0 to score_3, unscored, used, kept, used_somewhat, kept_somewhat; None of
    vectors that come from elsewhere."""
    somewhat: Directions | None = None

    def __post_init__(self) -> None:
        refuse_other_space(self.roles, self.default)
        if self.roles.layers != self.default.layers or len(self.default) != 1:
            raise MismatchError(
                f"{self.default.label} of layers {self.default.layers} and roles of layers "
                f"{self.roles.layers}; one default vector at the layers of the roles expected"
            )
        if {self.roles.kind, self.default.kind} != {"mean"}:
            raise MismatchError("a role and the default are means; these are differences")

    @cached_property
    def axis(self) -> Directions:
        """Default minus the mean of the role vectors: toward the Assistant, raw length.

        Each role counts once; vectors of score 2 take no part.
        """
        mean = self.roles.vectors.mean(axis=0, dtype=np.float64)
        vectors = self.default.vectors.astype(np.float64) - mean
        told = {"made_by": "default minus mean of roles", "n_roles": len(self.roles)}
        info = {**told, **self.told}
        return replace(self.default, names=(AXIS,), vectors=vectors, kind="difference", info=info)

    @property
    def told(self) -> dict[str, str]:
        """How rollouts were counted, and who judged them."""
        return {key: str(self.roles.info.get(key, "unstated")) for key in ("rule", "judge")}

    @property
    def bank(self) -> Directions:
        """All role vectors, those of score 2 among them, whose names end in ``MARK``."""
        return self.roles if self.somewhat is None else stack([self.roles, self.somewhat])


def persona_space(
    acts: ActivationsLike,
    *,
    judge: str,
    rule: str | CountRule = "repo",
    role: str = "role",
    score: str = "score",
    default: str = DEFAULT,
    layers: Sequence[int] | None = None,
) -> PersonaSpace:
    """Return role vectors, the default vector and, by ``.axis``, the Assistant Axis.

    Args:
        acts: response means of rollouts; of position ``all``, the mean of an item's tokens.
        judge: who gave the scores; ``"none"`` counts every rollout as the role played in full,
            reads no scores, and stands in ``info``.
        rule: a name of ``RULES``, or another.
        role: column of role names; rows where it is empty (of traits, say) take no part.
        score: column of scores 0 to 3; NaN, a score that the judge did not give, is never used.
        default: the name of the Assistant among the roles.
        layers: block indices; by default all.

    Raises:
        ConfigError: a missing column, a score that is none, no default rollouts, or no role with
            enough rollouts.
        UnknownNameError: no such rule.
    """
    chosen, counted = layers_of(acts, layers), _rule(rule)
    names, member = names_in(acts, role)
    scores = scores_of(acts, score, judge, 0, FULL)
    if (scores % 1 > 0).any():
        raise ConfigError(f"column {score!r} holds fractions; whole scores 0 to {FULL} expected")
    if default not in names:
        raise ConfigError(
            f"no rollout has {role} = {default!r}, so there is no Assistant to compare with; "
            f"roles: {', '.join(names[:10])}"
        )
    counts = _count(names, member, scores, judge, counted)
    group, labels = _groups(names, member, scores, judge, counts, default)
    told = counted.told if judge != UNJUDGED else f"all rollouts, at least {counted.least}"
    info = {
        "rule": told,
        "judge": judge,
        "n_rollouts": int((member >= 0).sum()),
        "n_unscored": int(counts["unscored"].sum()),
    }
    every = _means(acts, chosen, group, labels, info)
    full = [name for name in labels[1:] if not name.endswith(MARK)]
    partly = labels[1 + len(full) :]
    return PersonaSpace(
        roles=_part(every, full, "mean of a role's rollouts"),
        default=_part(every, [default], "mean of all default rollouts, whatever their score"),
        counts=counts[counts["role"] != default].reset_index(drop=True),
        somewhat=_part(every, partly, f"mean of a role's rollouts of score {SOMEWHAT}")
        if partly
        else None,
    )


def _means(
    acts: ActivationsLike,
    layers: tuple[int, ...],
    group: Int[ndarray, " n"],
    labels: list[str],
    info: dict[str, Any],
) -> Directions:
    """Return the mean of each group's rollouts."""
    weights = mean_weights(group, len(labels))
    parts = [weighted_sums(read_items(acts, layer), weights) for layer in layers]
    used = np.bincount(group[group >= 0], minlength=len(labels))
    return Directions(
        names=tuple(labels),
        layers=layers,
        vectors=np.stack(parts, axis=1),
        norms=mean_norms(acts, layers),
        model=acts.model,
        kind="mean",
        site=acts.site,
        position=acts.position,
        info={**info, "n": {name: int(n) for name, n in zip(labels, used, strict=True)}},
    )


def _part(every: Directions, names: Sequence[str], made_by: str) -> Directions:
    """Keep some means, and how many rollouts each is of."""
    found = every[names]
    n = {name: every.info["n"][name] for name in names}
    return replace(found, info={**found.info, "n": n, "made_by": made_by})


def _rule(rule: str | CountRule) -> CountRule:
    if isinstance(rule, CountRule):
        return rule
    if rule not in RULES:
        raise UnknownNameError(f"unknown count rule {rule!r}; known: {', '.join(RULES)}")
    return RULES[rule]


def _count(
    names: list[str],
    member: Int[ndarray, " n"],
    scores: Float[ndarray, " n"],
    judge: str,
    rule: CountRule,
) -> pd.DataFrame:
    """Return what each role's rollouts were scored, and whether they are enough."""
    k, every = len(names), np.ones(len(member), bool)
    table: dict[str, Any] = {"role": names, "n": tally(member, every, k)}
    table |= {f"score_{value}": tally(member, scores == value, k) for value in range(FULL + 1)}
    table["unscored"] = tally(member, np.isnan(scores), k)
    table["used"] = table["n"] if judge == UNJUDGED else table[f"score_{FULL}"]
    table["kept"] = table["used"] >= rule.least
    partly = table[f"score_{SOMEWHAT}"] if rule.somewhat else np.zeros(k, int)
    table |= {"used_somewhat": partly, "kept_somewhat": rule.somewhat & (partly >= rule.least)}
    return pd.DataFrame(table)


def _groups(
    names: list[str],
    member: Int[ndarray, " n"],
    scores: Float[ndarray, " n"],
    judge: str,
    counts: pd.DataFrame,
    default: str,
) -> tuple[Int[ndarray, " n"], list[str]]:
    """Return the vector that each rollout counts for (-1 none), and the vectors' names."""
    group, labels = np.full(len(member), -1), [default]
    group[member == names.index(default)] = 0
    roles = counts[counts["role"] != default]
    for kept, value, mark in (("kept", FULL, ""), ("kept_somewhat", SOMEWHAT, MARK)):
        counted = np.ones(len(member), bool) if judge == UNJUDGED else scores == value
        for row, name in zip(roles.index[roles[kept]], roles["role"][roles[kept]], strict=True):
            group[(member == row) & counted] = len(labels)
            labels.append(f"{name}{mark}")
    if not roles["kept"].any():
        most = roles.sort_values("used").iloc[-1] if len(roles) else None
        told = "there is no other role" if most is None else f"{most['role']} has {most['used']}"
        raise ConfigError(
            f"no role has rollouts enough for a vector (the most: {told}); sample more, or take "
            "another rule: CountRule(name, least, somewhat)"
        )
    return group, labels


def check_floor(floor: Thresholds, axis: Directions, default: Directions) -> pd.DataFrame:
    """Compare the floor of a cap with where the default Assistant lies along the axis.

    A floor at the 25th percentile along role minus default lies near the Assistant's own mean
    coordinate; one that lies far below was counted from the wrong end and holds little back.

    Args:
        floor: ``thresholds(axis, rollouts, 25, along="opposite")``.
        axis: the Assistant Axis.
        default: the mean of the default rollouts.

    Returns:
        Rows layer, floor, default, mean and sd (of the rollouts), apart = (floor - default) / sd.
    """
    rows = []
    for _, told in floor.table.iterrows():
        layer = int(told["layer"])
        along = float(default.at(layer)[0].astype(np.float64) @ unit(axis.at(layer)[0]))
        apart = (told["threshold"] - along) / told["sd"]
        rows.append(
            {
                "layer": layer, "floor": told["threshold"], "default": along,
                "mean": told["mean"], "sd": told["sd"], "apart": apart,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)
