"""Emotion vectors from activations of stories, cleaned of what neutral dialogues vary by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int, Shaped

from workbench.directions import Directions, combine
from workbench.directions.algebra import denoise
from workbench.directions.fit import column
from workbench.directions.rows import read_items
from workbench.errors import ConfigError
from workbench.types import ActivationsLike, ndarray

EMOTION, TOPIC = "emotion", "topic"
VARIANTS = ("denoised", "raw", "random control")
"""Neutral components removed, nothing removed, as many random directions removed."""


@dataclass(frozen=True, eq=False)
class Stories:
    """Activations of stories with the emotion and topic of each, as numbers."""

    acts: ActivationsLike
    emotions: tuple[str, ...]
    topics: tuple[str, ...]
    emotion: Int[ndarray, " n"]
    topic: Int[ndarray, " n"]

    @classmethod
    def of(cls, acts: ActivationsLike, emotions: Sequence[str] | None = None) -> Stories:
        """Read the columns ``emotion`` and ``topic``.

        Args:
            acts: one story an item, such as a mean over its tokens from the 50th on.
            emotions: their order; sorted by default.

        Raises:
            ConfigError: no such column, fewer than two emotions, or one without a story.
        """
        named, topic = (column(acts, name).astype(str) for name in (EMOTION, TOPIC))
        known = tuple(sorted(set(named.tolist()))) if emotions is None else tuple(emotions)
        missing = [name for name in known if name not in set(named)]
        other = sorted(set(named.tolist()) - set(known))
        if missing or other or len(known) < 2:
            told = f"no story of {missing[0]!r}" if missing else f"stories of {other or known}"
            raise ConfigError(
                f"{told} among {len(named)}; vectors need two emotions or more with stories of "
                "each, so write more of them or name the emotions that have some"
            )
        topics, place = np.unique(topic, return_inverse=True)
        number = {name: row for row, name in enumerate(known)}
        rows = np.array([number[name] for name in named])
        return cls(acts, known, tuple(map(str, topics)), rows, place)

    def __len__(self) -> int:
        return len(self.emotion)

    def counts(self) -> Int[ndarray, "k m"]:
        """Return how many stories there are of each emotion on each topic."""
        found = np.zeros((len(self.emotions), len(self.topics)), np.int64)
        np.add.at(found, (self.emotion, self.topic), 1)
        return found


def emotion_weights(
    emotion: Int[ndarray, " n"], topic: Int[ndarray, " n"], emotions: int
) -> Float[ndarray, "k n"]:
    """Return the weights by which story activations sum to centered emotion vectors.

    Least squares of story = topic + emotion, emotions summing to zero. Where every emotion has as
    many stories on every topic this is the mean of its stories minus the mean of all emotions'
    means (Sofroniew et al. 2026); where stories were sifted out, topics still cancel.

    Raises:
        ConfigError: an emotion without a story, or groups of emotions without a topic in common, so
            that nothing compares them.
    """
    n = len(emotion)
    topics, place = np.unique(topic, return_inverse=True)
    design = np.zeros((n, emotions - 1 + len(topics)))
    rows = np.arange(n)
    contrast = np.vstack([np.eye(emotions - 1), -np.ones((1, emotions - 1))])
    design[:, : emotions - 1] = contrast[emotion]
    design[rows, emotions - 1 + place] = 1
    lacking = sorted(set(range(emotions)) - set(emotion.tolist()))
    if lacking or np.linalg.matrix_rank(design) < design.shape[1]:
        told = f"emotion {lacking[0]} has no story" if lacking else "some share no topic"
        raise ConfigError(
            f"{n} stories of {emotions} emotions on {len(topics)} topics cannot be compared "
            f"({told}); write stories of every emotion on every topic"
        )
    return np.asarray(contrast @ np.linalg.pinv(design)[: emotions - 1])


def emotion_vectors(stories: Stories) -> Directions:
    """Return one centered vector for each emotion at every layer, nothing removed yet.

    ``info`` says how many stories and topics each rests on.

    Raises:
        ConfigError: as `emotion_weights`.
    """
    acts = stories.acts
    weights = emotion_weights(stories.emotion, stories.topic, len(stories.emotions))
    vectors = [weights @ read_items(acts, layer).astype(np.float64) for layer in acts.layers]
    counts = stories.counts()
    return Directions(
        names=stories.emotions,
        layers=tuple(acts.layers),
        vectors=np.stack(vectors, axis=1),
        model=acts.model,
        site=acts.site,
        position=acts.position,
        info={
            "made_by": "emotion_vectors",
            "stories": dict(zip(stories.emotions, counts.sum(axis=1).tolist(), strict=True)),
            "topics": len(stories.topics),
        },
    )


def variants_of(
    raw: Directions, neutral: ActivationsLike, *, explained: float = 0.5, control: int = 0
) -> dict[str, Directions]:
    """Return the vectors with the neutral components removed, as they are, and with a control.

    Raises:
        MismatchError, ConfigError: as `workbench.directions.denoise`.
    """
    story_info = {key: raw.info[key] for key in ("stories", "topics")}
    found = {
        "denoised": denoise(raw, neutral, explained=explained),
        "raw": raw,
        "random control": denoise(raw, neutral, explained=explained, control=control),
    }
    return {name: replace(one, info={**story_info, **one.info}) for name, one in found.items()}


def composite(directions: Directions, signs: dict[str, int], name: str = "composite") -> Directions:
    """Return the sum of unit emotion vectors under signs that were fixed beforehand.

    Args:
        directions: emotion vectors.
        signs: +1 or -1 by emotion, such as anger, disgust and fear +1, joy -1.
        name: of the sum.

    Raises:
        UnknownNameError: no such emotion.
        ConfigError: a weight that is neither +1 nor -1.
    """
    refuse_weights(signs)
    return combine(directions, signs, name=name, unit_length=True)


def refuse_weights(signs: Mapping[str, int]) -> None:
    """Refuse weights of emotions that are no signs.

    Raises:
        ConfigError: one that is neither +1 nor -1.
    """
    wrong = {key: value for key, value in signs.items() if value not in (1, -1)}
    if wrong:
        raise ConfigError(
            f"composite = {wrong}: signs are 1 or -1, since emotions count alike; a fitted "
            "combination is `contrast_fit`"
        )


def contrast_fit(
    directions: Directions,
    gap: Float[ndarray, "l d"],
    *,
    ridge: float = 1e-3,
    name: str = "contrast",
) -> Directions:
    """Project an observed gap on the span of emotion vectors, layer by layer.

    ``V (V'V + lam I)^-1 V' gap`` with the emotions as columns of V and ``lam`` the share ``ridge``
    of the mean of their squared lengths. It has seen the outcome's models: fit it on half of the
    items and report it on the other. ``info["weights"]`` (l, k) are the coefficients and
    ``info["share"]`` (l,) how much of the gap's length it has.

    Raises:
        ValueError: a ridge that is negative.
    """
    if ridge < 0:
        raise ValueError(f"ridge {ridge}; expected 0 or more")
    vectors, weights, shares = [], [], []
    for row in range(len(directions.layers)):
        V = directions.vectors[:, row].astype(np.float64)
        gram = V @ V.T
        lam = ridge * np.trace(gram) / len(gram)
        weight = np.linalg.lstsq(gram + lam * np.eye(len(gram)), V @ gap[row], rcond=None)[0]
        vectors.append(weight @ V)
        weights.append(weight)
        length = float(np.linalg.norm(gap[row]))
        shares.append(float(np.linalg.norm(vectors[-1])) / length if length else 0.0)
    return replace(
        directions,
        names=(name,),
        vectors=np.stack(vectors)[None],
        center=None,
        info={
            "made_by": "contrast_fit",
            "ridge": ridge,
            "emotions": list(directions.names),
            "weights": np.array(weights, np.float32),
            "share": np.array(shares, np.float32),
        },
    )


def common_length(directions: Directions, window: Sequence[int]) -> tuple[Directions, float]:
    """Bring every vector to the mean raw length over emotions and the window's blocks.

    So that one raw dose is as long for every emotion and block (the unit of single emotions in the
    social-priors paper, Fig. 68). Returns the window alone, and that length.
    """
    chosen = directions.select(list(window))
    lengths = np.linalg.norm(chosen.vectors.astype(np.float64), axis=-1)
    if not lengths.all():
        k, l = np.argwhere(lengths == 0)[0]
        raise ConfigError(f"{chosen.names[k]!r} is zero at layer {chosen.layers[l]}; leave it out")
    common = float(lengths.mean())
    scaled = chosen.vectors * (common / lengths)[..., None]
    info = {**chosen.info, "unit": common, "window": list(map(int, window))}
    return replace(chosen, vectors=scaled, info=info), common


def label_of(window: Sequence[int]) -> str:
    """Return a window as tables name it: ``12`` or ``11-13``."""
    return str(window[0]) if len(window) == 1 else f"{window[0]}-{window[-1]}"


def run_of(window: Sequence[int], layers: Sequence[int], what: str) -> tuple[int, ...]:
    """Return a window that somebody named, neighbors among the layers that were captured.

    Args:
        window: its layers.
        layers: those captured, in order.
        what: the setting, for messages.

    Raises:
        ConfigError: a layer that was not captured, or no run of neighbors in order.
    """
    known = ", ".join(map(str, layers))
    missing = [layer for layer in window if layer not in layers]
    if missing:
        raise ConfigError(
            f"{what} = {list(window)}: layer {missing[0]} was not captured; layers: {known}"
        )
    rows = [list(layers).index(layer) for layer in window]
    if not rows or rows != list(range(rows[0], rows[0] + len(rows))):
        raise ConfigError(
            f"{what} = {list(window)} is no run of neighboring layers; name some that stand side "
            f"by side in {known}, in order and each once"
        )
    return tuple(window)


def folds_of(topics: Shaped[ndarray, " n"], folds: int, seed: int) -> Int[ndarray, " n"]:
    """Deal topics into folds, so that a topic's stories stand in one fold alone.

    Raises:
        ConfigError: fewer topics than two, or than folds.
    """
    names, place = np.unique(topics, return_inverse=True)
    if folds < 2 or len(names) < folds:
        raise ConfigError(
            f"{len(names)} topics make no {folds} folds; write on more topics, or deal fewer folds"
        )
    dealt = np.random.default_rng(seed).permutation(len(names)) % folds
    return np.asarray(dealt[place])
