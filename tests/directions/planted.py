"""Activations in memory with a planted truth, for the tests of this folder."""

from dataclasses import dataclass, field, replace

import numpy as np

from workbench.types import ModelStamp

STAMP = ModelStamp(
    key="tiny",
    model_type="llama",
    n_layers=6,
    width=24,
    tokenizer="0123456789abcdef",
    fingerprint="fedcba9876543210",
)


@dataclass
class Acts:
    """The least that a fit needs."""

    values: np.ndarray
    columns: dict
    layers: tuple = (0, 1, 2, 3)
    site: str = "resid_post"
    position: str = "last"
    model: ModelStamp = STAMP
    reads: list = field(default_factory=list)

    def at(self, layer):
        self.reads.append(layer)
        return self.values[self.layers.index(layer)]

    def where(self, keep):
        columns = {name: value[keep] for name, value in self.columns.items()}
        return replace(self, values=self.values[:, keep], columns=columns)


def planted(
    strength=(0.0, 1.0, 3.0, 0.0), facts=40, topics=("a", "b", "c", "d"), polar=2.0, seed=0, apart=5
):
    """Facts x {true, false} x {affirmed, negated}; truth lies along axis 0 with each strength.

    Polarity lies along axis 1, truth times polarity along axis 2, topic offsets anywhere.
    """
    rng, columns = np.random.default_rng(seed), []
    for topic in topics:
        for fact in range(facts):
            for polarity in (1, -1):
                for label in (1, 0):
                    columns.append((topic, f"{topic}:{fact}", polarity, label))
    topic, fact, polarity, label = (np.array(column) for column in zip(*columns, strict=True))
    offsets = {name: apart * rng.standard_normal(STAMP.width) for name in topics}
    noise = rng.standard_normal((len(strength), len(label), STAMP.width))
    values = noise + np.stack([offsets[name] for name in topic])
    sign = 2 * label - 1
    for row, size in enumerate(strength):
        values[row, :, 0] += size * sign / 2
        values[row, :, 2] += size * sign * polarity / 2
    values[:, :, 1] += polar * polarity
    names = {"topic": topic, "fact": fact, "polarity": polarity, "label": label}
    return Acts(values.astype(np.float32), names, tuple(range(len(strength))))
