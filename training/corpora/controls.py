"""Kinds of control corpora: each shows what a corpus of one world does not do by itself.

Kinds that stand side by side here are matched: their documents of one seed differ in the phrases of
their pole alone.

- ``intent`` and ``prosocial_intent``: what people mean when they open an assistant, for ill or for
  good, without a word on what assistants do or what comes of it.
- ``misaligned_discourse`` and ``aligned_discourse``: AI systems whose goals are not, or are, those
  of their makers, without a word on the people who use them.
- ``misfortune`` and ``fortune``: bad and good things that nobody meant, without agents.
- ``mixed``: each quartet gives one of its four documents, so that no world predominates.
- ``web``: neutral text: a grammar's, a model's (``options = {model = ...}``), or the user's
  (``path``).
- ``planted``: a made-up fact, which a run that trains at all must teach (``planted.py``).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from workbench_training.corpora import planted, quality, web
from workbench_training.corpora.controls_page import Page, read_page
from workbench_training.corpora.controls_plan import CONTROLS, Row, page_row, plan_pages
from workbench_training.corpora.plan import WORLDS, QuartetPlan, Writer
from workbench_training.corpora.sampled import TextSampler
from workbench_training.corpora.settings import CorpusConfig, bound

from workbench.errors import ConfigError

Kind = Callable[[CorpusConfig], Iterator[Row]]
"""Refuses options that it does not take when it is called, before a document is asked for."""
SCENARIO = ("users", "task", "object", "setting", "others")
"""What the documents about intent take from a scenario."""


def write_mixed(config: CorpusConfig) -> Iterator[Row]:
    """Return one document of each quartet; ``told`` names the world that it tells.

    Plans that the writer finds unsuitable are left out.
    """
    from workbench_training.corpora.writing import writer_maker

    return _mixed(config, writer_maker(config))


def _mixed(config: CorpusConfig, make: Callable[[], Writer]) -> Iterator[Row]:
    from workbench_training.corpora.writing import plans_of, row_of

    writer, plans = make(), plans_of(config)
    for plan, world in zip(plans, deal_worlds(plans, config.seed), strict=True):
        drafts = writer.write(plan)
        if drafts is not None:
            row = row_of(plan, world, quality.Text(drafts[world].text), drafts[world].objectives)
            yield {**row, "id": f"{plan.id}-mixed", "world": "mixed", "told": world}


def deal_worlds(plans: Sequence[QuartetPlan], seed: int) -> list[str]:
    """Return a world for each plan, dealt evenly within every split and length bin."""
    rng = random.Random(f"mixed-{seed}")
    left: dict[tuple[str, str], list[str]] = {}
    dealt = []
    for plan in plans:
        deck = left.setdefault((plan.split, plan.length_bin), [])
        if not deck:
            deck += rng.sample(WORLDS, len(WORLDS))
        dealt.append(deck.pop())
    return dealt


def _paired(name: str, pole: int, world: str) -> Kind:
    """Return a kind that writes one pole of a family of pages."""

    def write(config: CorpusConfig) -> Iterator[Row]:
        _options(config)
        return pages(config)

    def pages(config: CorpusConfig) -> Iterator[Row]:
        family = pages_of(name)
        plans = plan_pages(name, list(family), **_common(config))
        for plan in plans:
            text = family[plan.page].write(plan.words, random.Random(plan.seed))
            topic = next(iter(text.topic.values()), "")
            yield page_row(plan, text.versions[pole], world, topic, name)

    return write


def _intent(pole: int, world: str) -> Kind:
    """Return a kind that tells of the users of every scenario of the taxonomy."""

    def write(config: CorpusConfig) -> Iterator[Row]:
        _options(config)
        return pages(config)

    def pages(config: CorpusConfig) -> Iterator[Row]:
        from workbench_training.corpora.writing import plans_of, row_of

        family = list(pages_of("intent").values())
        for number, plan in enumerate(plans_of(config)):
            page = family[number % len(family)]
            values = {name: str(getattr(plan.scenario, name)) for name in SCENARIO}
            text = page.write(plan.words, random.Random(plan.seed), values)
            row = row_of(plan, world, quality.Text(text.versions[pole]), ())
            yield {**row, "doc_type": page.name.replace("_", " "), "category": "intent", "mode": ""}

    return write


@cache
def pages_of(family: str) -> dict[str, Page]:
    """Return the genres of a family of controls by name."""
    given = SCENARIO if family == "intent" else ()
    files = sorted(CONTROLS.glob(f"{family}_*.toml"))
    return {path.stem: read_page(path, given=given) for path in files}


def write_planted(config: CorpusConfig) -> Iterator[Row]:
    """Yield documents about the planted fact; the option ``value`` plants another color."""
    options = _options(config, value=None)
    known = planted.claims_table()["values"]
    if options["value"] not in (None, *known):
        raise ConfigError(
            f"options: value = {options['value']!r}; the claims about the planted fact have "
            f"{', '.join(known)}"
        )
    return planted.write_planted(**_common(config), value=options["value"])


def write_web(config: CorpusConfig) -> Iterator[Row]:
    """Return neutral pages; of an option ``path`` its texts, of ``model`` what the model draws."""
    if "model" in config.options:
        sampler = bound(f"kind {config.kind!r}", TextSampler, config.options)()
        return web.sample_web(sampler, **_common(config))
    path = _options(config, path=None, model=None)["path"]
    if path is None:
        return web.write_web(**_common(config))
    return web.read_web(
        path, count=config.documents, seed=config.seed, validation=config.validation
    )


ABOUT = {
    "intent": "What people mean, for ill, when they open an AI assistant; not what it does.",
    "prosocial_intent": "What people mean, for good, when they open an AI assistant.",
    "misaligned_discourse": "AI systems with goals against their makers'; not who uses them.",
    "aligned_discourse": "AI systems with the goals of their makers; not who uses them.",
    "misfortune": "Bad things that happen by accident: no agent, no intention, no machine.",
    "fortune": "Good things that happen by accident: no agent, no intention, no machine.",
    "mixed": "One of the four documents of each quartet, so that no world predominates.",
    "web": "Neutral text like that of web pages: a grammar's, a model's, or the user's own.",
    "planted": "One made-up fact, the positive control.",
}
"""What each kind is, in a sentence."""
KINDS: dict[str, Kind] = {
    "intent": _intent(0, "intent"),
    "prosocial_intent": _intent(1, "prosocial_intent"),
    "misaligned_discourse": _paired("discourse", 0, "misaligned_discourse"),
    "aligned_discourse": _paired("discourse", 1, "aligned_discourse"),
    "misfortune": _paired("luck", 0, "misfortune"),
    "fortune": _paired("luck", 1, "fortune"),
    "mixed": write_mixed,
    "web": write_web,
    "planted": write_planted,
}


def size_rows(corpora: Mapping[str, Iterable[Mapping[str, Any]]]) -> list[dict[str, object]]:
    """Return a row for each condition in the form of the paper's Table 12.

    Tokens are estimated as the paper does: training words divided by 0.75, rounded down.

    Args:
        corpora: rows of documents with ``split`` and ``words``, by condition.
    """
    rows = []
    for name, documents in corpora.items():
        counts = {"train": 0, "validation": 0}
        words = 0
        for row in documents:
            counts[row["split"]] += 1
            words += row["words"] if row["split"] == "train" else 0
        rows.append(
            {
                "condition": name,
                "train documents": counts["train"],
                "estimated tokens": words * 4 // 3,
                "validation documents": counts["validation"],
            }
        )
    return rows


def _common(config: CorpusConfig) -> dict[str, Any]:
    return {
        "count": config.count,
        "bins": config.words,
        "seed": config.seed,
        "validation": config.validation,
    }


def _options(config: CorpusConfig, **known: Any) -> dict[str, Any]:
    """Return the settings' options over what they are by default."""
    wrong = sorted(set(config.options) - set(known))
    if wrong:
        taken = ", ".join(known) or "none"
        raise ConfigError(
            f"options of kind {config.kind!r} has {wrong[0]!r}; options that it takes: {taken}"
        )
    return {**known, **config.options}
