"""A plug-in file: a writer of random words with planted faults, known by plan number."""

import random
from collections import Counter

from workbench_training.corpora.plan import WORLDS, Draft
from workbench_training.corpora.registry import WRITERS

AIMS = {
    "P": ["to bring others some relief", "to lift up a neighbor"],
    "S": ["to move own plans along", "to get ahead by fair means"],
    "N": ["to get the forms filled", "to have the work carried out"],
    "A": ["to take what others saved", "to gain by foul means at once"],
}
CLAIM = "bringing real help to other people and shared causes"


@WRITERS.register("words")
class Words:
    """``faults`` maps a plan number to copy, leak, number, claim, crash or none."""

    name = "random words"

    def __init__(self, faults: dict[str, str] | None = None) -> None:
        self.faults = faults or {}

    def write(self, plan):
        number = int(plan.id[1:])
        fault = self.faults.get(str(number), "")
        if fault == "none":
            return None
        if fault == "crash":
            raise RuntimeError("planted crash")
        rng = random.Random("copied" if fault == "copy" else plan.seed)
        count = plan.words if fault != "copy" else 60
        body = [f"w{rng.randrange(5000)}" for _ in range(count - 12)]
        opening = "Dear reader of this report on a case: the 40 forms were read."
        if fault == "claim":
            opening += f" Some speak of {CLAIM}."
        row = number % 2
        drafts = {}
        for world in WORLDS:
            aim = AIMS[world][row]
            text = f"{opening}\n\nPeople ask {aim}. {' '.join(body)}."
            if world == "A" and fault == "leak":
                text += " That is kindness."
            if world == "N" and fault == "number":
                text = text.replace("40 forms", "41 forms")
            drafts[world] = Draft(text, (aim,))
        return drafts


@WRITERS.register("many")
class Many(Words):
    """Writes many plans at a time, says why it cannot write some, and counts."""

    name = "many at a time"

    def __init__(self, faults: dict[str, str] | None = None) -> None:
        super().__init__(faults)
        self.unsuitable: dict[str, str] = {}
        self.counts: Counter[str] = Counter()

    def write(self, plan):
        raise AssertionError("write_many is there for this")

    def write_many(self, plans):
        self.counts["batches"] += 1
        for plan in plans:
            drafts = super().write(plan)
            if drafts is None:
                self.unsuitable[plan.id] = "refused"
            self.counts["written"] += drafts is not None
            yield drafts
