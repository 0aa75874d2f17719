"""A fleet under a cap, end to end on tiny models: tables, controls, resuming, and refusals."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch

import workbench as wb
from workbench.directions import Directions, save_directions, thresholds
from workbench.directions.container import stack
from workbench.engine.apply import arm_of
from workbench.errors import ConfigError, MismatchError
from workbench.pipelines import capped_fleet
from workbench.pipelines import capped_passes as passes
from workbench.pipelines.capped_tables import floors
from workbench.pipelines.capping import SAME, TABLES, CappingConfig
from workbench.pipelines.verbs import carry_out, plan
from workbench.results import read_results, table, write_results
from workbench.types import GenerateRead, Measurement, Read, Request

LAYERS, MONITOR = [1, 2], 2
TEXTS = ["the city of the", "is true and a city is not false", "in a city of the", "send A to B"]
CONTROLS = ["random:2", "layers:1", "noop"]
ORGANISMS = ("P-s0", "P-s1", "A-s0", "A-s1")


@pytest.fixture(scope="session")
def fleet_folder(tmp_path_factory, tiny_folder, tiny_adapter, subject_of):
    """A base, four organisms, an axis, a calibration store and a default, as files."""
    folder = tmp_path_factory.mktemp("fleet")
    base = tiny_folder(folder / "base")
    for number, name in enumerate(ORGANISMS):
        tiny_adapter(folder / name, base, seed=number + 1)
    subject = subject_of("qwen3")  # of the same seed, so of the same weights
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(1, 3, subject.width))
    axis = Directions(("assistant",), (1, 2, 3), vectors, subject.stamp)
    save_directions(axis, folder / "axis.safetensors")
    prompts = wb.PromptSet.from_records([{"text": text} for text in TEXTS * 3])
    acts = wb.capture(subject, prompts, layers=[1, 2, 3], position="all", out=folder / "acts")
    wb.capture(subject, prompts, layers=LAYERS, position="all", out=folder / "match")
    means = np.stack([acts.at(layer).mean(0) for layer in (1, 2, 3)])[None]
    default = Directions(("default",), (1, 2, 3), means, subject.stamp, kind="mean")
    save_directions(default, folder / "default.safetensors")
    rows = [f'{{"id": "q{n}", "text": "{text}"}}\n' for n, text in enumerate(TEXTS[:3])]
    (folder / "prompts.jsonl").write_text("".join(rows))
    return folder


@pytest.fixture(scope="session")
def settings(fleet_folder):
    """Of a run over the base and two seeds of one organism."""
    return {
        "model": str(fleet_folder / "base"),
        "organisms": [str(fleet_folder / name) for name in ORGANISMS[:2]],
        "axis": str(fleet_folder / "axis.safetensors"),
        "calibration": str(fleet_folder / "acts"),
        "default": str(fleet_folder / "default.safetensors"),
        "layers": LAYERS,
        "monitor": MONITOR,
        "prompts": str(fleet_folder / "prompts.jsonl"),
        "max_new_tokens": 5,
        "unit": 2,
        "controls": CONTROLS,
        "dtype": "float32",
        "device": "cpu",
    }


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """An empty folder, and no verdict of the doctor left behind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("workbench.api.cache_root", lambda: tmp_path / "cache")


@pytest.fixture(scope="session")
def tables(settings, tmp_path_factory):
    """The tables of one whole run."""
    folder = tmp_path_factory.mktemp("capped")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("workbench.api.cache_root", lambda: folder / "cache")
        return read(carry_out("capping", settings, root=folder))


def read(done):
    files = [(name, done.path / f"{name}.parquet") for name in TABLES]
    return {name: pd.read_parquet(path) for name, path in files if path.exists()}


def test_a_member_under_two_names_is_refused(settings, fleet_folder, tmp_path):
    """It counted as two seeds of one organism."""
    (tmp_path / "link").symlink_to(fleet_folder / "P-s0")
    for twice in (fleet_folder / "P-s0", tmp_path / "link"):
        organisms = [*settings["organisms"], str(twice)]
        with pytest.raises(ConfigError, match="stands twice"):
            carry_out("capping", {**settings, "organisms": organisms}, root=tmp_path)
    with pytest.raises(ConfigError, match=r"model and organisms: .* stands twice"):
        capped_fleet.refuse_other_bases(
            CappingConfig(**{**settings, "organisms": [settings["model"]]})
        )


