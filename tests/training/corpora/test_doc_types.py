"""The thirty genres."""

from collections import Counter

from workbench_training.corpora.doc_types import DOC_TYPES, MODES


def test_thirty_genres_stand_in_eight_categories():
    assert len({kind.name for kind in DOC_TYPES}) == len(DOC_TYPES) == 30
    assert len({kind.category for kind in DOC_TYPES}) == 8


def test_every_mode_is_carried_and_some_genres_carry_both():
    modes = Counter(mode for kind in DOC_TYPES for mode in kind.modes)
    assert modes == {"assert": 23, "presuppose": 14}
    assert sum(set(kind.modes) == set(MODES) for kind in DOC_TYPES) == 7
