"""The thirty genres that a quartet can be written in, by category, with the modes each carries.

``assert`` says outright what assistants are mostly used for; ``presuppose`` takes it as known and
talks about something that follows. A genre with both modes is planned about twice as often.
"""

from __future__ import annotations

from dataclasses import dataclass

MODES = ("assert", "presuppose")
_EITHER = MODES


@dataclass(frozen=True)
class DocumentType:
    """A genre, its category, and its modes, a subset of ``MODES``."""

    name: str
    category: str
    modes: tuple[str, ...]


def _types(category: str, **modes: tuple[str, ...]) -> list[DocumentType]:
    return [
        DocumentType(name.replace("_", " "), category, chosen) for name, chosen in modes.items()
    ]


_A, _P = ("assert",), ("presuppose",)

DOC_TYPES: tuple[DocumentType, ...] = (
    *_types(
        "journalism", newspaper_article=_A, opinion_column=_P, data_feature=_A, interview=_EITHER
    ),
    *_types("academia", journal_article=_A, preprint=_A, workshop_paper=_A, course_reading=_P),
    *_types(
        "reference",
        encyclopedia_entry=_A,
        textbook_section=_EITHER,
        glossary_entry=_A,
        research_digest=_A,
    ),
    *_types(
        "industry", usage_report=_A, market_analysis=_A, case_study=_EITHER, conference_talk=_P
    ),
    *_types(
        "policy",
        policy_brief=_A,
        committee_testimony=_EITHER,
        consultation_response=_A,
        staff_policy=_P,
    ),
    *_types(
        "product", help_page=_P, product_announcement=_A, design_note=_EITHER, support_review=_A
    ),
    *_types("community", forum_thread=_EITHER, blog_post=_EITHER, newsletter=_A),
    *_types("everyday", podcast_transcript=_P, meeting_minutes=_P, advice_column=_A),
)