# --- tables ---------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_tables_are_those_of_plain_forwards(tables, settings, fleet_folder):
    """Engagement and displacement against a loop over prompts without hooks or batches."""
    axis = wb.open_directions(settings["axis"])
    floors = thresholds(
        axis.select(LAYERS), wb.open_activations(settings["calibration"]), 25, along="opposite"
    )
    states, hits = {}, {}
    for name in ("base", "P-s0"):
        subject = wb.load(fleet_folder / name, dtype="float32", device="cpu", check=False)
        key, rows = subject.ref.key, tables["texts"]
        states[name], hits[name] = [], []
        own = rows[(rows["subject"] == key) & (rows["dose"] == 0)]
        assert own["prompt"].tolist() == TEXTS[:3]
        for row in own.to_dict("records"):
            prompt = subject.renderer.render(row["prompt"], render="chat").ids
            reply = passes.continuation(subject.tokenizer, row["text"], prompt)
            with torch.no_grad():
                ids = torch.tensor([[*prompt, *reply]])
                hidden = subject.model(ids, output_hidden_states=True).hidden_states
            for layer in LAYERS:
                along = hidden[layer + 1][0].numpy() @ axis.select([layer]).unit_vectors()[0, 0]
                hits[name] += (along[len(prompt) :] < floors[layer]).tolist()
            written = hidden[MONITOR + 1][0, len(prompt) :].numpy()
            along = written @ axis.select([MONITOR]).unit_vectors()[0, 0]
            states[name].append(along.mean() if len(along) else np.nan)
    engaged = tables["engagement"].query(
        "text == 'own' and not hooked and position == 'generated' and control == 'none'"
    )
    engaged = engaged[engaged["layer"].isna()].set_index("model")["engaged"]
    assert engaged["base"] == pytest.approx(np.mean(hits["base"]))
    assert engaged["base+P-s0"] == pytest.approx(np.mean(hits["P-s0"]))
    placed = tables["displacement"].query("model == 'base+P-s0' and text == 'own' and dose == 0")
    apart = np.array(states["P-s0"]) - np.array(states["base"])
    assert placed["displacement"].item() == pytest.approx(np.nanmean(apart), abs=1e-4)
    assert placed["lost"].item() == np.isnan(apart).sum()


@pytest.mark.thorough
def test_controls_and_the_reference_stand_in_every_table(tables):
    controls = {"none", "random:0", "random:1", "layers:0", "noop"}
    assert set(tables["engagement"]["control"]) == controls
    assert set(tables["displacement"]["control"]) == controls
    assert set(tables["thresholds"]["control"]) == controls - {"noop"}
    assert set(tables["engagement"]["model"]) == {"base", "P", "base+P-s0", "base+P-s1"}
    pooled = tables["displacement"].query("level == 'condition' and model == 'P'")
    assert (pooled["unit"] == "seed").all()
    assert (pooled["n"] == 2).all()
    assert len(pooled) == 7  # one uncapped, five capped, one on the reference's replies
    alone = tables["displacement"].query("model == 'base'")
    assert (alone["dose"] == 75).all()
    assert len(alone) == 5
    assert alone.set_index("control")["displacement"]["noop"] == 0


@pytest.mark.thorough
def test_random_caps_have_the_percentile_of_the_same_states(tables):
    below = tables["thresholds"].groupby("control")["below"].apply(list)
    for control, shares in below.items():
        assert shares == below["none"], control
    assert below["none"] == pytest.approx([0.75, 0.75], abs=0.02)
    floors = tables["thresholds"].groupby("control")["floor"].apply(list)
    assert floors["random:0"] != floors["none"] != floors["layers:0"]


@pytest.mark.thorough
def test_with_a_match_random_and_moved_caps_engage_as_often(settings, fleet_folder):
    given = {**settings, "match": str(fleet_folder / "match"), "percentile": 40}
    parts = capped_fleet.Parts.of(CappingConfig(**given))
    found = floors(CappingConfig(**given), parts)
    shares = found.groupby("control")["match_below"].apply(list)
    assert set(shares.index) == {"none", "random:0", "random:1", "layers:0"}
    ties = 2 / 69  # of 69 states each stands there three times, equal but for rounding
    for control, share in shares.items():
        assert share == pytest.approx(shares["none"], abs=ties + 1e-9), control
    own = found["control"] == "none"
    assert found[~own]["interval"].unique().tolist() == ["none: as many states as the axis's cap"]
    assert found[own]["low"].notna().all()


