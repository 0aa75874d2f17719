"""What a page shows, as one object of settings, and how it is written into the address.

All values are text, because an address is. Only values that differ from the defaults are written;
what an address asks for and is not there is reported and removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar
from urllib.parse import parse_qsl, urlencode

import param
from workbench_apps.catalogue import Catalogue

from workbench.errors import WorkbenchError

EVERY = "every"
Options = dict[str, str]
"""Value -> label, in the order shown."""


class PageState(param.Parameterized):
    """The settings of one page; ``theme`` is common to all."""

    theme = param.String("")
    kind: ClassVar[str] = ""
    fields: ClassVar[tuple[str, ...]] = ()
    """In order: the options of one may depend on those before it."""

    def __init__(self, catalogue: Catalogue) -> None:
        super().__init__()
        self.catalogue = catalogue
        self.settle({})

    def options(self, name: str) -> Options:
        """Return what ``name`` may be, given the fields before it; nothing where a file is broken.

        The card that draws from the broken file says what is wrong with it.
        """
        try:
            return self.known(name)
        except WorkbenchError:
            return {}

    def known(self, name: str) -> Options:
        """Return what ``name`` may be.

        Raises:
            WorkbenchError: a file that says so is broken.
        """
        raise NotImplementedError

    def default(self, name: str) -> str:
        """Return what ``name`` is unless the address says otherwise."""
        return next(iter(self.options(name)), "")

    def check(self, name: str, value: str) -> str | None:
        """Say what is wrong with a value, None where it is fine."""
        known = self.options(name)
        if value in known:
            return None
        listed = ", ".join(list(known)[:6]) or "nothing to choose from"
        return f"{name}={value} is not there; known: {listed}{', ...' if len(known) > 6 else ''}"

    def settle(self, wanted: Mapping[str, str]) -> list[str]:
        """Take ``wanted`` as far as possible, the defaults elsewhere; return what was refused."""
        refused = [f"unknown setting {key}" for key in wanted if key not in (*self.fields, "theme")]
        with param.parameterized.batch_call_watchers(self):
            for name in self.fields:
                value = wanted.get(name)
                problem = None if value is None else self.check(name, value)
                if problem:
                    refused.append(problem)
                taken = value if value is not None and not problem else self.default(name)
                setattr(self, name, taken)
            theme = wanted.get("theme", "")
            if theme not in ("", "light", "dark"):
                refused.append(f"theme={theme} is not there; known: light, dark")
            self.theme = theme if theme in ("light", "dark") else ""
        return refused

    def choose(self, **changes: str) -> None:
        """Change fields by hand; later ones that no longer fit go back to their defaults."""
        now = {name: getattr(self, name) for name in (*self.fields, "theme")}
        self.settle({**now, **changes})

    def query(self) -> dict[str, str]:
        """Return the values that differ from the defaults."""
        changed = {name: getattr(self, name) for name in self.fields}
        found = {name: value for name, value in changed.items() if value != self.default(name)}
        return found | ({"theme": self.theme} if self.theme else {})

    def search(self) -> str:
        """Return the query part of the page's address, empty where all is default."""
        text = urlencode(self.query(), safe="~,;:@")
        return f"?{text}" if text else ""

    def entries(self, kind: str) -> Options:
        """Return the runs that can be shown, newest first."""
        return {entry.run.id: entry.label for entry in self.catalogue.usable(kind)}


def parse_search(search: str) -> dict[str, str]:
    """Read the query part of an address; the last of repeated keys counts."""
    return dict(parse_qsl(search.removeprefix("?"), keep_blank_values=True))
