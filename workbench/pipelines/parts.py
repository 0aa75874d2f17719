"""What verbs have in common: the files behind a model or a readout, and results on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.runs import OpenRun

if TYPE_CHECKING:
    import pandas as pd

    from workbench.types import Subject


def model_inputs(config: Any) -> list[Path]:
    """Return the folders whose content decides which model this is."""
    return paths_of([config.model, getattr(config, "adapter", None)])


def readout_inputs(readouts: Sequence[Any]) -> list[Path]:
    """Return the files that readouts name, in tables within their tables too."""
    tables = [readout for readout in readouts if isinstance(readout, Mapping)]
    values = [value for table in tables for value in table.values()]
    inner = readout_inputs(values) if values else []
    return [*paths_of([value for value in values if isinstance(value, str)]), *inner]


def paths_of(names: Sequence[str | None]) -> list[Path]:
    """Return those of the names that are files or folders here."""
    return [Path(name) for name in names if name and Path(name).exists()]


def listed(names: str | Sequence[str]) -> list[str]:
    """Return a name, or several, as a list."""
    return [names] if isinstance(names, str) else list(names)


WHO = ("subject", "readout", "measure", "condition", "item", "draw", "direction", "edit", "layers",
       "scope", "dose", "unit", "control")  # fmt: skip


def join_results(paths: Sequence[str | Path]) -> pd.DataFrame:
    """Read several results tables as one.

    Raises:
        ConfigError: two of them hold the same measurement, which would count twice.
    """
    import pandas as pd

    from workbench.results import read_results

    tables = [read_results(path).assign(_table=n) for n, path in enumerate(paths)]
    found = pd.concat(tables, ignore_index=True)
    told = found["extra"].map(lambda text: repr({k: v for k, v in sorted(json.loads(text).items())
                                                 if isinstance(v, str | int)}))  # fmt: skip
    first = found.groupby([*(found[name] for name in WHO), told], dropna=False)["_table"]
    twice = found[first.transform("min") != found["_table"]]
    if len(twice):
        row = twice.iloc[0]
        raise ConfigError(
            f"{len(twice)} measurements stand in two results, such as {row['readout']} "
            f"{row['measure']} of {row['item']!r} in {row['subject']} ({paths[row['_table']]} and "
            "one before it); they would count twice: give each model's results once"
        )
    return found.drop(columns="_table")


def save_results(frame: pd.DataFrame, subject: Subject, run: OpenRun) -> dict[str, Any]:
    """Write a results table, and return what the run says of it."""
    from workbench.results import write_results

    write_results(frame, run.path / "results.parquet", run=run.id)
    return {"model": subject.ref.key, "rows": len(frame), **weights_of(subject)}


def weights_of(subject: Subject) -> dict[str, Any]:
    """Say in which precision, and from what, the weights came."""
    return {"dtype": subject.ref.dtype, "quantization": subject.ref.quantization}