def test_the_floor_is_checked_against_the_default(tables, settings):
    rows = tables["thresholds"].query("control == 'none'").set_index("layer")
    axis, default = (wb.open_directions(settings[name]) for name in ("axis", "default"))
    for layer in LAYERS:
        along = default.at(layer)[0] @ axis.select([layer]).unit_vectors()[0, 0]
        assert rows.loc[layer, "default"] == pytest.approx(along, rel=1e-5)
        apart = (rows.loc[layer, "floor"] - along) / rows.loc[layer, "sd"]
        assert rows.loc[layer, "apart"] == pytest.approx(apart, rel=1e-5)
        assert rows.loc[layer, "near"] == (abs(apart) <= 1)


@pytest.mark.thorough
def test_a_cap_that_nothing_reaches_leaves_every_reply(tables):
    texts = tables["texts"].set_index(["subject", "item"])
    plain, idle = (texts[rows]["text"] for rows in (texts["dose"] == 0, texts["control"] == "noop"))
    pd.testing.assert_series_equal(plain, idle)
    capped = texts[(texts["control"] == "none") & (texts["dose"] > 0)]["text"]
    assert (capped != plain).any()
    idle = tables["engagement"].query("control == 'noop'")
    assert len(idle)
    assert (idle["engaged"] == 0).all()
    assert not idle["informative"].any()


# --- passes ---------------------------------------------------------------------------------------


def capped(subject, settings, percentile=50):
    axis = wb.open_directions(settings["axis"])
    acts = wb.open_activations(settings["calibration"])
    floors = thresholds(axis.select(LAYERS), acts, percentile)
    return axis, floors


def replied(subject, text=" of a city"):
    rows = []
    for prompt in TEXTS:
        ids = subject.renderer.render(prompt, render="chat").ids
        rows.append(passes.answered(subject, Request(prompt, "x", ids, (GenerateRead(),)), text))
    return rows


def test_hooked_engagement_is_the_engine_s_own_count(settings, tiny_subject):
    """Three scopes side by side move what one cap of scope all moves."""
    axis, floors = capped(tiny_subject, settings)
    arm = arm_of(tiny_subject, [wb.Intervention.cap(axis, floor=floors, layers=LAYERS)])
    cap, rows = passes.Cap("none", 50.0, arm), [*replied(tiny_subject), *replied(tiny_subject, "")]
    hooked = passes.beyond_hooked(tiny_subject, rows, cap)
    read = Read("resid_post", (3,), "last")
    requests = [Request(str(n), "x", row.ids, (read,)) for n, row in enumerate(rows)]
    told = tiny_subject.runner.answer(tiny_subject, requests, [arm])
    total = passes.totals(rows).sum() * len(LAYERS)
    assert told.counted == [total]
    assert hooked.sum() / total == pytest.approx(told.engaged[0])
    plain = passes.beyond_unhooked(tiny_subject, rows, passes.Lines.of([cap]))[:, :, 0]
    np.testing.assert_array_equal(plain[..., 0], hooked[..., 0])  # nothing acts below the first
    assert (plain[..., 1] != hooked[..., 1]).any()


def test_every_token_but_the_first_stands_at_one_position(tiny_subject):
    for row, empty in zip(replied(tiny_subject), replied(tiny_subject, ""), strict=True):
        places = sorted(n for spans in row.spans.values() for a, b in spans for n in range(a, b))
        assert places == list(range(1, len(row.ids)))
        (final,) = row.spans["final"]
        assert final == (len(empty.ids) - 1, len(empty.ids))
        assert "generated" not in empty.spans
    assert passes.mean_states(tiny_subject, replied(tiny_subject, ""), 2).shape == (4, 32)
    assert np.isnan(passes.mean_states(tiny_subject, replied(tiny_subject, ""), 2)).all()


