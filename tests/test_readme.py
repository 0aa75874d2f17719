"""What the README shows runs as it stands there."""

import json
import re
from pathlib import Path

import pytest

from workbench.data import data_path
from workbench.pipelines.report_effects import effects_of

README = (Path(__file__).parent.parent / "README.md").read_text()


@pytest.mark.real
def test_the_python_example_runs(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    short = '"counterparts": ["person"], "frames": ["plain"]'
    code = code.replace('"counterparts": ["person"]', short).replace("controls=10", "controls=1")
    assert short in code
    assert "controls=1)" in code
    rows = [json.loads(line) for line in data_path("statements").read_text().splitlines()]
    kept = [row for topic in ("animals", "calendar") for row in rows if row["topic"] == topic][::9]
    monkeypatch.chdir(tmp_path)
    Path("statements.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["truth"].project(names["acts"]).shape == (1, 30, len(kept))
    assert len(names["log"].table()) == 2
    assert set(names["table"]["control"]) == {"none", "random:0"}
    assert effects_of("results.parquet").slopes["verdict"].notna().all()


def test_every_linked_file_exists():
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (Path(__file__).parent.parent / link).exists()] == []


def test_the_first_screen_says_what_it_is_for_whom_and_the_two_commands():
    first = "\n".join(README.splitlines()[:14])
    for part in ("language model", "researchers", "make demo", "make test", "docs/screenshot.png"):
        assert part in first
