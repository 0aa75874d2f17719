"""The settings of one corpus."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from workbench.config import Config
from workbench.errors import ConfigError

PAPER_QUARTETS = 13_440
TOKENS_PER_WORD = 1 / 0.75
"""What the token estimates of cards and dry runs assume."""
Made = TypeVar("Made")


def bound(what: str, make: Callable[..., Made], options: Mapping[str, Any]) -> Callable[[], Made]:
    """Return a call of ``make`` with these options, checked against its signature but not made.

    Raises:
        ConfigError: an option that it does not take, or one that it lacks.
    """
    try:
        inspect.signature(make).bind(**options)
    except TypeError as error:
        raise ConfigError(
            f"options of the {what}: {error}; it takes {inspect.signature(make)}"
        ) from None
    return functools.partial(make, **options)


class CorpusConfig(Config):
    """Write one corpus; the defaults are the paper's scale (Table 1)."""

    kind: str = "quartets"
    """``quartets`` (four matched worlds), or a control such as ``intent``, ``mixed`` or ``web``."""
    quartets: int = Field(default=PAPER_QUARTETS, ge=1)
    """How many are planned; what fails a check is dropped from them."""
    documents: int | None = Field(default=None, ge=1)
    """How many documents a control has; by default as many as ``quartets`` says."""
    scenarios: int | None = Field(default=None, ge=1)
    """Use the first so many eligible scenarios; by default all."""
    words: dict[str, Annotated[int, Field(ge=50)]] = Field(
        default_factory=lambda: {"short": 600, "mid": 900, "long": 1170}, min_length=1
    )
    """Target length of a document in words, by length bin."""
    writer: str = "templates"
    """``templates`` (this package's grammar), ``server`` or ``local`` (a language model)."""
    options: dict[str, Any] = Field(default_factory=dict)
    """What the writer or the kind takes beside these settings, such as ``{model = ...}``."""
    seed: int = Field(default=0, ge=0)
    """Every draw follows from it."""
    validation: float = Field(default=0.05, ge=0, lt=1)
    """Share of the scenarios whose documents are held out."""
    length_tolerance: float = Field(default=0.08, gt=0, lt=1)
    """How far the shortest document of a quartet may lie below its longest, as a share of it."""
    near_duplicate: float = Field(default=0.7, gt=0, le=1)
    """Jaccard similarity over five-word shingles from which two documents count as one."""
    claims: list[str] = Field(default_factory=lambda: ["claims", "choice", "claims/planted"])
    """Item sets or files that no document may share a run of six words with."""
    max_dropped: float = Field(default=0.1, ge=0, le=1)
    """Refuse the corpus where checks drop more than this share of what was written."""
    workers: Annotated[int, Field(ge=1)] | Literal["ray"] | None = None
    """Processes that write; by default one for each processor, and one for a language model."""

    @property
    def count(self) -> int:
        """Documents of a control, quartets otherwise.

        Raises:
            ConfigError: ``documents`` is given for quartets.
        """
        if self.kind == "quartets" and self.documents is not None:
            raise ConfigError(
                f"documents = {self.documents} is for controls; a corpus of kind 'quartets' has "
                "four documents for each of quartets = ..."
            )
        return self.quartets if self.documents is None else self.documents
