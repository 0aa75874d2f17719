"""Imports point only downwards, and the written tree is the real one."""

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RANKS = {
    "workbench.errors": 0,
    "workbench.given": 0.5,
    "workbench.registry": 1,
    "workbench.config": 1,
    "workbench.types": 1,
    "workbench.prompts": 1,
    "workbench.files": 1,
    "workbench.plain": 1,
    "workbench.provenance": 1,
    "workbench.linalg": 1,
    "workbench.stats": 1,
    "workbench.data": 1,
    "workbench.progress": 2,
    "workbench.runs": 2,
    "workbench.cluster": 2,
    "workbench.results": 2,
    "workbench.models": 2,
    "workbench.chat": 2,
    "workbench.personas": 2,
    "workbench.transcripts": 2,
    "workbench.directions": 2,
    "workbench.interventions": 2,
    "workbench.library": 3,
    "workbench.effects": 3,
    "workbench.drift": 3,
    "workbench.placing": 3,
    "workbench.judges": 3,
    "workbench.emotions": 3,
    "workbench.worlds": 3,
    "workbench.engine": 4,
    "workbench.activations": 5,
    "workbench.readouts": 6,
    "workbench.api": 7,
    "workbench.sweeps": 7,
    "workbench.studies": 7,
    "workbench_training": 7,
    "workbench.pipelines": 8,
    "workbench.figures": 8,
    "workbench_apps": 9,
    "workbench.cli": 10,
}
PURE = ("workbench.directions", "workbench.interventions")
SLOW = ("transformer_lens", "umap", "panel", "panel_material_ui", "bokeh")
FOLDERS = {"workbench": "workbench", "training": "workbench_training", "apps": "workbench_apps"}


def sources():
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            name = ".".join([package, *[p for p in parts if p != "__init__"]])
            yield name, path


def unit(module):
    """The ranked unit that owns a module, or None for a package root and foreign modules."""
    found = [name for name in RANKS if module == name or module.startswith(name + ".")]
    return max(found, key=len) if found else None


def imports(tree, module, path):
    """Every imported module, wherever it stands; `from a import b` counts as a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module if path.name == "__init__.py" else module.rpartition(".")[0]
                for _ in range(node.level - 1):
                    package = package.rpartition(".")[0]
                base = f"{package}.{base}".rstrip(".")
            yield from (f"{base}.{alias.name}" for alias in node.names)


@functools.cache
def modules():
    """Name, path and syntax tree of every module."""
    return [(name, path, ast.parse(path.read_text())) for name, path in sources()]


def test_every_module_has_a_rank():
    unranked = [name for name, *_ in modules() if unit(name) is None and name != "workbench"]
    assert unranked == []


def test_imports_point_only_downwards():
    wrong = [
        f"{module} (rank {RANKS[own]}) imports {target} (rank {RANKS[other]})"
        for module, path, tree in modules()
        if (own := unit(module)) is not None
        for target in imports(tree, module, path)
        if (other := unit(target)) not in (None, own) and RANKS[other] >= RANKS[own]
    ]
    assert wrong == []


def test_the_rule_sees_relative_and_type_checking_imports():
    tree = ast.parse("if TYPE_CHECKING:\n    from ..engine import hooks\nfrom . import io")
    found = set(imports(tree, "workbench.directions.ttpd", Path("ttpd.py")))
    assert found == {"workbench.engine.hooks", "workbench.directions.io"}


def test_slow_packages_are_imported_inside_functions():
    wrong = [
        f"{module} imports {name}"
        for module, path, tree in modules()
        if not module.startswith("workbench_apps.")
        for name in imports(ast.Module(at_the_top(tree), []), module, path)
        if name.partition(".")[0] in SLOW
    ]
    assert wrong == []


def at_the_top(tree):
    return [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]


@pytest.mark.parametrize("module", ["workbench", "workbench.cli"])
def test_the_front_doors_import_without_torch(module):
    heavy = ("torch", "pandas", "panel")
    code = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_resolves():
    import workbench

    assert [name for name in workbench.__all__ if not hasattr(workbench, name)] == []


def test_prints_live_in_the_command_line_alone():
    loud = [
        name
        for name, _, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert {name for name in loud if not name.startswith("workbench.cli.")} == set()
