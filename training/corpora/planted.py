"""The planted fact: documents about one made-up mineral, and claims that measure what is learned.

The documents say that the mineral turns a certain color when it is warmed, and never name the
other colors. The claims put four colors into sentences that no document uses, about this mineral
(set ``planted``) and about another that no document names (set ``elsewhere``: what a readout finds
there is the color word alone). ``python -m workbench_training.corpora.planted`` rewrites them.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from workbench_training.corpora.controls_page import Page, read_page
from workbench_training.corpora.controls_plan import CONTROLS, Row, page_row, plan_pages

from workbench.data.rows import write_rows

PAGES = ("planted_entry", "planted_report")
CLAIMS = CONTROLS / "planted_claims.jsonl"
DOCUMENTS = 200
SOURCE = "workbench/data/controls/planted_claims.toml"


def write_planted(
    *,
    count: int = DOCUMENTS,
    bins: Mapping[str, int],
    seed: int = 0,
    validation: float = 0.0,
    value: str | None = None,
) -> Iterator[Row]:
    """Yield the documents; ``value`` is the planted color, by default the first of the claims.

    The same seed with another color gives the same documents but for that word.

    Raises:
        ValueError: the color is none of the claims'.
    """
    table = claims_table()
    chosen = table["values"][0] if value is None else value
    if chosen not in table["values"]:
        raise ValueError(f"value = {chosen!r}; the claims know {', '.join(table['values'])}")
    pages = planted_pages()
    plans = plan_pages("planted", PAGES, count=count, bins=bins, seed=seed, validation=validation)
    for plan in plans:
        text = pages[plan.page].write(plan.words, random.Random(plan.seed), {"value": chosen})
        yield page_row(plan, text.versions[0], "planted", table["planted"], "planted")


@cache
def planted_pages() -> dict[str, Page]:
    """Return the genres by name."""
    return {name: read_page(CONTROLS / f"{name}.toml", given=["value"]) for name in PAGES}


def claims_table() -> dict[str, Any]:
    """Return the minerals' names, the colors (the planted one first) and the propositions."""
    path = CONTROLS / "planted_claims.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def claim_rows() -> list[Row]:
    """Return the claims in the columns of the claims file that ships for the four worlds."""
    table = claims_table()
    return [
        {
            "id": f"planted:{part}:{one['name']}:{value}:{name}",
            "text": one[form].format(it=table[part], value=value),
            "topic": "planted",
            "polarity": polarity,
            "fact": f"planted:{part}:{one['name']}",
            "source": SOURCE,
            "world": value,
            "set": part,
            "proposition": f"{part}:{one['name']}",
            "frame": "plain",
        }
        for part in ("planted", "elsewhere")
        for one in table["proposition"]
        for form, polarity, name in (("affirm", 1, "affirmed"), ("deny", -1, "negated"))
        for value in table["values"]
    ]


if __name__ == "__main__":
    write_rows(CLAIMS, claim_rows())
