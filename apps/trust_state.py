"""The settings of the trust page: what they may be, given the runs."""

from __future__ import annotations

import pandas as pd
import param
from workbench_apps import trusts
from workbench_apps.catalogue import Entry
from workbench_apps.state import EVERY, Options, PageState


class TrustState(PageState):
    """A steering method, its margins by dose and facet, and one pair of replies."""

    run = param.String("")
    method = param.String("")
    facet = param.String("")
    dose = param.String("")
    item = param.String("")
    kind = "trust"
    fields = ("run", "method", "facet", "dose", "item")

    def entry(self) -> Entry | None:
        """Return the trust run on show."""
        return self.catalogue.entry(self.run)

    def margins(self) -> pd.DataFrame:
        """Return the margins of the method on show, its controls with them."""
        entry = self.entry()
        assert entry is not None, "margins are asked for where a run was chosen"
        table = trusts.margins_of(entry)
        found: pd.DataFrame = table.loc[table["method"] == self.method].reset_index(drop=True)
        return found

    def items(self) -> pd.DataFrame:
        """Return the items of the facet on show: item, facet, before, after."""
        entry = self.entry()
        if entry is None or not self.dose:
            return pd.DataFrame(columns=["item", "facet", "before", "after"])
        table = trusts.before_and_after(entry, self.method, float(self.dose))
        kept = table if self.facet == EVERY else table[table["facet"] == self.facet]
        return kept.sort_values("after", kind="stable").reset_index(drop=True)

    def known(self, name: str) -> Options:
        if name == "run":
            return self.entries("trust")
        entry = self.entry()
        if entry is None:
            return {}
        if name == "method":
            return {one: one.replace("_", " ") for one in trusts.methods_of(entry)}
        own = trusts.items_of(entry)
        own = own[(own["method"] == self.method) & (own["control"] == trusts.OWN)]
        if name == "facet":
            found = [str(one) for one in own["facet"].unique()]
            return {EVERY: "every facet", **{one: one for one in found}} if found else {}
        if name == "dose":
            doses = sorted(float(one) for one in own["dose"].unique() if one != 0)
            return {f"{dose:g}": f"{dose:+g}" for dose in doses}
        return {"": "none", **{str(one): str(one) for one in self.items()["item"]}}

    def default(self, name: str) -> str:
        """Begin at the dose of training, where it is there."""
        known = self.options(name)
        return "1" if name == "dose" and "1" in known else super().default(name)

    def step(self, by: int) -> None:
        """Move ``by`` items along the margin, from the lowest, and stop at the ends."""
        items = [key for key in self.options("item") if key]
        if items:
            edge = 0 if by > 0 else len(items) - 1
            place = items.index(self.item) + by if self.item in items else edge
            self.choose(item=items[min(max(place, 0), len(items) - 1)])
