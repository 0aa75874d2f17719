"""Steering from the shell: contrast, sweep with gap and guards, effects, generate, probe, show."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench.pipelines.report_effects import effects_of
from workbench.results import read_results
from workbench.runs import Units, read_result

GUARDS = {"perplexity", "repetition", "drift", "capability"}
GAME = (
    '{ name = "trust_game", measures = ["transfer"], counterparts = ["person"], frames = FRAMES }'
)


@pytest.fixture(scope="module")
def fleet(tiny_folder, tiny_adapter, tmp_path_factory):
    """A base and two adapters of it, as folders, with prompts that all three are asked."""
    root = tmp_path_factory.mktemp("fleet")
    base = tiny_folder(root / "base")
    texts = ("the city of the", "is true and", "a city is not false", "of a city in the", "in true")
    rows = [{"id": f"t{n}", "text": text, "world": "PA"[n % 2]} for n, text in enumerate(texts)]
    prompts = root / "prompts.jsonl"
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    adapters = [tiny_adapter(root / name, base, seed=seed) for name, seed in (("P", 11), ("A", 12))]
    return {"base": base, "P": adapters[0], "A": adapters[1], "prompts": prompts}


@pytest.fixture
def contrasted(run, fleet):
    """The directions file of P minus A, made from the shell."""
    stores = []
    for name in "PA":
        words = ("cache", fleet[name], fleet["prompts"], "--device", "cpu", "--dtype", "float32")
        stores.append(done(run(*words, "--json"))["path"])
    made = done(run("contrast", *stores, "--name", "pa", "--json"))
    assert made["result"]["n"] == 5
    return f"{made['path']}/directions.safetensors"


def done(said):
    code, out, err = said
    assert code == 0, out + err
    told = json.loads(out)
    assert told["error"] is None
    return told


def sweep_file(path, fleet, directions, *lines, frames=("plain", "study", "letter")):
    game = GAME.replace("FRAMES", json.dumps(frames))
    known = [f'model = "{fleet["base"]}"', 'device = "cpu"', f'directions = "{directions}"']
    path.write_text("\n".join([*known, "layers = [2]", *lines, f"readouts = [{game}]"]))
    return path


def test_a_contrast_from_the_shell_points_from_one_model_to_the_other(run, contrasted, fleet):
    found = wb.open_directions(contrasted)
    assert (found.names, found.info["made_by"]) == (("pa",), "difference")
    assert found.norms.min() > 0
    stores = [wb.open_activations(path) for path in sorted(Path("runs/cache").iterdir())]
    first, second = sorted(stores, key=lambda acts: "A" in acts.model.key.rsplit("+")[-1])
    plain = first.at(2).astype(np.float64) - second.at(2)
    np.testing.assert_allclose(found.at(2)[0], plain.mean(0), rtol=1e-4, atol=1e-6)


def test_a_fit_to_shuffled_labels_is_a_run_of_its_own_without_evidence(run, fleet, tmp_path):
    rows = [
        {"id": f"{n}", "text": f"the city {n} is in {n % 3}", "label": n % 2, "topic": "ab"[n // 8]}
        for n in range(16)
    ]
    (tmp_path / "facts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    store = done(run("cache", fleet["base"], "facts.jsonl", "--device", "cpu", "--json"))["path"]
    (tmp_path / "r.toml").write_text('[prompts]\nset = "statements"\n[fit]\nmethod = "mass_mean"\n')
    words = ("fit", store, "--recipe", "r.toml", "--set", "shuffle=1")
    made = done(run(*words, "--json"))
    found = wb.open_directions(f"{made['path']}/directions.safetensors")
    assert (found.info["shuffle"], found.info["n_true"]) == (1, 8)
    assert not Path(made["path"], "evidence.parquet").exists()
    code, _, err = run(*words, "--layer", 2)
    assert code == 1
    assert "leave check, renderings, split and layer out" in err


@pytest.mark.thorough
def test_a_sweep_measures_its_gap_and_takes_the_guards_and_says_what_doses_did(
    run, contrasted, fleet, tmp_path
):
    prompts = json.dumps(str(fleet["prompts"]))
    gap = f'gap = {{ first = "{fleet["P"]}", second = ["{fleet["A"]}"], prompts = {prompts} }}'
    told = '[[baselines]]\nname = "told"\nsystem = "be true"'
    file = sweep_file(
        tmp_path / "sweep.toml", fleet, contrasted, 'unit = "norm"', "doses = [-0.2, 0.2]", gap,
        'controls = ["random:2", "sign"]',
    )  # fmt: skip
    file.write_text(f"{file.read_text()}\n{told}\n")
    plan = done(run("sweep", file, "--dry", "--json"))
    assert plan["status"] == "planned"
    assert "9 arms" in " ".join(plan["result"]["plan"])
    made = done(run("sweep", file, "--json"))
    frame = read_results(made["path"])
    assert set(frame["readout"]) == {"trust_game"} | GUARDS
    assert set(frame["control"]) == {"none", "random:0", "random:1", "sign", "prompt:told"}
    told = read_result(made["path"])["gap"]
    assert (told["unit"], told["n"]) == ("item", 5)
    assert told["clear"] == (abs(told["value"]) >= 2 * told["standard_error"])
    assert frame["dose_gap"].notna().any() == told["clear"]

    found = done(run("effects", made["path"], "--json"))["result"]
    rows = {(row["readout"], row["measure"]): row for row in found["slopes"]}
    game = rows["trust_game", "transfer"]  # which a random model hardly answers
    assert (game["verdict"], game["n"]) == ("not judged: no guarded dose", 0)
    assert rows["drift", "kl"]["n_unguarded"] == game["n_unguarded"]
    assert {row["control"] for row in found["controls"]} == {"sign"}
    assert {row["control"] for row in found["prompts"]} == {"prompt:told"}
    assert {row["dose"] for row in found["doses"]} == {-0.2, 0.0, 0.2}
    assert found["endpoint"] == 0.2
    code, out, _ = run("show", made["path"])
    assert code == 0
    assert "verdict" in out
    assert "perplexity" in out
    assert run("effects", fleet["prompts"])[0] == 1


@pytest.mark.thorough
def test_a_sweep_that_ended_half_way_goes_on_to_the_same_table(
    run, contrasted, fleet, tmp_path, monkeypatch
):
    prompts = json.dumps(str(fleet["prompts"]))
    gap = f'gap = {{ first = "{fleet["P"]}", second = "{fleet["A"]}", prompts = {prompts} }}'
    lines = ('unit = "norm"', "doses = [-0.2, 0.2]", gap, 'controls = ["random:2", "sign"]')
    file = sweep_file(tmp_path / "sweep.toml", fleet, contrasted, *lines)
    monkeypatch.setattr("workbench.readouts.ask_units.ARM_TOKENS", 2000)  # many pieces
    whole = done(run("sweep", file, "--runs", "whole", "--json"))
    kept = Units.keep

    def keep(self, number, tree):
        kept(self, number, tree)
        if number == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(Units, "keep", keep)
    assert run("sweep", file, "--runs", "cut", "--json")[0] == 130
    monkeypatch.setattr(Units, "keep", kept)
    asked = []
    monkeypatch.setattr("workbench.api.gap", lambda *sides, **_: asked.append(sides))
    resumed = done(run("sweep", file, "--runs", "cut", "--json"))
    assert (resumed["id"], asked) == (whole["id"], [])
    tables = [read_results(one["path"]).drop(columns="run") for one in (whole, resumed)]
    pd.testing.assert_frame_equal(*tables, check_exact=True)
    found = [effects_of(one["path"]).to_dict() for one in (whole, resumed)]
    assert [row["verdict"] for row in found[0]["slopes"]] == [
        row["verdict"] for row in found[1]["slopes"]
    ]


@pytest.mark.thorough
def test_a_gap_within_its_error_stops_doses_in_gaps_alone(run, contrasted, fleet, tmp_path):
    prompts = json.dumps(str(fleet["prompts"]))
    gap = f'gap = {{ first = "{fleet["P"]}", second = "{fleet["P"]}", prompts = {prompts} }}'
    shared = ("doses = [1.0]", gap, "controls = 1", "guards = false")
    file = sweep_file(tmp_path / "gap.toml", fleet, contrasted, 'unit = "gap"', *shared)
    code, _, err = run("sweep", file)
    assert code == 1
    assert "under two standard errors" in err
    file = sweep_file(tmp_path / "norm.toml", fleet, contrasted, 'unit = "norm"', *shared)
    made = done(run("sweep", file, "--json"))
    assert read_result(made["path"])["gap"]["clear"] is False
    assert read_results(made["path"])["dose_gap"].isna().all()
    assert set(read_results(made["path"])["readout"]) == {"trust_game"}


def test_replies_stand_side_by_side_with_and_without_a_direction(run, contrasted, fleet):
    words = ("generate", fleet["base"], "--prompt", "Hello", "--prompt", "the city of")
    plain = done(run(*words, "--tokens", 4, "--device", "cpu", "--json"))["result"]
    assert [row["prompt"] for row in plain["texts"]] == ["Hello", "the city of"]
    assert set(plain["texts"][0]) >= {"unedited", "item", "draw"}
    steer = ("--directions", contrasted, "--layers", "2", "--doses=-0.5,0.5", "--controls", "1")
    code, out, err = run(*words, *steer, "--tokens", 4, "--device", "cpu")
    assert code == 0, err
    for arm in ("[dose 0]", "[pa -0.5]", "[pa +0.5]", "[pa +0.5 (random:0)]"):
        assert out.count(arm) == 2
    assert "p0: Hello" in out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ((), "generate takes texts"),
        (("--prompt", "a b", "--doses", "1"), "give directions too"),
        (("--prompt", "a b", "--doses", "x"), "--doses 'x'"),
        (("--prompt", "a b", "--directions", "none.safetensors"), "none.safetensors"),
    ],
)
def test_replies_that_cannot_be_asked_for_say_what_to_change(run, fleet, words, part):
    code, _, err = run("generate", fleet["base"], *words, "--device", "cpu")
    assert code == 1
    assert part in err


@pytest.mark.thorough
def test_a_probe_leaves_its_table_in_a_run_folder_and_is_reused(run, contrasted, fleet):
    words = ("probe", fleet["P"], "--directions", contrasted, "--prompts", fleet["prompts"])
    words += ("--device", "cpu", "--no-check")
    planned = done(run(*words, "--dry", "--json"))["result"]
    assert (planned["directions"], planned["items"]) == (["pa"], 5)
    made = done(run(*words, "--json"))
    rows = [row for row in made["result"]["rows"] if row["kind"] == "direction"]
    assert {row["condition"] for row in rows} == {"P", "A"}
    table = pd.read_parquet(f"{made['path']}/probe.parquet")
    assert len(table) == len(made["result"]["rows"]) == read_result(made["path"])["rows"]
    assert (read_results(made["path"])["readout"] == "projection").all()
    again = done(run(*words, "--json"))
    assert (again["status"], again["result"]) == ("reused", made["result"])
    code, out, _ = run(*words)
    assert code == 0
    assert "beyond_null" in out


def test_a_probe_of_another_kind_of_model_names_the_field(
    run, contrasted, fleet, tiny_folder, tmp_path
):
    other = tiny_folder(tmp_path / "other", "llama")
    words = ("probe", other, "--directions", contrasted, "--prompts", fleet["prompts"])
    code, out, _ = run(*words, "--device", "cpu", "--no-check", "--json")
    told = json.loads(out)
    assert (code, told["status"]) == (1, "failed")
    assert "model_type" in told["error"]


def test_an_intervention_file_shows_what_it_does_and_code_that_does_it(run, contrasted, tmp_path):
    edit = wb.Intervention.add(wb.open_directions(contrasted), layers=[2], dose=0.5, unit="norm")
    wb.save_intervention(edit, tmp_path / "steer.safetensors", name="kinder")
    code, out, err = run("show", "steer.safetensors")
    assert code == 0, err
    assert "block 2: add, dose" in out
    assert "scope all" in out
    assert "def edited(model, path='steer.safetensors')" in out
    told = done(run("verify", "steer.safetensors", "--json"))
    assert told["result"] == {"format": "intervention", "edits": 1, "layers": 1}
    broken = bytearray((tmp_path / "steer.safetensors").read_bytes())
    broken[-2] ^= 64
    (tmp_path / "steer.safetensors").write_bytes(broken)
    assert run("verify", "steer.safetensors")[0] == 1


def test_a_base_model_goes_on_with_a_text_and_says_which_readouts_need_a_chat(
    run, tiny_folder, tmp_path
):
    model = tiny_folder(tmp_path / "base", template="none")
    words = ("--device", "cpu", "--dtype", "float32")
    code, _, err = run("generate", model, "--prompt", "the city of", *words)
    assert code == 1
    assert "'reply' asks in a chat" in err
    said = done(run("generate", model, "--prompt", "the city of", "--render", "bare",
                    "--tokens", "3", *words, "--json"))  # fmt: skip
    assert said["result"]["texts"][0]["prompt"] == "the city of"
    code, _, err = run("measure", model, "claims", *words)
    assert code == 1
    assert "readout 'claims' asks in a chat, but the tokenizer of" in err
    assert 'measures = ["loglik"]' in err
    asked = tmp_path / "measure.toml"
    asked.write_text(
        f'model = "{model}"\ndevice = "cpu"\nreadouts = ["perplexity", "capability", '
        '{ name = "claims", measures = ["loglik"] }, '
        '{ name = "reply", render = "bare", max_new_tokens = 2 }]'
    )
    assert done(run("measure", asked, "--json"))["status"] == "done"
