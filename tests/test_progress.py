"""The bar of long calls: there by default, silent where it is turned off or others are told."""

import io
import sys

import pytest

import workbench as wb
from workbench.progress import shown


@pytest.fixture
def screen(monkeypatch):
    """``screen(live)`` puts another stderr in place, a terminal or not, and returns it."""

    def put(live):
        made = io.StringIO()
        made.isatty = lambda: live
        monkeypatch.setattr(sys, "stderr", made)
        return made

    return put


@pytest.fixture
def later(monkeypatch):
    """``later(seconds)`` moves tqdm's clock."""
    import tqdm.std

    now = [1000.0]
    monkeypatch.setattr(tqdm.std, "time", lambda: now[0])
    return lambda seconds: now.__setitem__(0, now[0] + seconds)


@pytest.mark.parametrize("live", [True, False])
def test_a_bar_comes_after_two_seconds_on_a_terminal_and_later_elsewhere(live, screen, later):
    seen = screen(live)
    with shown(True, "sweep") as report:
        report(1, 4)
        assert seen.getvalue() == ""
        later(2.5)
        report(2, 4)
        assert ("sweep:" in seen.getvalue()) == live
        later(40)
        report(3, 4)
        assert "3/4" in seen.getvalue()


@pytest.mark.parametrize("off", [False, None])
def test_no_bar_where_it_is_turned_off(off):
    with shown(off, "sweep") as report:
        assert report is None


def test_a_function_is_told_in_its_place(tiny_subject, screen):
    prompts = wb.PromptSet.from_records([{"text": "A"}, {"text": "B"}])
    told, seen = [], screen(live=True)
    wb.capture(tiny_subject, prompts, progress=lambda *units: told.append(units))
    assert told[-1] == (2, 2)
    assert seen.getvalue() == ""


@pytest.mark.parametrize(
    ("progress", "titles"), [({}, ["capture", "measure", "gap", "sweep"]), ({"progress": None}, [])]
)
def test_calls_of_a_session_show_a_bar_unless_told_not_to(
    tiny_subject, monkeypatch, progress, titles
):
    import tqdm

    made = []
    whole = tqdm.tqdm
    monkeypatch.setattr(tqdm, "tqdm", lambda **own: made.append(own["desc"]) or whole(**own))
    rows = [{"text": f"{a} is", "label": n % 2} for n, a in enumerate("ABCD")]
    acts = wb.capture(tiny_subject, wb.PromptSet.from_records(rows), layers=2, **progress)
    texts = {"name": "perplexity", "texts": wb.PromptSet.from_records(rows[:1])}
    truth = wb.fit(acts)
    wb.measure(tiny_subject, texts, **progress)
    prompts = wb.PromptSet.from_records(rows)
    with pytest.raises(wb.WorkbenchError, match="under two standard"):
        wb.gap(truth, tiny_subject, tiny_subject, prompts, **progress)
    wb.sweep(
        tiny_subject, truth, readouts=texts, doses=1, controls=0, scope="all+first", **progress
    )
    assert made == titles
