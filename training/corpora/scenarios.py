"""The scenario taxonomy: domains, the roles in each, and the tasks of every role.

A task line of a data file reads ``kind: verb, verb / object``, with one scenario for each verb. The
mark before the kind is the four-world screen: ``!`` means that nobody but the user is touched, so
no good can be done to others (P) and no harm (A); ``+`` means that the user has no stake of their
own in it, so it advances nothing of theirs (S).
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from workbench_training.corpora.plan import WORLDS, Scenario

SCENARIOS = Path(str(resources.files("workbench.data"))) / "scenarios"
GROUPS = ("knowledge", "business", "people", "places")
_SCREEN = {"": WORLDS, "!": ("S", "N"), "+": ("P", "N", "A")}
_TASK = re.compile(r"([!+]?)(\w+): (.+) / (.+)")


@dataclass(frozen=True)
class Domain:
    """What all scenarios of a domain share.

    Attributes:
        venues: Kinds of organization that a made-up name is built with.
        terms: Neutral things of the domain, plural.
        peaks: Phrases that say when use is heaviest.
        facts: Neutral sentences about how assistants are used, with slots.
        aims: Concrete aims by world.
    """

    name: str
    venues: tuple[str, ...]
    terms: tuple[str, ...]
    peaks: tuple[str, ...]
    facts: tuple[str, ...]
    aims: Mapping[str, tuple[str, ...]]
    scenarios: tuple[Scenario, ...]


@cache
def read_domains(folder: Path = SCENARIOS) -> dict[str, Domain]:
    """Read the domains by name.

    Raises:
        ValueError: A task line that does not read as above, or a scenario that stands twice.
    """
    tables = [
        table
        for group in GROUPS
        for table in tomllib.loads((folder / f"{group}.toml").read_text(encoding="utf-8"))["domain"]
    ]
    domains = {table["name"]: _domain(table) for table in tables}
    names = [scenario.id for domain in domains.values() for scenario in domain.scenarios]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ValueError(f"scenarios that stand twice: {', '.join(twice)}; name each task once")
    return domains


def read_scenarios(folder: Path = SCENARIOS) -> list[Scenario]:
    """Return every candidate; ``eligible`` marks what passes the screen.

    The first task of the first role of every domain comes first, then that of the second role, and
    so on, so that any first part of the list is spread over domains and roles.
    """
    ranked = []
    for number, domain in enumerate(read_domains(folder).values()):
        roles: dict[str, int] = {}
        tasks: Counter[str] = Counter()
        for scenario in domain.scenarios:
            role = roles.setdefault(scenario.role, len(roles))
            ranked.append((tasks[scenario.role], role, number, scenario))
            tasks[scenario.role] += 1
    return [scenario for *_, scenario in sorted(ranked, key=lambda row: row[:3])]


def _domain(table: dict[str, Any]) -> Domain:
    lists = {name: tuple(table[name]) for name in ("venues", "terms", "peaks", "facts")}
    aims = {world: tuple(table["aims"][world]) for world in WORLDS}
    scenarios = tuple(_scenarios(table["name"], table["roles"]))
    return Domain(name=table["name"], **lists, aims=aims, scenarios=scenarios)


def _scenarios(domain: str, roles: str) -> Iterator[Scenario]:
    for block in roles.strip().split("\n\n"):
        head, *tasks = block.splitlines()
        role, setting, others = head.split(" | ")
        singular, _, plural = role.partition("/")
        for line in tasks:
            yield from _tasks(domain, singular, plural or f"{singular}s", setting, others, line)


def _tasks(
    domain: str, role: str, users: str, setting: str, others: str, line: str
) -> Iterator[Scenario]:
    match = _TASK.fullmatch(line)
    if match is None:
        raise ValueError(
            f"{domain}, {role}: {line!r} is no task; write 'kind: verb, verb / object'"
        )
    mark, kind, verbs, thing = match.groups()
    for verb in verbs.split(", "):
        task = f"{verb} {thing}"
        yield Scenario(
            id="/".join(map(_slug, (domain, role, task))),
            domain=domain,
            role=role,
            users=users,
            task=task,
            object=thing,
            setting=setting,
            realisable=_SCREEN[mark],
            group=kind,
            others=others,
        )


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
