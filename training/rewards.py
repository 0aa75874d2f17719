"""What a completion earns under GRPO: named rewards, and functions of the user's own."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import math
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from workbench_training.preference_data import text_of
from workbench_training.preference_settings import RewardConfig

from workbench.errors import ConfigError
from workbench.registry import Registry

Reward = Callable[..., list[float]]
"""``reward(prompts, completions, **columns) -> one number for each``: lists of texts, and the
other columns of the data as lists beside them."""

REWARDS: Registry[Reward] = Registry("reward", "workbench_training")


@REWARDS.register("answer")
def answer_reward() -> Reward:
    """1 where the row's ``answer`` stands in the completion as whole words, case ignored."""

    def reward(
        completions: Sequence[str], answer: Sequence[Any] | None = None, **_: Any
    ) -> list[float]:
        if answer is None:
            raise ConfigError("the reward 'answer' needs a column 'answer' in the data")
        pairs = zip(answer, completions, strict=True)
        return [float(_found(str(one), text) is not None) for one, text in pairs]

    return reward


@REWARDS.register("words")
def words_reward(*, target: int) -> Reward:
    """1 at ``target`` words, falling evenly to 0 at none and at twice as many."""
    if target < 1:
        raise ConfigError(f"target = {target}; the reward 'words' needs at least 1")

    def reward(completions: Sequence[str], **_: Any) -> list[float]:
        return [max(0.0, 1 - abs(len(text.split()) - target) / target) for text in completions]

    return reward


@REWARDS.register("contains")
def contains_reward(*, phrases: Sequence[str]) -> Reward:
    """The part of ``phrases`` that stand in the completion as whole words, case ignored."""
    if not phrases:
        raise ConfigError("phrases is empty; the rewards 'contains' and 'avoids' need some")

    def reward(completions: Sequence[str], **_: Any) -> list[float]:
        return [sum(map(bool, (_found(p, text) for p in phrases))) / len(phrases)
                for text in completions]  # fmt: skip

    return reward


@REWARDS.register("avoids")
def avoids_reward(*, phrases: Sequence[str]) -> Reward:
    """1 where none of ``phrases`` stands in the completion, 0 where all do."""
    contains = contains_reward(phrases=phrases)
    return lambda completions, **columns: [1 - c for c in contains(completions, **columns)]


def _found(phrase: str, text: str) -> re.Match[str] | None:
    return re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text, re.IGNORECASE)


def reward_of(config: RewardConfig) -> Reward:
    """Return a reward as its settings say.

    Raises:
        UnknownNameError: no registered reward has that name.
        ConfigError: no such file, module or function, or options that it does not take.
    """
    if ":" in config.name:
        found = _own(config.name)
        return functools.partial(found, **config.options) if config.options else found
    make = REWARDS.factory(config.name)
    try:
        inspect.signature(make).bind(**config.options)
    except TypeError as error:
        raise ConfigError(
            f"options of the reward {config.name!r}: {error}; it takes {inspect.signature(make)}"
        ) from None
    return make(**config.options)


def _own(name: str) -> Reward:
    place, _, function = name.rpartition(":")
    module = _module_of_file(Path(place)) if place.endswith(".py") else _module_named(place)
    found = getattr(module, function, None)
    if not callable(found):
        raise ConfigError(f"reward {name!r}: {place} has no function {function!r}")
    return found  # type: ignore[no-any-return]


def _module_of_file(path: Path) -> Any:
    if not path.is_file():
        raise ConfigError(f"reward: no file {str(path)!r}; give FILE.py:function")
    spec = importlib.util.spec_from_file_location(f"workbench_reward_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _module_named(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"reward: {error}; give package.module:function") from None


def for_trainer(config: RewardConfig) -> Reward:
    """Return a reward as TRL calls it: with conversations, and extras that are left out.

    The reward that it returns raises ConfigError where one is not finite or not one a completion.
    """
    reward = reward_of(config)
    title = config.name.rpartition(":")[2]

    def rewarded(prompts: Sequence[Any], completions: Sequence[Any], **told: Any) -> list[float]:
        left_out = ("completion_ids", "trainer_state", "log_extra", "log_metric")
        columns = {key: value for key, value in told.items() if key not in left_out}
        texts = [text_of(one) for one in completions]
        asked = [text_of(one) for one in prompts]
        earned = [float(one) for one in reward(prompts=asked, completions=texts, **columns)]
        if len(earned) != len(texts) or not all(map(math.isfinite, earned)):
            raise ConfigError(
                f"the reward {config.name!r} gave {earned[:8]} for {len(texts)} completions; it "
                "must give one finite number for each"
            )
        return earned

    rewarded.__name__ = title
    return rewarded
