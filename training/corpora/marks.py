"""What marks a text as of its genre: words that stand in it at least once, whoever wrote it."""

from __future__ import annotations

import re

_MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_MARKS: dict[str, str] = {
    "newspaper article": rf"newspaper|reporter|correspondent|spokes\w+|\bdesk, {_MONTH}"
    rf"|^Technology,|^\w+, {_MONTH} \d{{4}}$|^\w+[.] (?:On a|More than|About) ",
    "opinion column": r"^Opinion\b|\bcolumn\b|\bop-ed\b|^Comment from",
    "data feature": r"\bdata desk\b|\bcharts?\b|^Figures:|\bthe map\b",
    "interview": r"^(?:Q|Question|Interviewer)\b ?\d*[:.]|\binterview",
    "journal article": r"^(?:\d+\.? )?(?:Abstract|Keywords|Section:)|\bKeywords:",
    "preprint": r"\bpreprint\b|\bworking paper\b|\barXiv\b|^(?:Manuscript|Version \d)",
    "workshop paper": r"\bworkshop\b",
    "course reading": r"\b(?:handout|seminar|course|reading for|syllabus)\b",
    "encyclopedia entry": r"^(?:Entry \d+|See also|Overview|Etymology|Article \d+)\b"
    r"|\bsee also: |\bthis (?:entry|article)\b|\bencyclopedia\b",
    "textbook section": r"^(?:Chapter|Section|Unit|Lesson|Exercise|Box)s?\b|\bchapter\b|^Level:"
    r"|\byou will learn\b",
    "glossary entry": r"\bglossary\b|^(?:Terms?|Words of|Definition)\b|\b\d+ terms\b"
    r"|\b(?:key terms|word list|each entry)\b",
    "research digest": r"\b(?:digest|literature|studies|evidence)\b",
    "usage report": r"\breport\b",
    "market analysis": r"\bmarket\b|\bsector\b",
    "case study": r"\bclient: |^(?:Field study|Case)\b|\bcase (?:study|\d)|\b(?:the|this) case\b",
    "conference talk": r"^(?:Talk|Keynote)\b|\bslides?\b|\bhall \d|\bthis talk\b|\bapplause\b",
    "policy brief": r"\bpolicy\b|\bbrief\b",
    "committee testimony": r"\b(?:committee|testimony|hearing)\b",
    "consultation response": r"\b(?:consultation|response to)\b",
    "staff policy": r"\b(?:policy|(?:house|staff) rules|rules (?:for|below)|applies to|owner:)",
    "help page": r"\b(?:user guide|help (?:page|center)|before you start|getting started)\b"
    r"|\bthis page\b|^(?:Steps|Guide|Page \d|Questions and answers|Settings|Applies to)\b",
    "product announcement": r"\b(?:product news|now available|announc\w+|new features?"
    r"|release notes|for release|^Release \d|version \d)",
    "design note": r"\bdesign\b|^(?:Status|Spec|Proposal|Reviewers)\b|\breviewers: ",
    "support review": r"\b(?:support|tickets?)\b",
    "forum thread": r"^(?:Thread|Board|Re)\b|\bpost \d+ ?>|\b\d+ replies\b",
    "blog post": r"\b(?:this|the|a|my) (?:blog|post)\b|^Posted\b|\bminutes to read\b|\bposts\b",
    "newsletter": r"\b(?:newsletter|issue \d+|monthly letter|subscribers?)\b",
    "podcast transcript": r"^(?:Host|Guest|Speaker \d)\b ?:|\bepisode\b",
    "meeting minutes": r"^(?:Minutes|Item \d|Agenda|Present)\b|\bminutes of\b"
    r"|\bthe (?:chair|agenda)\b",
    "advice column": r"\b(?:letter of|dear|advice|readers? (?:write|asks?))\b"
    r"|\bletters? page\b|\bwrites:|^Letter\b",
}
MARKS = {
    genre: re.compile(pattern, re.MULTILINE | re.IGNORECASE) for genre, pattern in _MARKS.items()
}
"""By the name of the document type."""