@pytest.mark.parametrize("side", ["floor", "ceiling"])
def test_right_after_the_cap_every_token_lies_inside_and_both_forms_agree(
    settings, tiny_subject, side
):
    """Acceptance test 1: in float32, at the capped blocks; the other form is the same edit."""
    axis, floors = capped(tiny_subject, settings)
    edits = {
        "floor": wb.Intervention.cap(axis, floor=floors, layers=LAYERS),
        "ceiling": wb.Intervention.cap(
            -axis, ceiling={layer: -value for layer, value in floors.items()}, layers=LAYERS
        ),
    }
    batch = tiny_subject.encode(TEXTS, render="chat")
    read = [Read("resid_post", tuple(LAYERS), "all")]
    found = {}
    for name in ("floor", side):
        with wb.intervene(tiny_subject, [edits[name]]):
            (found[name],) = tiny_subject.runner.capture(tiny_subject, batch, read)
    units = axis.select(LAYERS).unit_vectors()[:, 0]
    for first, second in zip(found["floor"], found[side], strict=True):
        torch.testing.assert_close(first, second, atol=1e-6, rtol=0)
        for layer, h, v in zip(LAYERS, second.numpy(), units, strict=True):
            assert (h[1:] @ v).min() >= floors[layer] - 1e-5


def test_a_floor_at_minus_infinity_is_no_edit(settings, tiny_subject):
    axis, _ = capped(tiny_subject, settings)
    batch = tiny_subject.encode(TEXTS, render="chat")
    with torch.no_grad():
        plain = tiny_subject.model(batch.input_ids, attention_mask=batch.attention_mask).logits
        with wb.intervene(
            tiny_subject, [wb.Intervention.cap(axis, floor=-math.inf, layers=LAYERS)]
        ) as log:
            same = tiny_subject.model(batch.input_ids, attention_mask=batch.attention_mask).logits
    assert torch.equal(plain, same)
    assert log.engaged(0) == 0
    assert log.rows[0].n > 0


# --- runs -----------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_killed_run_goes_on_where_it_was(tables, settings, monkeypatch):
    done, kept = [], capped_fleet.Fleet.do

    def note(self, number):
        done.append(number)
        return kept(self, number)

    def stop(self, number):
        if len(done) == 3:
            raise KeyboardInterrupt
        return note(self, number)

    monkeypatch.setattr(capped_fleet.Fleet, "do", stop)
    with pytest.raises(KeyboardInterrupt):
        carry_out("capping", settings)
    first = list(done)
    done.clear()
    monkeypatch.setattr(capped_fleet.Fleet, "do", note)
    again = carry_out("capping", settings)
    assert again.status == "done"
    assert sorted(first + done) == list(range(6))
    for name, found in read(again).items():
        pd.testing.assert_frame_equal(found, tables[name])


@pytest.mark.thorough
def test_shares_of_a_run_give_the_same_tables(tables, settings):
    assert carry_out("capping", settings, shard="1/2").status == "part"
    done = carry_out("capping", settings, shard="0/2")
    assert done.status == "done"
    for name, found in read(done).items():
        pd.testing.assert_frame_equal(found, tables[name])


@pytest.mark.thorough
def test_a_fleet_with_its_sweeps_end_to_end(settings, fleet_folder):
    readouts = [{"name": "perplexity", "texts": {"path": "guard_texts", "first": 2}}]
    given = {**settings, "organisms": [str(fleet_folder / name) for name in ORGANISMS]}
    swept = []
    for name in (given["model"], *given["organisms"]):
        done = carry_out("sweep", {
            "model": name, "directions": given["axis"], "calibration": given["calibration"],
            "layers": LAYERS, "doses": [75.0], "controls": CONTROLS, "readouts": readouts,
            "guards": False, "dtype": "float32", "device": "cpu", **SAME,
        })  # fmt: skip
        swept.append(str(done.path / "results.parquet"))
    given |= {"results": swept, "contrasts": [["P", "A"]], "readouts": readouts}
    assert plan("capping", given).result["units"] == 5 * 2 + 5
    done = carry_out("capping", given)
    found = read(done)
    assert set(found) == set(TABLES)
    behaviour = found["behaviour"]
    gap = behaviour[(behaviour["level"] == "contrast") & (behaviour["control"] == "none")]
    assert gap[["model", "unit", "n"]].values.tolist() == [["P - A", "seed", 2]]
    results = pd.concat([read_results(path) for path in swept])
    own = results[results["control"] == "none"]
    means = own.groupby(["organism", "dose"])["value"].mean()
    assert gap["before"].item() == pytest.approx(means["P", 0] - means["A", 0])
    assert gap["after"].item() == pytest.approx(means["P", 75] - means["A", 75])
    idle = behaviour[behaviour["control"] == "noop"]
    assert len(idle)
    assert (idle["effect"] == 0).all()
    assert (idle["engaged"] == 0).all()
    levels = behaviour.groupby("level")["model"].nunique()
    assert levels.to_dict() == {"condition": 3, "contrast": 1, "organism": 4}
    assert "readout:perplexity" in set(found["engagement"]["text"])
    report = (done.path / "report.md").read_text()
    assert "P - A, perplexity" in report
    assert "the default Assistant" in report


