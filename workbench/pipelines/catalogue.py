"""What there is: registered things, shipped data, runs; and what a path or a name holds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from workbench_training.corpora.registry import WRITERS

from workbench.data import item_sets
from workbench.errors import ConfigError, FormatError, unknown
from workbench.pipelines import outcomes
from workbench.plain import as_json
from workbench.registry import EDITS, ENGINES, METHODS, READOUTS, Registry
from workbench.runs import first_line, kept_in, list_runs
from workbench.types import LayerEdit, Run

Row = dict[str, Any]
REGISTRIES: dict[str, Registry[Any]] = {
    "method": METHODS,
    "edit": EDITS,
    "readout": READOUTS,
    "engine": ENGINES,
    "writer": WRITERS,
}


def kinds_of(root: Path) -> list[str]:
    """Return the kinds of things that can be listed."""
    return list(_kinds(root))


def rows_of(kind: str, root: Path) -> list[Row]:
    """Return one row for each thing of a kind.

    Raises:
        UnknownNameError: no such kind.
    """
    kinds = _kinds(root)
    if kind not in kinds:
        raise unknown("kind", kind, kinds)
    return kinds[kind]()


def describe(thing: Sequence[str], root: Path = Path("runs")) -> Row:
    """Describe a path, or a thing given by kind and name as ``readout NAME``.

    Raises:
        UnknownNameError: no such name.
        ConfigError: neither a path nor a kind and a name.
    """
    path = Path(thing[0])
    if len(thing) == 1 and path.exists():
        return _path(path)
    kinds = _described(root)
    if len(thing) == 2 and thing[0] in kinds:
        return kinds[thing[0]](thing[1])
    raise ConfigError(
        f"{' '.join(thing)!r} is no path that exists; give one, or a kind and a name: "
        f"{', '.join(kinds)}"
    )


def _described(root: Path) -> dict[str, Callable[[str], Row]]:
    """Return by kind what describes a thing of that name."""

    def registered(registry: Registry[Any]) -> Callable[[str], Row]:
        return lambda name: _registered(registry, name)

    return {
        **{kind: registered(registry) for kind, registry in REGISTRIES.items()},
        "recipe": _recipe,
        "study": lambda name: outcomes.study_named(name, root),
        "prompts": outcomes.prompts_named,
        "organism": lambda name: outcomes.organism_named(name, root),
    }


def _recipe(name: str) -> Row:
    from workbench.directions.recipe import recipe_path

    path = recipe_path(name)
    return {"name": name, "path": str(path), "recipe": path.read_text(encoding="utf-8")}


def verify_path(path: Path) -> Row:
    """Check a file or folder against its own checksums.

    Raises:
        FormatError: what is damaged, and how to mend it.
        ConfigError: nothing there that carries checksums.
    """
    from workbench.activations import verify
    from workbench.directions import open_directions, open_map
    from workbench.directions.map_io import is_map
    from workbench.interventions.io import is_intervention, load_intervention
    from workbench.pipelines.corpora import is_corpus, verify_corpus

    if not path.exists():
        raise ConfigError(f"{str(path)!r} does not exist; give a store, a run folder or a file")
    if path.suffix == ".safetensors" and is_intervention(path):
        saved = load_intervention(path)
        return {"format": "intervention", "edits": len(saved.edits), "layers": len(saved.layers)}
    if path.suffix == ".safetensors" and is_map(path):
        kept = open_map(path)
        return {"format": "linear map", "name": kept.name, "layers": len(kept.layers)}
    if path.suffix == ".safetensors":
        found = open_directions(path)
        return {"format": "directions", "names": len(found.names), "layers": len(found.layers)}
    if path.suffix == ".h5" or (path / "manifest.json").exists() or (path / "acts").is_dir():
        return dict(verify(path))
    if is_corpus(path):
        return verify_corpus(path)
    names = ("directions.safetensors", "map.safetensors", "results.parquet")
    parts = [path / name for name in names if (path / name).exists()]
    parts += sorted((path / "directions").glob("*.safetensors"))
    if not parts:
        raise ConfigError(f"{path} holds no store, directions or results that could be checked")
    return {part.name: _whole(part) for part in parts}


def _whole(path: Path) -> str:
    if path.suffix == ".safetensors":
        return ", ".join(f"{key} {value}" for key, value in verify_path(path).items())
    from workbench.results import read_results

    return f"{len(read_results(path))} rows"


def _kinds(root: Path) -> dict[str, Callable[[], list[Row]]]:
    def registered(registry: Registry[Any]) -> Callable[[], list[Row]]:
        return lambda: [{"name": n, "about": _about(registry.factory(n))} for n in registry.names()]

    found = {f"{kind}s": registered(registry) for kind, registry in REGISTRIES.items()}
    return {
        **found,
        "prompts": lambda: [{"name": n, "path": str(p)} for n, p in item_sets().items()],
        "recipes": _recipes,
        "studies": _studies,
        "organisms": lambda: _organisms(root),
        "corpora": lambda: _corpora(root),
        "runs": lambda: _runs(root),
    }


def _recipes() -> list[Row]:
    from workbench.directions import shipped_recipes

    return [{"name": name, "path": str(path)} for name, path in shipped_recipes().items()]


def _studies() -> list[Row]:
    from workbench.pipelines.study import shipped_studies

    return [{"name": name, "path": str(path)} for name, path in shipped_studies().items()]


def _corpora(root: Path) -> list[Row]:
    from workbench.pipelines.corpora import corpora_rows

    return corpora_rows(root)


def _runs(root: Path) -> list[Row]:
    return [
        {
            "id": run.id,
            "verb": run.verb,
            "status": run.status,
            "started": run.started,
            "models": ", ".join(run.models),
            "path": str(path),
            "note": _note(path, run),
        }
        for path, run in list_runs(root).items()
    ]


def _note(path: Path, run: Run) -> str:
    """Say in one line why a run is not done, and of one that was interrupted how to go on."""
    if run.status == "interrupted":
        kept = kept_in(path)
        return f"the same command goes on; kept: {kept}" if kept else "the same command begins anew"
    why = run.config.get("error") if run.status == "unreadable" else run.error
    return first_line(why)


def _organisms(root: Path) -> list[Row]:
    from workbench.pipelines.fleets import organism_rows

    return organism_rows(root)


def _registered(registry: Registry[Any], name: str) -> Row:
    factory = registry.factory(name)
    needs = ", ".join(getattr(factory, "needs", ()))
    told = {"needs": needs} if needs else {}
    if registry is METHODS:
        told["gives"] = getattr(factory, "gives", "direction")
    return {
        "name": name,
        "parameters": _parameters(registry, name),
        **told,
        "about": inspect.getdoc(factory) or "",
        "file": f"{factory.__module__}",
    }


def _parameters(registry: Registry[Any], name: str) -> str:
    """Return the settings of a method or readout; of an edit, what who steers or sweeps gives."""
    if registry is not EDITS:
        return str(inspect.signature(registry.factory(name)))
    from workbench.interventions.thresholds import numbers_taken

    return numbers_taken(name)


def _about(factory: Callable[..., Any]) -> str:
    return (inspect.getdoc(factory) or "").partition("\n")[0]


def _path(path: Path) -> Row:
    if path.suffix == ".safetensors":
        return _safetensors(path)
    if path.suffix == ".parquet":
        return outcomes.table_row(path)
    if path.suffix == ".h5" or (path / "manifest.json").exists():
        return _store(path)
    if (path / "run.json").exists():
        return outcomes.run_row(path, _store)
    if (path / outcomes.HEADLINE).exists():
        return outcomes.study_row(path)
    if path.is_dir() and not list(path.glob("*.pt")):
        raise FormatError(f"{path} is neither a run folder nor a store, and holds no .pt files")
    return _foreign(path)


def _safetensors(path: Path) -> Row:
    """Tell our own files from those of other programs by what the header says."""
    from workbench.directions.exchange import recognise
    from workbench.directions.map_io import is_map
    from workbench.interventions.io import is_intervention

    if is_intervention(path):
        return _intervention(path)
    own = is_map(path) or recognise(path) == "directions"
    return _directions(path) if own else _foreign(path)


def _foreign(path: Path) -> Row:
    from workbench.directions.exchange import describe_foreign

    return describe_foreign(path)


def _intervention(path: Path) -> Row:
    """Say what each edit does, and how to do the same without this package."""
    from workbench.interventions.io import load_intervention
    from workbench.interventions.snippet import plain_code

    saved = load_intervention(path)
    try:
        code = plain_code(saved, str(path))
    except ConfigError as error:  # an edit from a plug-in
        code = f"none: {error}"
    return {
        "name": saved.name,
        "model": saved.model.key,
        "edits": "\n".join(f"  {_edit(edit)}" for edit in saved.edits),
        "made of": "; ".join(as_json(one) for one in saved.info.get("made_of", [])),
        "plain transformers code": code,
    }


def _edit(edit: LayerEdit) -> str:
    """Say in one line what an edit does; a dose is in raw units, along a vector of length one."""
    rows = "".join(f", {name} {value:g}" for name, value in edit.rows.items())
    arrays = "".join(f", {name} {array.shape}" for name, array in edit.weights.items())
    return f"block {edit.layer}: {edit.name}, dose {edit.dose:g}{rows}{arrays}, scope {edit.scope}"


def _directions(path: Path) -> Row:
    from workbench.directions import open_directions, open_map
    from workbench.directions.map_io import is_map

    found = open_map(path) if is_map(path) else open_directions(path)
    return {
        "names": ", ".join(found.names),
        "layers": f"{found.layers[0]} to {found.layers[-1]} ({len(found.layers)})",
        "site": found.site,
        "position": found.position,
        "kind": found.kind,
        "model": found.model.key,
        "quantization": found.model.quantization,
        "info": ", ".join(sorted(found.info)),
    }


def _store(path: Path) -> Row:
    from workbench.activations import open_activations

    acts = open_activations(path)
    return {
        "items": len(acts),
        "layers": f"{acts.layers[0]} to {acts.layers[-1]} ({len(acts.layers)})",
        "site": acts.site,
        "position": acts.position,
        "columns": ", ".join(acts.columns),
        "model": acts.model.key,
        "quantization": acts.model.quantization,
    }
