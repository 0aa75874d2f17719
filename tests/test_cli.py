"""The command line: what it prints, its exit codes, and no traceback for what a user can fix."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import typer

from workbench import cli
from workbench.runs import read_run


@pytest.fixture
def statements(tmp_path):
    """Statements in three topics, both polarities, as a JSONL file."""
    rows = []
    for topic, letters in (("one", "ABCDEF"), ("two", "GHIJKL"), ("three", "MNOPQR")):
        for letter in letters:
            for label in (1, 0):
                for polarity in (1, -1):
                    text = f"the city of {letter} is{' not' if polarity < 0 else ''} in {label}."
                    truth = label if polarity > 0 else 1 - label
                    known = {"topic": topic, "polarity": polarity, "fact": letter, "label": truth}
                    rows.append({"id": f"{letter}{label}{polarity}", "text": text, **known})
    path = tmp_path / "statements.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


RECIPE = """
[prompts]
set = "statements"
[fit]
method = "mass_mean"
[check]
draws = 20
bootstrap = 100
"""


def test_cache_fit_measure_and_list_from_the_shell(run, tiny_folder, statements, tmp_path):
    model = tiny_folder(tmp_path / "model")
    code, out, _ = run("cache", model, statements, "--device", "cpu", "--json")
    cached = json.loads(out)
    assert (code, cached["status"], cached["error"]) == (0, "done", None)
    assert (
        json.loads(run("cache", model, statements, "--device", "cpu", "--json")[1])["status"]
        == "reused"
    )

    (tmp_path / "recipe.toml").write_text(RECIPE)
    code, out, _ = run("fit", cached["path"], "--recipe", "recipe.toml", "--json")
    fitted = json.loads(out)
    assert code == 0, out
    evidence = pd.read_parquet(f"{fitted['path']}/evidence.parquet")
    assert set(evidence["polarity"]) == {1, -1, 0}
    assert np.isfinite(evidence["auc"]).all()

    code, out, _ = run("measure", model, "claims", "--device", "cpu")
    assert code == 0
    assert "95% t over items" in out

    code, out, _ = run("list", "runs")
    assert [line.split()[1] for line in out.splitlines()] == ["verb", "cache", "fit", "measure"]
    code, out, _ = run("show", fitted["path"])
    assert f"id: {fitted['id']}" in out
    assert "nulls" in out
    assert "null," not in out  # a setting that is not set
    assert run("fit", cached["path"], "--recipe", "recipe.toml")[1].splitlines()[1:] == (
        out.partition("found:\n")[2].partition("\nmodels:")[0].splitlines()
    )
    measured = next((tmp_path / "runs" / "measure").iterdir())
    assert "over items" in run("show", measured)[1]
    assert "items: 72" in run("show", cached["path"])[1]
    code, out, _ = run("verify", cached["path"])
    assert code == 0
    code, out, _ = run("pack", cached["path"], "packed.h5")
    assert run("verify", "packed.h5")[0] == 0


def test_a_sweep_file_writes_every_dose_and_its_controls(run, tiny_folder, statements, tmp_path):
    model = tiny_folder(tmp_path / "model")
    cached = json.loads(run("cache", model, statements, "--device", "cpu", "--json")[1])
    (tmp_path / "recipe.toml").write_text(RECIPE)
    fitted = json.loads(run("fit", cached["path"], "--recipe", "recipe.toml", "--json")[1])
    (tmp_path / "sweep.toml").write_text(
        f'model = "{model}"\ndevice = "cpu"\n'
        f'directions = "{fitted["path"]}/directions.safetensors"\n'
        'readouts = [{ name = "trust_game", measures = ["transfer"], counterparts = ["person"], '
        'frames = ["plain"] }]\ndoses = [-1.0, 1.0]\nunit = "norm"\ncontrols = 2\nguards = false\n'
    )
    code, out, err = run("sweep", "sweep.toml", "--dry")
    assert code == 0, out + err
    assert "1 request x 7 arms" in out
    assert "the plain way" in out
    assert "⟦" in out  # which tokens are edited, marked in the first prompts
    code, out, err = run("sweep", "sweep.toml", "--json")
    assert code == 0, out + err
    frame = pd.read_parquet(f"{json.loads(out)['path']}/results.parquet")
    assert set(zip(frame["control"], frame["dose"], strict=True)) == {
        ("none", -1.0), ("none", 0.0), ("none", 1.0),
        ("random:0", -1.0), ("random:0", 1.0), ("random:1", -1.0), ("random:1", 1.0),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("cache", "no-model", "statements"), ("no-model", "Give a hub id")),
        (("cache", "MODEL", "no-set"), ("unknown prompt set 'no-set'", "statements")),
        (("cache", "MODEL", "STATEMENTS", "--layers", "0,9"), ("9", "0 to 3")),
        (("cache", "MODEL", "STATEMENTS", "--layers", "x"), ("--layers 'x'",)),
        (("cache", "MODEL", "STATEMENTS", "--position", "last:judge"), ("judge",)),
        (("cache", "MODEL", "STATEMENTS", "--set", "layer=3"), ("layer", "did you mean 'layers'")),
        (("cache", "MODEL", "no-text.csv"), ("no column 'text'", "statement", "--text COLUMN")),
        (("cache", "MODEL", "twice.jsonl"), ("id 'a' stands 2 times",)),
        (("fit", "nowhere"), ("nowhere",)),
        (("measure", "MODEL", "trust"), ("unknown readout 'trust'", "trust_game")),
        (("sweep", "absent.toml"), ("absent.toml",)),
        (("sweep", "settings.json"), ("give the path of a .toml",)),
        (("run", "absent"), ("absent",)),
        (("show", "nothing"), ("'nothing' is no path",)),
        (("show", "method", "mass_men"), ("Did you mean 'mass_mean'",)),
        (("list", "method"), ("Did you mean 'methods'",)),
        (("verify", "nothing"), ("'nothing' does not exist",)),
        (("train", "no-docs", "--model", "MODEL"), ("no-docs",)),
        (("measure", "half-adapter", "claims"), ("half-adapter", "base")),
    ],
)
def test_a_mistake_is_named_with_the_next_step(
    run, words, parts, tiny_folder, statements, tmp_path
):
    model = tiny_folder(tmp_path / "model")
    (tmp_path / "no-text.csv").write_text("statement,label\nx,1\n")
    (tmp_path / "twice.jsonl").write_text('{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}\n')
    (tmp_path / "half-adapter").mkdir()
    (tmp_path / "half-adapter" / "adapter_config.json").write_text(
        '{"peft_type": "LORA", "base_model_name_or_path": "gone"}'
    )
    (tmp_path / "half-adapter" / "adapter_model.safetensors").write_bytes(b"x")
    names = {"MODEL": model, "STATEMENTS": statements}
    code, out, err = run(*[names.get(word, word) for word in words])
    assert (code, out) == (1, "")
    assert "Traceback" not in err
    for part in parts:
        assert part in err
    left = [path for path in tmp_path.rglob("*") if path.name.endswith((".tmp", ".part"))]
    assert left == []


def test_labels_of_one_class_are_refused_with_their_counts(run, tiny_folder, statements, tmp_path):
    model = tiny_folder(tmp_path / "model")
    rows = [json.loads(line) for line in statements.read_text().splitlines()]
    one = tmp_path / "one.jsonl"
    one.write_text("".join(json.dumps({**row, "label": 1}) + "\n" for row in rows))
    cached = json.loads(run("cache", model, one, "--device", "cpu", "--json")[1])
    code, _, err = run("fit", cached["path"])
    assert code == 1
    assert "label" in err
    assert str(len(rows)) in err


def test_a_truncated_shard_is_refused_with_the_way_to_mend_it(
    run, tiny_folder, statements, tmp_path
):
    model = tiny_folder(tmp_path / "model")
    cached = json.loads(run("cache", model, statements, "--device", "cpu", "--json")[1])
    (shard,) = (tmp_path / cached["path"]).glob("acts/shards/*.h5")
    shard.write_bytes(shard.read_bytes()[:-4096])
    for words in (("fit", cached["path"]), ("verify", cached["path"])):
        code, _, err = run(*words)
        assert code == 1
        assert shard.name in err
    again = json.loads(run("cache", model, statements, "--device", "cpu", "--json")[1])
    assert (again["status"], again["id"]) == ("done", cached["id"])
    assert run("verify", cached["path"])[0] == 0


def test_with_json_a_failure_is_an_object_too(run):
    code, out, _ = run("fit", "nowhere", "--json")
    said = json.loads(out)
    assert (code, said["verb"], said["status"]) == (1, "fit", "failed")
    assert "nowhere" in said["error"]


def test_with_json_wrong_usage_and_an_interruption_are_objects_too(run, monkeypatch):
    code, out, err = run("measure", "m", "--bogus", "--json")
    assert (code, json.loads(out)["status"]) == (2, "failed")
    assert "--bogus" in err

    def stopped(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("workbench.pipelines.verbs.carry_out", stopped)
    code, out, err = run("measure", "m", "claims", "--json")
    assert (code, json.loads(out)["error"]) == (130, cli.INTERRUPTED)
    code, out, err = run("measure", "m", "claims")
    assert (code, out) == (130, "")
    assert err.endswith("the same command resumes what it had begun\n")


BROKEN = """
from workbench.readouts.trust_game import TrustGame
from workbench.registry import READOUTS

