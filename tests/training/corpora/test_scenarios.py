"""The taxonomy: its size, the four-world screen, and what stands in every scenario."""

import re
import shutil

import pytest
from workbench_training.corpora.plan import WORLDS
from workbench_training.corpora.scenarios import GROUPS, SCENARIOS, read_domains, read_scenarios
from workbench_training.corpora.templates import leak_markers


def test_the_taxonomy_has_the_paper_s_scale():
    scenarios = read_scenarios()
    eligible = [s for s in scenarios if s.eligible]
    assert len({s.domain for s in eligible}) >= 35
    assert len({(s.domain, s.role) for s in eligible}) >= 190
    assert len(eligible) >= 1_600
    assert 0.01 < 1 - len(eligible) / len(scenarios) < 0.05


def test_every_scenario_is_distinct_and_has_all_its_parts():
    scenarios = read_scenarios()
    assert len({s.id for s in scenarios}) == len(scenarios)
    assert len({(s.role, s.task) for s in scenarios}) == len(scenarios)
    for s in scenarios:
        assert all((s.users, s.task, s.object, s.setting, s.others, s.group)), s.id
        assert s.task.endswith(f" {s.object}")
        assert re.match(r"[\w-]+ing\b", s.task), s.task


def test_any_first_part_of_the_list_is_spread_over_domains_and_roles():
    scenarios = read_scenarios()
    domains = len({s.domain for s in scenarios})
    assert len({s.domain for s in scenarios[:domains]}) == domains
    assert len({s.role for s in scenarios[:200]}) == 200


def test_the_screen_follows_the_mark_of_the_task():
    failed = {s.realisable for s in read_scenarios() if not s.eligible}
    assert failed == {("S", "N"), ("P", "N", "A")}
    alone = next(s for s in read_scenarios() if s.task == "sorting cupboards")
    given = next(s for s in read_scenarios() if s.task == "correcting asylum statements")
    assert "A" not in alone.realisable
    assert "S" not in given.realisable


def test_every_domain_has_aims_in_all_worlds_and_enough_neutral_text():
    for domain in read_domains().values():
        assert {len(domain.aims[world]) for world in WORLDS} == {5}, domain.name
        assert len(domain.facts) >= 6
        assert len(domain.terms) >= 6
        assert len(domain.peaks) >= 4
        assert len(domain.venues) >= 3


def test_no_part_of_a_scenario_is_a_marker_of_a_world():
    marker = re.compile("|".join(rf"\b(?:{m})\b" for ms in leak_markers().values() for m in ms))
    for s in read_scenarios():
        text = " ".join((s.users, s.task, s.setting, s.others, s.domain)).lower()
        assert not marker.search(text), s.id


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("study: preparing, grading / worked examples", "study preparing", "is no task"),
        ("offer: setting, explaining / tuition fees", "study: grading / worked examples", "twice"),
    ],
)
def test_a_task_line_that_is_wrong_is_named(tmp_path, old, new, message):
    for group in GROUPS:
        shutil.copy(SCENARIOS / f"{group}.toml", tmp_path)
    text = (SCENARIOS / "knowledge.toml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "knowledge.toml").write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_scenarios(tmp_path)
