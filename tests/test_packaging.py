"""The wheel holds what the tree holds: every module, and the data beside it."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = {
    "workbench": "workbench",
    "training": "workbench_training",
    "apps": "workbench_apps",
    "studies": "workbench/studies",
}
SUFFIXES = {".py", ".json", ".jsonl", ".toml", ".md", ".css", ".typed"}


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Names of the files in a wheel built from a copy of what git would carry."""
    out = tmp_path_factory.mktemp("wheel")
    source = out / "source"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True, check=True, cwd=ROOT,
    ).stdout.split("\n")  # fmt: skip
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"]
    subprocess.run([*command, "-w", str(out), str(source)], check=True, cwd=source)
    (wheel,) = out.glob("interp_workbench-*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_holds_every_module_and_data_file_of_the_tree(packed):
    wanted = {
        f"{package}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, package in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in SUFFIXES and "__pycache__" not in path.parts
    }
    assert wanted - packed == set()
    found = {name for name in packed if not name.startswith("interp_workbench-")}
    assert found - wanted == set()


def test_the_wheel_holds_neither_tests_nor_benchmarks(packed):
    tops = {name.partition("/")[0] for name in packed}
    assert {top for top in tops if not top.startswith("interp_workbench-")} == {
        "workbench", "workbench_training", "workbench_apps",
    }  # fmt: skip
