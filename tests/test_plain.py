"""Settings and results as JSON: text or null for what is no finite number, never NaN itself."""

import json
import math
import re
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from workbench.cli.say import emit
from workbench.errors import ConfigError
from workbench.pipelines.verb import Verb
from workbench.pipelines.verbs import carry_out
from workbench.plain import as_json, no_value, number, plain
from workbench.runs import read_result

ODD = {
    "nan": math.nan,
    "inf": [math.inf, -math.inf, 1.5],
    "array": np.array([1.0, np.nan]),
    "scalar": np.float32("nan"),
    "inside": {"deep": (math.nan, "text")},
}
NULL = {
    "nan": None,
    "inf": [None, None, 1.5],
    "array": [1.0, None],
    "scalar": None,
    "inside": {"deep": [None, "text"]},
}


def refused(constant):
    raise AssertionError(f"{constant} is no JSON")


def test_settings_keep_what_is_not_finite_as_text_and_results_as_null():
    assert plain(ODD)["inf"] == ["inf", "-inf", 1.5]
    assert plain(ODD, nonfinite=no_value) == NULL
    with pytest.raises(ConfigError, match="cannot stand in the settings"):
        plain({"one": object()})
    assert math.isnan(number(None))
    assert number(2) == 2.0


def test_what_is_printed_is_json(capsys, tmp_path):
    table = pd.DataFrame({"low": [0.5, math.nan]}).to_dict("records")
    emit("verb", "id", "done", tmp_path, {**ODD, "rows": table})
    said = json.loads(capsys.readouterr().out, parse_constant=refused)
    assert said["result"] == {**NULL, "rows": [{"low": 0.5}, {"low": None}]}
    assert said["path"] == str(tmp_path)


def test_a_run_gives_the_same_result_when_it_is_made_and_when_it_is_reused(tmp_path, monkeypatch):
    from workbench.pipelines import sifting

    made = Verb(sifting.SiftConfig, lambda _: [], lambda *_: ODD, dict)
    monkeypatch.setattr(sifting, "verb", lambda: made)
    told = {"model": "m", "transcripts": "t"}
    first, again = (carry_out("sift", told, root=tmp_path) for _ in range(2))
    assert (first.status, again.status) == ("done", "reused")
    assert first.result == again.result == read_result(first.path) == NULL
    json.loads((first.path / "run.json").read_text(), parse_constant=refused)


DIGESTS = {
    "workbench/activations/job.py", "workbench/activations/layout.py",
    "workbench/chat/replies.py", "workbench/models/stamp.py",
    "workbench/pipelines/capped_fleet.py", "workbench/pipelines/drift.py",
    "workbench/pipelines/fleets.py", "workbench/pipelines/jobs.py",
    "workbench/pipelines/judging.py", "workbench/pipelines/rollouts.py",
    "workbench/pipelines/screen.py", "workbench/readouts/ask_units.py",
    "workbench/runs/identity.py", "training/corpora/job.py", "training/pair_fit.py",
}  # fmt: skip
"""What dumps JSON only to hash or compare it, in the letters that older runs were named by."""
FINITE = {
    "workbench/plain.py": "where as_json is",
    "workbench/runs/units.py": "a private file, whose NaN comes back as NaN",
    "workbench/chat/wire.py": "a request; the settings refuse what is not finite",
    "workbench/chat/server.py": "checks those settings",
    "workbench/activations/embedding.py": "settings, whose NaN is text",
    "workbench/activations/shard.py": "a manifest that was read",
    "workbench/prompts.py": "text of a cell",
    "workbench/data/rows.py": "refuses what is not finite",
    "workbench/models/embedded.py": "texts",
    "workbench/pipelines/report.py": "texts",
    "workbench/cli/say.py": "null, and text for what has no JSON form",
    "workbench/engine/doctor.py": "a key of texts, hashed",
    "workbench/directions/io.py": "names, layers, a stamp",
    "workbench/directions/map_io.py": "names, layers, a stamp",
    "workbench/directions/exchange/control_vector.py": "names, layers, a stamp",
    "workbench/interventions/io.py": "a stamp",
    "apps/keys.py": "paths",
}


def test_whatever_writes_json_writes_it_without_nan():
    """NaN and Infinity are no JSON: a new place that writes some goes through `as_json`."""
    root = Path(__file__).parents[1]
    places = {
        str(path.relative_to(root))
        for folder in ("workbench", "training", "apps")
        for path in (root / folder).rglob("*.py")
        if re.search(r"\bjson\.dumps?\(", path.read_text(encoding="utf-8"))
    }
    assert places == DIGESTS | set(FINITE)
    assert json.loads(as_json(ODD), parse_constant=refused) == NULL
    with pytest.raises(ConfigError, match="cannot stand"):
        as_json({"one": object()})


def test_headers_logs_cards_and_rows_hold_no_nan(tmp_path):
    """Each was written as bare NaN, which jq, Rust and JavaScript refuse."""
    from workbench_training.organism import log_step, read_log, write_card

    from workbench.data.rows import dump_rows
    from workbench.directions import Directions, open_directions, save_directions
    from workbench.results import table
    from workbench.types import Measurement, ModelStamp

    stamp = ModelStamp("tiny", "llama", 2, 2, "0123456789abcdef", "fedcba9876543210")
    info = {"auc": math.nan, "each": [math.inf, 0.5]}
    made = Directions(("d",), (1,), np.ones((1, 1, 2), np.float32), stamp, info=info)
    path = save_directions(made, tmp_path / "d.safetensors")
    (length,) = struct.unpack("<Q", path.read_bytes()[:8])
    header = json.loads(path.read_bytes()[8 : 8 + length])["__metadata__"]
    told = json.loads(header["info"], parse_constant=refused)
    assert told == {"auc": None, "each": [None, 0.5]}
    assert math.isnan(number(open_directions(path).info["auc"]))

    write_card(tmp_path, {"loss": math.nan})
    json.loads((tmp_path / "card.json").read_text(), parse_constant=refused)
    log_step(tmp_path, {"step": 1, "loss": math.nan})
    assert read_log(tmp_path) == [{"step": 1, "loss": None}]
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump_rows([{"sd": math.nan}])
    row = Measurement("r", "m", "i", "", 1.0, extra={"sums": [-math.inf, np.float32(0.5)]})
    extra = table([row], subject=None)["extra"].iloc[0]
    assert json.loads(extra, parse_constant=refused) == {"sums": [None, 0.5]}
