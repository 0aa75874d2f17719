"""Neutral text like that of web pages: from a grammar, drawn from a model, or the user's own."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from workbench_training.corpora.controls_page import Page, Text, read_page
from workbench_training.corpora.controls_plan import WEB, PagePlan, Row, page_row, plan_pages
from workbench_training.corpora.sampled import TextSampler

from workbench.errors import ConfigError
from workbench.library import open_prompts

_SHARED = WEB / "shared.toml"
OWN = "own"
"""The length bin of texts from a file."""


@cache
def web_pages() -> dict[str, Page]:
    """Return the genres by name."""
    files = sorted(path for path in WEB.glob("*.toml") if path != _SHARED)
    return {path.stem: read_page(path, shared=[_SHARED]) for path in files}


def write_web(
    *, count: int, bins: Mapping[str, int], seed: int = 0, validation: float = 0.05
) -> Iterator[Row]:
    """Yield pages, genres and length bins dealt evenly."""
    for plan, text in _pages(count, bins, seed, validation):
        yield page_row(plan, text.versions[0], "web", next(iter(text.topic.values()), ""), "web")


def sample_web(
    sampler: TextSampler,
    *,
    count: int,
    bins: Mapping[str, int],
    seed: int = 0,
    validation: float = 0.05,
) -> Iterator[Row]:
    """Yield what a model makes of the openings of these pages."""
    pages = _pages(count, bins, seed, validation)
    return sampler.write([(plan, text.versions[0]) for plan, text in pages])


def _pages(
    count: int, bins: Mapping[str, int], seed: int, validation: float
) -> Iterator[tuple[PagePlan, Text]]:
    pages = web_pages()
    plans = plan_pages("web", list(pages), count=count, bins=bins, seed=seed, validation=validation)
    for plan in plans:
        yield plan, pages[plan.page].write(plan.words, random.Random(plan.seed))


def read_web(
    source: str | Path, *, count: int | None, seed: int = 0, validation: float = 0.05
) -> Iterator[Row]:
    """Yield the first ``count`` texts of a file or item set as documents.

    Raises:
        ConfigError: chats instead of texts, or fewer texts than asked for.
        UnknownNameError: no such file or item set.
    """
    found = open_prompts(str(source))
    if found.is_chat:
        raise ConfigError(f"path = {str(source)!r} holds chats; a file of texts is expected")
    if count is not None and count > len(found):
        raise ConfigError(
            f"documents = {count}, and {str(source)!r} has {len(found)} texts; lower documents or "
            "leave it out to take all"
        )
    number = len(found) if count is None else count
    plans = plan_pages(
        "web", ["page"], count=number, bins={OWN: 0}, seed=seed, validation=validation
    )
    for plan, text in zip(plans, found.items, strict=False):
        yield _own_row(plan, str(text))


def _own_row(plan: PagePlan, text: str) -> Row:
    return page_row(plan, text, "web", "", "web")