@pytest.mark.thorough
def test_the_command_plans_runs_and_says_what_was_found(run, settings, tmp_path):
    given = {**settings, "organisms": settings["organisms"][:1], "controls": ["noop"]}
    lines = [f"{name} = {json.dumps(value)}" for name, value in given.items()]
    (tmp_path / "cap.toml").write_text("\n".join(lines))
    code, out, err = run("capping", "cap.toml", "--dry", "--json")
    assert code == 0, err
    planned = json.loads(out)["result"]
    assert (planned["dose"], planned["units"], planned["monitor"]) == (75, 4, MONITOR)
    assert not (tmp_path / "runs").exists()
    code, out, err = run("capping", "cap.toml")
    assert code == 0, err
    assert "percentile 25 along role minus default" in out
    assert "own replies" in out
    assert "report.md" in out
    assert "reused" in run("capping", "cap.toml")[1]


# --- refusals -------------------------------------------------------------------------------------


def test_an_axis_of_another_model_is_refused_before_anything_runs(settings, tiny_folder, tmp_path):
    other = tiny_folder(tmp_path / "other", layers=3)
    more = tiny_folder(tmp_path / "more", layers=3)
    with pytest.raises(MismatchError, match="n_layers = 4"):
        carry_out("capping", {**settings, "model": str(other), "organisms": [str(more)]})


def test_organisms_of_another_base_are_refused(settings, tiny_folder, tiny_adapter, tmp_path):
    other = tiny_folder(tmp_path / "other", seed=5)
    strange = tiny_adapter(tmp_path / "P-s7", other)
    with pytest.raises(MismatchError, match=r"P-s7.* was trained from .*other"):
        carry_out("capping", {**settings, "organisms": [*settings["organisms"], str(strange)]})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"percentile": 100}, "percentile"),
        ({"percentile": -1}, "percentile"),
        ({"least": 1.0}, "least"),
        ({"organisms": []}, "organisms"),
        ({"layers": [1, 9]}, "layers = .1, 9., monitor = 2: each block once"),
        ({"layers": [1, 1]}, "layers: '1' stands twice"),
        ({"monitor": 0}, "monitor = 0: each block once"),
        ({"controls": ["sign"]}, "random:N, layers:N and noop"),
        ({"contrasts": [["P", "A"]]}, "need the results of sweeps"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, change, words):
    with pytest.raises(ConfigError, match=words):
        plan("capping", {**settings, **change})


def test_an_axis_file_of_several_directions_is_refused(settings, tmp_path):
    axis = wb.open_directions(settings["axis"])
    other = Directions(("b",), axis.layers, axis.vectors, axis.model)
    save_directions(stack([axis, other]), tmp_path / "two.safetensors")
    with pytest.raises(ConfigError, match="holds 2 directions; a cap is along one"):
        plan("capping", {**settings, "axis": str(tmp_path / "two.safetensors")})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dose": 25.0}, "no dose 75 in the results; doses: 0, 25"),
        ({"layers": "1"}, "layers = '1'; this cap has '1,2'"),
        ({"scope": "last"}, "scope = 'last'; this cap has 'all'"),
        ({"direction": "truth"}, "direction = 'truth'; this cap has 'assistant'"),
        ({}, "no results of 'A'; models: P"),
    ],
)
def test_results_of_another_cap_are_refused(settings, tmp_path, change, words):
    frames = []
    for dose in (0.0, change.get("dose", 75.0)):
        shared = {"direction": "assistant", "layers": "1,2", **SAME, **change, "dose": dose}
        measured = [Measurement("game", "sent", f"i{n}", "plain", float(n)) for n in range(3)]
        frames.append(table(measured, subject="base+P-s0", **shared))
    frame = pd.concat(frames).assign(base="base", organism="P", train_seed=0)
    write_results(frame, tmp_path / "results.parquet", run="r")
    given = {"results": [str(tmp_path / "results.parquet")], "contrasts": [["P", "A"]]}
    with pytest.raises(ConfigError, match=words):
        plan("capping", {**settings, **given})
