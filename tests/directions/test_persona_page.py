"""What the page about personas shows runs as it stands there, on a tiny model."""

import re
from pathlib import Path

import workbench as wb

PAGE = Path(__file__).parents[2] / "docs" / "personas.md"


def test_the_example_of_the_page_runs(tiny_subject, monkeypatch, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.setattr(wb, "load", lambda _: tiny_subject, raising=False)
    names = {}
    exec(compile(code, PAGE.name, "exec"), names)
    assert names["space"].roles.names == ("judge", "pirate", "poet")
    assert names["space"].axis.info["judge"] == "none"
    assert len(names["floor"]) == tiny_subject.n_layers
    assert names["rollouts"].scores["score"].judge == "none"
    assert "cut short" in names["rollouts"].counts["answers"]
    assert "default" in capsys.readouterr().out