@READOUTS.register("broken")
class Broken(TrustGame):
    def requests(self, subject):
        return [1 / 0]
"""


@pytest.mark.thorough
def test_with_json_an_error_that_nobody_foresaw_is_an_object_too_beside_its_traceback(
    tiny_folder, tmp_path
):
    model = tiny_folder(tmp_path / "model")
    (tmp_path / "broken.py").write_text(BROKEN)
    words = ["measure", model, "broken", "--plugin", "broken.py", "--device", "cpu", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", "from workbench.cli import main; main()", *words],
        capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
    )  # fmt: skip
    said = json.loads(done.stdout)
    assert (done.returncode, said["verb"], said["status"]) == (1, "measure", "failed")
    assert said["error"] == "ZeroDivisionError: division by zero"
    assert "Traceback" in done.stderr
    manifest = read_run(tmp_path / said["path"])
    assert (manifest.id, manifest.status) == (said["id"], "failed")
    assert manifest.error == said["error"]


@pytest.mark.parametrize(
    "words",
    [("list", "runs"), ("list", "prompts"), ("list", "studies"), ("list", "organisms"),
     ("show", "nothing"), ("fit", "nowhere"), ("cache", "a", "no-set"), ("cash",)],
)  # fmt: skip
def test_what_needs_no_model_does_not_wait_for_torch(words, tmp_path):
    code = (
        "import sys\nfrom workbench.cli import main\ntry: main()\nfinally:\n"
        "    print([m for m in ('torch', 'sklearn', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ("readouts=[]", ["readouts", "at least 1"]),
        ("readouts=[5]", ["readouts.0", "5"]),
        ('readouts=[{name="projection"}]', ["projection", "needs its parameter", "directions"]),
        ('readouts=[{name="trust_game", frames=5}]', ["trust_game", "5"]),
        ('readouts=[{name="trust_game", frames="plains"}]', ["frame 'plains'", "plain"]),
        ('readouts=[{name="trust_game", items="statements.jsonl"}]', ["no column 'branch'"]),
        ('readouts=[{name="claims", choice="statements.jsonl"}]', ["no key 'stem'"]),
    ],
)
def test_settings_of_a_readout_are_checked_before_the_model(run, statements, settings, parts):
    code, out, err = run("measure", "no-such-model", "claims", "--set", settings)
    assert (code, out) == (1, "")
    assert "Traceback" not in err
    for part in parts:
        assert part in err


@pytest.mark.parametrize("unit", ['unit = "gaps"', 'unit = "norms"', "doses = []", "controls = -1"])
def test_settings_of_a_sweep_are_checked_before_the_model(run, tmp_path, unit):
    known = {"model": '"m"', "directions": '"d"', "doses": "[1.0]", "readouts": '["claims"]'}
    known.pop(unit.split()[0], None)
    lines = [f"{key} = {value}" for key, value in known.items()]
    (tmp_path / "sweep.toml").write_text("\n".join([*lines, unit]))
    code, _, err = run("sweep", "sweep.toml")
    assert code == 1
    assert f"sweep: {unit.split()[0]}" in err


def test_dry_prints_the_plan_and_writes_nothing(run, tiny_folder, statements, tmp_path):
    model = tiny_folder(tmp_path / "model")
    code, out, _ = run("cache", model, statements, "--dry", "--json")
    planned = json.loads(out)
    assert (code, planned["status"]) == (0, "planned")
    assert planned["result"]["config"]["position"] == "last"
    code, out, _ = run("cache", model, statements, "--dry")
    told = out.splitlines()
    assert told[0].endswith(": to run")
    assert told[1].startswith("items: ")  # what it costs stands before what was set
    assert '  position = "last"' in told
    assert "null" not in out
    assert "revision" not in out
    assert not (tmp_path / "runs").exists()


def test_a_dry_study_says_what_each_stage_reads_and_costs(run, tmp_path):
    code, out, err = run("run", "demo", "--dry")
    assert code == 0, err
    told = out.splitlines()
    assert told[0] == "demo: 5 stages, 8 runs: 8 to run"
    assert told[told.index("truth: fit") + 1].startswith("  to run; reads statements; cost known")
    assert "  [P-s0] to run; reads organism[P], truth; cost known once that is there" in told
    assert "updates 16" in out
    code, out, _ = run("run", "demo", "--dry", "--json")
    runs = [one for stage in json.loads(out)["result"]["stages"] for one in stage["runs"]]
    assert [one["run"] for one in runs[:3]] == ["organism[P]", "organism[A]", "statements"]
    assert (runs[-1]["reads"], runs[-1]["path"], runs[-1]["status"]) == (["truth"], None, "planned")
    for words in (("--set", "stage.sweep.contols=5"), ("--set", "stage.sweep.contols=5", "--dry")):
        code, _, err = run("run", "demo", *words)
        assert code == 1
        assert "sweep: sweep: unknown key 'contols'; did you mean 'controls'" in err
    assert "Did you mean 'demo'" in run("run", "demmo")[2]
    assert not (tmp_path / "runs").exists()


def test_a_rerun_of_an_interrupted_run_says_that_it_resumes(
    run, tiny_folder, tmp_path, monkeypatch
):
    model = tiny_folder(tmp_path / "model")
    (tmp_path / "six.jsonl").write_text(
        "".join(f'{{"id": "a{n}", "text": "word {n}"}}\n' for n in range(6))
    )
    words = ("cache", model, "six.jsonl", "--device", "cpu")

    def stopped(*_args, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("workbench.api.capture", stopped)
        assert run(*words)[0] == 130
    code, out, _ = run("list", "runs")
    assert "interrupted" in out
    assert "the same command begins anew" in out
    code, out, _ = run(*words, "--dry")
    assert out.splitlines()[0].endswith("resumes what an earlier run left")
    code, out, err = run(*words)
    assert (code, err.count("was interrupted; kept: ")) == (0, 1)
    assert "resuming runs/cache/" in err
    assert "resuming" not in run(*words)[2]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("cache", "no-model", "statements", "--dry"), "no-model"),
        (("cache", "MODEL", "no-text.csv", "--dry"), "no column 'text'"),
        (("measure", "MODEL", "trust_gam", "--dry"), "Did you mean 'trust_game'"),
    ],
)
def test_dry_refuses_what_the_run_would_refuse(run, words, part, tiny_folder, tmp_path):
    model = tiny_folder(tmp_path / "model")
    (tmp_path / "no-text.csv").write_text("statement,label\nx,1\n")
    code, _, err = run(*[model if word == "MODEL" else word for word in words])
    assert code == 1
    assert part in err
    assert not (tmp_path / "runs").exists()


def test_own_statements_in_a_csv_are_fitted_with_no_more_than_text_and_label(
    run, tiny_folder, tmp_path
):
    model = tiny_folder(tmp_path / "model")
    rows = [f"the city of {a} is in {b},{int(b == 'X')}" for a in "ABCDEFGH" for b in "XY"]
    (tmp_path / "own.csv").write_text("statement,truth\n" + "\n".join(rows) + "\n")
    words = ("cache", model, "own.csv", "--text", "statement", "--device", "cpu")
    assert json.loads(run(*words, "--dry", "--json")[1])["result"]["items"] == 16
    cached = json.loads(run(*words, "--json")[1])
    fit = ("fit", cached["path"], "--method", "mass_mean", "--y", "truth", "--json")
    planned = json.loads(run(*fit, "--dry")[1])["result"]
    assert (planned["items"], planned["resampled_by"]) == (16, "item")
    code, out, err = run(*fit)
    assert code == 0, out + err
    evidence = pd.read_parquet(f"{json.loads(out)['path']}/evidence.parquet")
    assert set(evidence["interval"]) == {"95% bootstrap over items"}
    code, out, _ = run(*fit, "--layer", "2")
    assert json.loads(out)["result"]["layer"] == 2


def test_two_shares_fill_one_store_and_the_last_one_closes_the_run(run, tiny_folder, tmp_path):
    model = tiny_folder(tmp_path / "model")
    rows = [json.dumps({"id": str(n), "text": f"the city number {n}"}) for n in range(300)]
    (tmp_path / "many.jsonl").write_text("\n".join(rows))
    words = ("cache", model, "many.jsonl", "--device", "cpu", "--json")
    first = json.loads(run(*words, "--shard", "1/2")[1])
    assert first["status"] == "part"
    code, _, err = run("fit", first["path"])
    assert code == 1
    assert "cache" in err
    assert json.loads(run(*words, "--shard", "0/2")[1])["status"] == "done"
    assert json.loads(run(*words)[1])["status"] == "reused"
    code, _, err = run(*words, "--shard", "2/2")
    assert code == 1
    assert "2/2" in err


@pytest.fixture
def small_units(monkeypatch):
    """Units of work of a few prompts."""
    monkeypatch.setattr("workbench.readouts.ask_units.PROMPT_TOKENS", 200)


@pytest.mark.thorough
@pytest.mark.parametrize("verb", ["measure", "sweep"])
def test_shares_of_a_readout_make_the_table_that_one_process_makes(
    run, tiny_folder, statements, tmp_path, small_units, verb
):
    model = tiny_folder(tmp_path / "model")
    words = ["measure", model, "claims", "--device", "cpu"]
    if verb == "sweep":
        cached = json.loads(run("cache", model, statements, "--device", "cpu", "--json")[1])
        (tmp_path / "recipe.toml").write_text(RECIPE)
        fitted = json.loads(run("fit", cached["path"], "--recipe", "recipe.toml", "--json")[1])
        (tmp_path / "sweep.toml").write_text(
            f'model = "{model}"\ndevice = "cpu"\nlayers = [[1], [2]]\nunit = "norm"\n'
            f'directions = "{fitted["path"]}/directions.safetensors"\ndoses = [1.0]\n'
            'readouts = [{ name = "trust_game", measures = ["transfer"], counterparts = '
            '["person"] }]\ncontrols = 1\n'
        )
        words = ["sweep", "sweep.toml"]
    whole = json.loads(run(*words, "--runs", "whole", "--json")[1])
    said = [json.loads(run(*words, "--shard", f"{n}/3", "--json")[1]) for n in (2, 0, 1)]
    assert [one["status"] for one in said] == ["part", "part", "done"]
    frames = [pd.read_parquet(f"{one['path']}/results.parquet") for one in (whole, said[-1])]
    pd.testing.assert_frame_equal(*frames)
    assert len(frames[0]) == said[-1]["result"]["rows"] > 30
    assert not list(tmp_path.glob("runs/*/*/.units"))
    assert json.loads(run(*words, "--shard", "2/3", "--json")[1])["status"] == "reused"


@pytest.mark.thorough
def test_a_measurement_that_ended_early_goes_on_with_what_is_left(
    run, tiny_folder, tmp_path, small_units, monkeypatch
):
    model = tiny_folder(tmp_path / "model")
    words = ("measure", model, "claims", "--device", "cpu", "--json")
    whole = json.loads(run(*words, "--runs", "whole")[1])
    from workbench.engine.hooks import HookRunner

    asked, real = [], HookRunner.answer

    def answer(self, subject, requests, *words, budget, **options):
        if len(asked) == 3:
            raise KeyboardInterrupt
        asked.append(tuple(request.item for request in requests))
        found = real(self, subject, requests, *words, budget=budget, **options)
        return replace(found, budget=budget // 2 if len(asked) == 2 else budget)

    monkeypatch.setattr(HookRunner, "answer", answer)
    assert run(*words)[0] == 130
    left, budgets = [], []

    def rest(self, subject, requests, *words, budget, **options):
        left.append(tuple(request.item for request in requests))
        budgets.append(budget)
        return real(self, subject, requests, *words, budget=budget, **options)

    monkeypatch.setattr(HookRunner, "answer", rest)
    code, out, _ = run(*words)
    assert code == 0
    assert len(left) > 3
    assert set(budgets) == {4096}  # as far as it had shrunk
    frames = [
        pd.read_parquet(f"{place}/results.parquet")
        for place in (whole["path"], json.loads(out)["path"])
    ]
    pd.testing.assert_frame_equal(*frames)
    assert not set(left) & set(asked)


@pytest.mark.thorough
def test_a_file_of_jobs_is_planned_and_fitted_by_two_workers(
    run, tiny_folder, statements, tmp_path
):
    model = tiny_folder(tmp_path / "model")
    cached = json.loads(run("cache", model, statements, "--device", "cpu", "--json")[1])
    (tmp_path / "recipe.toml").write_text(RECIPE)
    (tmp_path / "jobs.toml").write_text(
        f'[[job]]\nacts = "{cached["path"]}"\nrecipe = "recipe.toml"\n'
        'method = ["mass_mean", "ttpd"]\nlayer = [1, 2]\ntopic = "each"\n'
    )
    code, out, _ = run("fit", "jobs.toml", "--dry")
    assert code == 0
    assert out.splitlines()[1] == "fits: 12"
    assert "11: " in out.splitlines()[-1]
    code, out, err = run("fit", "jobs.toml", "--workers", "2", "--json")
    assert code == 0, out + err
    said = json.loads(out)
    assert (said["status"], said["result"]["jobs"]) == ("done", 12)
    assert len(list((tmp_path / said["path"] / "directions").iterdir())) == 6
    code, _, err = run("fit", "jobs.toml", "--workers", "some")
    assert code == 1
    assert "--workers" in err or "workers 'some'" in err
    code, out, _ = run("show", f"{said['path']}/evidence.parquet")
    assert code == 0


def test_the_doctor_passes_a_sound_model_and_a_broken_one_is_refused_at_load(
    run, tiny_folder, tmp_path, monkeypatch
):
    model = tiny_folder(tmp_path / "model")
    code, out, _ = run("doctor", model, "--device", "cpu", "--dtype", "float32")
    assert code == 0, out
    code, out, _ = run("doctor", model, "--device", "cpu", "--quick", "--json")
    assert json.loads(out)["status"] == "done"

    from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention

    whole = Qwen3Attention.forward

    def forgetful(self, *args, past_key_values=None, **options):
        return whole(self, *args, past_key_values=None, **options)

    monkeypatch.setattr(Qwen3Attention, "forward", forgetful)
    code, out, err = run("measure", model, "claims", "--device", "cpu")
    assert code == 1
    assert "cache" in err


def test_a_checkpoint_is_probed_with_a_readout(run, tiny_folder, tmp_path):
    model = tiny_folder(tmp_path / "model")
    words = ("probe", model, "--readout", "claims", "--device", "cpu", "--no-check")
    code, out, err = run(*words, "--json")
    assert code == 0, out + err
    rows = json.loads(out)["result"]["rows"]
    assert {row["kind"] for row in rows} == {"readout"}
    code, _, err = run("probe", model, "--no-check", "--device", "cpu")
    assert code == 1
    assert "nothing to probe with" in err


def test_a_recipe_is_shown_by_its_name(run):
    code, out, _ = run("show", "recipe", "truth")
    assert code == 0
    assert 'method = "ttpd"' in out


def test_every_command_says_in_one_whole_line_what_it_does():
    commands = typer.main.get_command(cli.app).commands
    cut = [name for name, one in commands.items() if one.get_short_help_str(62).endswith("...")]
    assert len(commands) > 30
    assert cut == []


def test_a_list_of_nothing_names_the_kinds_and_the_explorer_a_folder_that_is_not_there(run):
    code, out, _ = run("list")
    assert code == 0
    assert "methods, edits, readouts" in out
    code, _, err = run("explore", "nofolder")
    assert code == 1
    assert "no folder 'nofolder'" in err


def test_wrong_usage_ends_with_two(run):
    assert run("cache")[0] == 2
    assert run("cash")[0] == 2


@pytest.mark.parametrize(
    "kind", ["methods", "edits", "readouts", "engines", "recipes", "prompts", "studies"]
)
def test_each_kind_is_listed(run, kind):
    code, out, _ = run("list", kind)
    assert code == 0
    assert out.strip()


def test_a_registered_thing_is_described_by_its_parameters(run):
    code, out, _ = run("show", "readout", "trust_game")
    assert code == 0
    assert "counterparts" in out
    assert "needs: polarity\ngives: direction" in run("show", "method", "ttpd")[1]
