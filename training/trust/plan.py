"""What is settled before a pair is written: scenario, split, style, turns, words of slots."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench_training.corpora.controls_plan import own_seed
from workbench_training.trust.scenarios import Scenario, phrases, scenarios
from workbench_training.trust.settings import TrustPairsConfig

STYLES = ("terse", "mixed", "long")
TURNS = {1: 0.2, 2: 0.4, 3: 0.4}
"""User turns of the conversation, and how often (Lasnier et al. 2026)."""


@dataclass(frozen=True)
class PairPlan:
    """One pair; ``seed`` is its own, whatever comes before it."""

    id: str
    scenario: Scenario
    split: str
    style: str
    turns: int
    seed: int

    def rng(self, attempt: int) -> random.Random:
        """Return what draws the words; another attempt draws others."""
        return random.Random(f"{self.seed}-{attempt}")


def splits(test: float, seed: int) -> dict[str, str]:
    """Return ``train`` or ``test`` for each scenario, some of every family held out."""
    rng = random.Random(f"trust-split-{seed}")
    families: dict[tuple[str, str], list[str]] = defaultdict(list)
    for scenario in scenarios():
        families[scenario.facet, scenario.family].append(scenario.id)
    held_out: set[str] = set()
    for names in families.values():
        count = max(1, round(test * len(names))) if test else 0
        held_out.update(rng.sample(names, count))
    return {s.id: "test" if s.id in held_out else "train" for s in scenarios()}


def plan_pairs(config: TrustPairsConfig) -> list[PairPlan]:
    """Plan the pairs, the held-out share in scenarios that train on nothing."""
    split = splits(config.test, config.seed)
    held_out = round(config.test * config.pairs)
    counts = {"train": config.pairs - held_out, "test": held_out}
    chosen = [
        (scenario, name)
        for name, count in counts.items()
        for scenario in _dealt([s for s in scenarios() if split[s.id] == name], count, config.seed)
    ]
    rng = random.Random(f"trust-plan-{config.seed}")
    styles = _deck(config.styles, len(chosen), rng)
    turns = rng.choices(config.turns, [TURNS[count] for count in config.turns], k=len(chosen))
    return [
        PairPlan(f"trust{n:05d}", scenario, name, style, turn, own_seed("trust", config.seed, n))
        for n, ((scenario, name), style, turn) in enumerate(zip(chosen, styles, turns, strict=True))
    ]


def plan_neutral(config: TrustPairsConfig) -> list[PairPlan]:
    """Plan the rows whose two replies are one, over held-out scenarios; none where there are none.

    A scenario's replies share sentences, so a neutral row of one that is trained on would be too.
    """
    rng = random.Random(f"trust-neutral-{config.seed}")
    split = splits(config.test, config.seed)
    held_out = [scenario for scenario in scenarios() if split[scenario.id] == "test"]
    chosen = _dealt(held_out, config.neutral, config.seed)
    styles = _deck(config.styles, len(chosen), rng)
    return [
        PairPlan(f"neutral{n:05d}", one, "test", style, 1, own_seed("neutral", config.seed, n))
        for n, (one, style) in enumerate(zip(chosen, styles, strict=True))
    ]


def slots(rng: random.Random) -> Mapping[str, str]:
    """Draw the words that stand in the slots of one pair."""
    found = phrases()
    banks = {"name": found.names, "day": found.days, "time": found.times, "n": found.numbers}
    return {slot: rng.choice(bank) for slot, bank in banks.items()}


def _dealt(own: Sequence[Scenario], count: int, seed: int) -> list[Scenario]:
    """Deal scenarios so that facets, and within them scenarios, come up evenly."""
    rng = random.Random(f"trust-deal-{seed}-{len(own)}")
    facets: dict[str, list[Scenario]] = defaultdict(list)
    for scenario in rng.sample(list(own), len(own)):
        facets[scenario.facet].append(scenario)
    rows = zip(*(itertools.cycle(members) for members in facets.values()), strict=True)
    return list(itertools.islice(itertools.chain.from_iterable(rows), count)) if facets else []


def _deck(values: Sequence[str], count: int, rng: random.Random) -> list[str]:
    """Deal values evenly, shuffled within every round."""
    rounds = -(-count // len(values))
    dealt = [value for _ in range(rounds) for value in rng.sample(values, len(values))]
    return dealt[:count]
