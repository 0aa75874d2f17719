"""Settings and results as JSON: text or null for what is no finite number, never NaN itself."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from workbench.cli.say import emit
from workbench.errors import ConfigError
from workbench.pipelines.verb import Verb
from workbench.pipelines.verbs import carry_out
from workbench.plain import no_value, number, plain
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
