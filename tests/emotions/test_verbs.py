"""The verbs sift, emotions and profiles, and the rollouts that they begin with."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from workbench.activations import Activations, open_activations
from workbench.directions import open_directions
from workbench.emotions import read_emotions
from workbench.errors import ConfigError, MismatchError, UnknownNameError
from workbench.linalg import cosine
from workbench.pipelines.report_emotion import emotion_rows, gaps_text
from workbench.pipelines.report_emotion_study import dose_verdicts, write_study_page
from workbench.pipelines.study import Unit
from workbench.pipelines.verbs import carry_out, plan
from workbench.prompts import PromptSet, read_prompts
from workbench.transcripts import Transcripts, read_transcripts, write_transcripts

EMOTIONS = read_emotions()
TAKE = {"emotions": ["joy", "calm", "anger", "fear"], "topics": ["storm", "market", "bridge"]}


@pytest.fixture(scope="module")
def model(tiny_folder, tmp_path_factory):
    return str(tiny_folder(tmp_path_factory.mktemp("emotions") / "model"))


def story(emotion, topic, number):
    """A text with a word of its own for each emotion and each topic."""
    body = f"{emotion[::-1]} {topic[::-1]} went on and on, {number} times over, until it was dark. "
    return (body + f"{emotion[::-1]} again. ") * 2


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Two stories of each emotion and topic, one of which names its emotion, and dialogues."""
    folder, rows, answers = tmp_path_factory.mktemp("written"), [], []
    for emotion in TAKE["emotions"]:
        for topic in TAKE["topics"]:
            for number in range(3):
                rows.append({"id": f"{emotion}/{topic}/{number}", "text": "Write.", "kind": "story",
                             "emotion": emotion, "topic": topic})  # fmt: skip
                named = f" It was {EMOTIONS[emotion].feels}." if number == 2 else ""
                answers.append(story(emotion, topic, number) + named)
    write_transcripts(_transcripts(rows, answers), folder / "stories.parquet")
    rows = [{"id": f"d{n}", "text": "Write.", "kind": "dialogue", "topic": topic}
            for n, topic in enumerate(TAKE["topics"] * 4)]  # fmt: skip
    answers = [f"Person: What is {n} of it?\nAI: It is {n * 7}, as a rule." for n in range(12)]
    write_transcripts(_transcripts(rows, answers), folder / "dialogues.parquet")
    return folder


def _transcripts(rows, answers):
    prompts = PromptSet.from_records(rows)
    return Transcripts.of(prompts, answers, generator="m", sampling={}, seeds=range(len(rows)))


@pytest.fixture(scope="module")
def made(model, written, tmp_path_factory):
    """Every stage from transcripts to emotion vectors on the tiny model."""
    root, stages = tmp_path_factory.mktemp("runs"), {}
    device = {"model": model, "device": "cpu", "dtype": "float32"}
    for name in ("stories", "dialogues"):
        told = {**device, "transcripts": str(written / f"{name}.parquet"), "min_tokens": 12}
        stages[name] = carry_out("sift", told, root=root)
        start = "[8:]" if name == "stories" else ""
        told = {**device, "prompts": str(stages[name].path / "texts.jsonl"), "render": "bare",
                "position": f"mean:content{start}"}  # fmt: skip
        stages[f"{name} read"] = carry_out("cache", told, root=root)
    read = {name: str(stages[f"{name} read"].path) for name in ("stories", "dialogues")}
    told = {"stories": read["stories"], "neutral": read["dialogues"], "window": 2,
            "draws": 20, "permutations": 100, "folds": 3}  # fmt: skip
    stages["emotions"] = carry_out("emotions", told, root=root)
    return {**stages, "settings": told, "root": root}


def test_sifted_texts_name_no_emotion_and_outcomes_are_counted(made):
    texts = read_prompts(made["stories"].path / "texts.jsonl")
    assert len(texts) == 24
    assert all(
        not EMOTIONS[emotion].pattern.search(text)
        for text, emotion in zip(texts.items, texts.column("emotion"), strict=True)
    )
    assert texts.column("tokens").min() >= 12
    assert made["stories"].result["outcomes"] == {"kept": 24, "names the emotion": 12}
    counts = pd.read_parquet(made["stories"].path / "counts.parquet")
    assert counts.groupby("outcome")["n"].sum().to_dict() == {"kept": 24, "names the emotion": 12}
    dialogues = read_prompts(made["dialogues"].path / "texts.jsonl")
    assert all(text.startswith("Human: ") and "\nAssistant: " in text for text in dialogues.items)


def test_the_whole_path_leaves_vectors_that_read_held_out_topics(made):
    run = made["emotions"]
    assert run.result["emotions"] == 4
    assert run.result["auc"] > 0.9  # each emotion has a word of its own
    curves = pd.read_parquet(run.path / "curves.parquet")
    assert set(curves["variant"]) == {"denoised", "raw", "random control"}
    vectors = open_directions(run.path / "emotions.safetensors")
    assert vectors.names == tuple(name for name in EMOTIONS if name in TAKE["emotions"])
    assert len(vectors.info["window"]) == 2
    assert vectors.info["layer"] in vectors.info["window"]
    assert vectors.position == "last"  # where they are read; made from stories
    assert vectors.info["extracted_at"] == "mean:content[8:]"
    for name in ("similarity", "valence", "geometry", "coordinates", "reference", "counts"):
        assert len(pd.read_parquet(run.path / f"{name}.parquet"))


def test_composites_and_singles_are_files_of_their_own(made):
    run = made["emotions"]
    vectors = open_directions(run.path / "emotions.safetensors")
    composite = open_directions(run.path / "composite.safetensors")
    units = vectors.unit_vectors()
    rows = {name: vectors.names.index(name) for name in ("anger", "fear", "joy")}
    expected = units[:, rows["anger"]] + units[:, rows["fear"]] - units[:, rows["joy"]]
    np.testing.assert_allclose(composite.vectors[0], expected, atol=1e-5)
    assert run.result["composite"] == {"anger": 1, "fear": 1, "joy": -1}
    assert run.result["left_out"] == ["disgust"]
    singles = open_directions(run.path / "singles.safetensors")
    lengths = np.linalg.norm(singles.vectors, axis=-1)
    np.testing.assert_allclose(lengths, run.result["raw_unit"], rtol=1e-4)
    assert list(singles.layers) == vectors.info["window"]


def test_an_emotions_run_is_reused_and_planned(made):
    again = carry_out("emotions", made["settings"], root=made["root"])
    assert again.status == "reused"
    told = plan("emotions", made["settings"], root=made["root"]).result
    assert (told["stories"], told["emotions"], told["topics"], told["fewest"]) == (24, 4, 3, 6)


@pytest.fixture(scope="module")
def fixed(plant, write_acts, tmp_path_factory):
    """A run whose window was fixed at blocks without any emotion; others read them well."""
    folder = tmp_path_factory.mktemp("fixed")
    planted = plant(active=(2, 3))
    told = {
        "stories": write_acts(folder / "s", planted.stories),
        "neutral": write_acts(folder / "n", planted.neutral),
        "draws": 20, "permutations": 100, "fixed": [0, 1],
    }  # fmt: skip
    return told, carry_out("emotions", told, root=folder)


def test_every_number_of_a_fixed_window_is_of_that_window(fixed):
    _, run = fixed
    curves = pd.read_parquet(run.path / "curves.parquet")
    own = curves.query("variant == 'denoised' and emotion == 'all' and chosen")
    assert own["layer"].tolist() == [0, 1]
    assert run.result["auc"] == pytest.approx(own["auc"].mean()) == pytest.approx(0.447, abs=0.01)
    assert (run.result["window"], run.result["chosen"]) == ("0-1", "fixed")
    info = open_directions(run.path / "emotions.safetensors").info
    assert (info["window"], info["window_fixed"]) == ([0, 1], True)
    assert info["window_auc"] == pytest.approx(run.result["auc"])
    page = (run.path / "report.md").read_text()
    assert "held-out AUC 0.447" in page
    assert "denoised: 0.447 in the window" in page
    assert "1.000" not in page.split("## By layer")[0]
    assert "chosen by it" not in page


def test_a_study_and_a_headline_tell_of_the_fixed_window(fixed, tmp_path):
    unit = (Unit("e", "emotions", (), {}), fixed[1])
    page = write_study_page([unit], {}, tmp_path).read_text().split("\n## ")[0]
    assert "- does not hold: vectors tell emotions apart" in page
    assert "at the fixed window" in page
    assert "0 of 6 emotions have an AUC interval above 0.5 in the window 0-1" in page
    row = next(iter(emotion_rows([unit])))
    assert row.value == pytest.approx(0.447, abs=0.01)
    assert "whole window 0.45" in row.control


def test_two_folds_leave_a_chosen_window_unjudged(fixed, tmp_path, run):
    told = {**fixed[0], "fixed": None, "folds": 2}
    made, again = (carry_out("emotions", told, root=tmp_path) for _ in range(2))
    assert again.status == "reused"
    assert made.result == again.result
    assert [made.result[name] for name in ("auc", "low", "high", "n")] == [None, None, None, 0]
    assert open_directions(made.path / "emotions.safetensors").info["window_auc"] is None
    for done in (made, again):
        unit = (Unit("e", "emotions", (), {}), done)
        page = write_study_page([unit], {}, tmp_path).read_text().split("\n## ")[0]
        assert "- not judged: no interval over topics, so nothing says whether vectors tell" in page
        assert "nan" not in page
        row = next(iter(emotion_rows([unit])))
        assert np.isnan(row.value)
        assert row.interval.startswith("not judged: no topics are left")
    assert "held-out AUC not judged: no topics are left" in (made.path / "report.md").read_text()
    path = tmp_path / "two.toml"
    path.write_text("\n".join(f"{key} = {json.dumps(value)}" for key, value in told.items()
                              if value is not None))  # fmt: skip
    for words in ((), ("--json",)):
        code, said, _ = run("emotions", path, "--runs", tmp_path, *words)
        assert code == 0
    assert json.loads(said)["result"]["auc"] is None
    assert "NaN" not in said


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"fixed": [77]}, ConfigError, "layer 77 was not captured"),
        ({"fixed": []}, ConfigError, "no run of neighboring layers"),
        ({"fixed": [2, 2]}, ConfigError, "fixed: .2. stands twice"),
        ({"fixed": [3, 1]}, ConfigError, r"fixed = \[3, 1\]"),
        ({"fixed": [1, 3]}, ConfigError, r"fixed = \[1, 3\]"),
        ({"composite": {"angr": 1}}, UnknownNameError, "unknown emotion 'angr'.*'anger'"),
        ({"composite": {"anger": 2}}, ConfigError, "signs are 1 or -1"),
        ({"read_at": "middle"}, ConfigError, "middle"),
    ],
)
def test_wrong_settings_are_refused_dry_and_leave_nothing(fixed, tmp_path, wrong, error, message):
    told = {**fixed[0], **wrong}
    with pytest.raises(error, match=message):
        plan("emotions", told, root=tmp_path)
    with pytest.raises(error, match=message):
        carry_out("emotions", told, root=tmp_path)
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} <= {"run.json"}


def test_what_fails_after_the_curves_leaves_nothing_half_written(fixed, tmp_path):
    path = tmp_path / "flat.toml"
    lines = [f'{name} = {{ feels = "{name}", valence = 1, arousal = 1, forms = "" }}'
             for name in ("joy", "calm", "surprise", "anger", "fear", "sadness")]  # fmt: skip
    path.write_text("\n".join(lines))
    with pytest.raises(ConfigError, match="all 6 emotions have one valence"):
        carry_out("emotions", {**fixed[0], "emotions": str(path)}, root=tmp_path / "runs")
    written = {path.name for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    assert written <= {"run.json"}


def test_stores_that_do_not_belong_together_are_refused(made, plant, write_acts, tmp_path):
    planted = plant()
    other = write_acts(tmp_path / "neutral", planted.neutral)
    with pytest.raises(MismatchError):
        carry_out("emotions", {**made["settings"], "neutral": other}, root=tmp_path)
    with pytest.raises(ConfigError, match="no column 'emotion'"):
        carry_out("emotions", {"stories": other, "neutral": other}, root=tmp_path)
    own = write_acts(tmp_path / "stories", planted.stories)
    path = tmp_path / "few.toml"
    path.write_text('joy = { feels = "joyful", valence = 2, arousal = 1, forms = "" }')
    with pytest.raises(ConfigError, match="'anger', which has no marks"):
        carry_out(
            "emotions", {"stories": own, "neutral": other, "emotions": str(path)}, root=tmp_path
        )


def test_planted_neutral_components_are_gone_from_the_saved_vectors(
    plant, write_acts, names, tmp_path
):
    planted = plant(leak=6.0)
    told = {
        "stories": write_acts(tmp_path / "s", planted.stories),
        "neutral": write_acts(tmp_path / "n", planted.neutral),
        "explained": 0.9, "draws": 20, "permutations": 100,
    }  # fmt: skip
    run = carry_out("emotions", told, root=tmp_path)
    saved = {
        file: open_directions(run.path / f"{file}.safetensors")
        for file in ("emotions", "raw", "control")
    }
    order = [names.index(name) for name in saved["emotions"].names]
    for layer in (1, 2, 3):
        wanted = planted.emotion[order, layer].astype(np.float32)
        near = {file: np.diag(cosine(one.at(layer), wanted)).min() for file, one in saved.items()}
        assert near["emotions"] > 0.93
        assert max(near["raw"], near["control"]) < 0.85


@pytest.fixture(scope="module")
def fleet(made, write_acts, tmp_path_factory):
    """Stores of a base and four organisms whose A is moved along fear at every layer."""
    folder = tmp_path_factory.mktemp("fleet")
    vectors = open_directions(made["emotions"].path / "emotions.safetensors")
    rng = np.random.default_rng(0)
    items = rng.standard_normal((len(vectors.layers), 12, vectors.model.width))
    along = vectors.unit_vectors()[:, vectors.names.index("fear")]
    columns = {
        "half": np.array(["first", "second"] * 6),
        "id": np.array([f"i{n}" for n in range(12)]),
    }
    stores = []
    for name, amount in (("", 0), ("A-s0", 4), ("A-s1", 4), ("P-s0", 0), ("P-s1", 0)):
        h = items + 0.3 * rng.standard_normal(items.shape) + amount * along[:, None]
        stamp = replace(vectors.model, key=f"m+{name}" if name else "m")
        acts = Activations.from_values(h.astype(np.float32), columns, model=stamp)
        stores.append(write_acts(folder / (name or "base"), acts))
    return stores


def test_profiles_show_the_planted_gap_and_fit_a_contrast_on_the_first_half(made, fleet, tmp_path):
    run_of = made["emotions"].path
    files = [str(run_of / f"{name}.safetensors") for name in ("emotions", "composite")]
    told = {"directions": files, "acts": fleet, "draws": 200,
            "curves": str(run_of / "curves.parquet")}  # fmt: skip
    run = carry_out("profiles", told, root=tmp_path)
    gaps = pd.read_parquet(run.path / "gaps.parquet").set_index(["emotion", "window", "half"])
    fear = gaps.loc["fear"].xs("second", level="half")
    assert (fear["zgap"] > 1).all()
    assert (fear["zgap"] > fear["random95"]).all()
    assert (gaps.loc[("contrast", slice(None), "second"), "zgap"] > 1).all()
    curves = pd.read_parquet(run_of / "curves.parquet").query("variant == 'denoised'")
    curves = curves.set_index(["emotion", "layer"])
    for row in gaps.loc["fear"].reset_index().query("window == 'peak'").to_dict("records"):
        own = curves.loc[("fear", row["layer"])]
        assert (row["auc"], row["auc_low"]) == (own["auc"], own["low"])
        assert row["reads"] == (own["low"] > 0.5)
    assert gaps.loc["composite"]["auc"].isna().all()
    assert not gaps.loc["composite"]["reads"].any()
    profiles = pd.read_parquet(run.path / "profiles.parquet")
    assert set(profiles["emotion"]) == {*TAKE["emotions"], "composite", "contrast"}
    assert set(profiles["model"]) == {"A", "P"}
    assert len(pd.read_parquet(run.path / "profiles_by_seed.parquet")) == 2 * len(profiles)
    contrast = open_directions(run.path / "contrast.safetensors")
    assert contrast.info["emotions"] == ["anger", "fear", "joy"]
    assert contrast.info["window"] == list(open_directions(told["directions"][0]).info["window"])
    assert run.result["contrast"] == ["anger", "fear", "joy"]


def test_profiles_refuse_what_has_no_window_or_two_of_one_name(made, fleet, tmp_path):
    one = str(made["emotions"].path / "emotions.safetensors")
    copy = str(shutil.copy(one, tmp_path / "copy.safetensors"))
    for again, words in ((one, "directions: .* stands twice"), (copy, "two directions are called")):
        with pytest.raises(ConfigError, match=words):
            carry_out("profiles", {"directions": [one, again], "acts": fleet}, root=tmp_path)
    with pytest.raises(ConfigError, match="no organism of 'N'"):
        plan("profiles", {"directions": [one], "acts": fleet, "high": "N"}, root=tmp_path)
    told = plan("profiles", {"directions": [one], "acts": fleet}, root=tmp_path).result
    assert told["halves"] == {"first": 6, "second": 6}
    assert told["seeds"] == {"A": 2, "P": 2}


def _without(fleet, write_acts, folder, layers):
    """The same stores with fewer layers."""
    found = []
    for number, path in enumerate(fleet):
        acts = open_activations(path)
        values = np.stack([acts.at(layer) for layer in layers])
        columns = {name: acts.column(name) for name in ("half", "id")}
        part = Activations.from_values(values, columns, model=acts.model, layers=layers)
        found.append(write_acts(folder / f"part{number}", part))
    return found


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"window": [1, 1]}, ConfigError, "window: .1. stands twice"),
        ({"window": [0, 2]}, ConfigError, r"window = \[0, 2\] is no run"),
        ({"window": []}, ConfigError, r"window = \[\] is no run"),
        ({"window": [7]}, ConfigError, "directions .* window = .*layer 7 was not captured"),
        ({"high": "P"}, ConfigError, "high and low are both 'P'"),
        ({"contrast": ["angr"]}, UnknownNameError, "unknown emotion 'angr'.*'anger'"),
    ],
)
def test_profiles_refuse_wrong_settings_dry(made, fleet, tmp_path, wrong, error, message):
    told = {"directions": [str(made["emotions"].path / "emotions.safetensors")], "acts": fleet}
    with pytest.raises(error, match=message):
        plan("profiles", {**told, **wrong}, root=tmp_path)


def test_profiles_blame_the_stores_for_a_layer_that_they_lack(made, fleet, write_acts, tmp_path):
    told = {"directions": [str(made["emotions"].path / "emotions.safetensors")], "window": [1, 2]}
    told["acts"] = _without(fleet, write_acts, tmp_path, [0, 1])
    with pytest.raises(ConfigError, match=r"stores of acts, such as m \(.*hold no layer 2"):
        plan("profiles", told, root=tmp_path)


def test_profiles_refuse_one_organism_twice_and_what_does_not_differ(
    made, fleet, write_acts, tmp_path
):
    told = {"directions": [str(made["emotions"].path / "emotions.safetensors")]}
    again = str(shutil.copytree(fleet[1], tmp_path / "again/A-s0"))
    with pytest.raises(ConfigError, match=r"m\+A-s0 \(.*A-s0\) and m\+A-s0 \(.*both seed 0 of 'A'"):
        plan("profiles", {**told, "acts": [*fleet, again]}, root=tmp_path)
    acts = open_activations(fleet[1])
    stamp = replace(acts.model, key="m+P-s0")
    columns = {name: acts.column(name) for name in ("half", "id")}
    values = np.stack([acts.at(layer) for layer in acts.layers])
    copy = write_acts(tmp_path / "copy", Activations.from_values(values, columns, model=stamp))
    with pytest.raises(ConfigError, match=r"of condition 'A', and .* of 'P', have the same states"):
        plan("profiles", {**told, "acts": [*fleet[:2], copy]}, root=tmp_path)


def test_no_contrast_is_fitted_where_training_changed_nothing(made, fleet, write_acts, tmp_path):
    told = {"directions": [str(made["emotions"].path / "emotions.safetensors")], "draws": 200}
    told["acts"] = [
        write_acts(tmp_path / f"same{number}", _first_layer_alike(open_activations(path)))
        for number, path in enumerate(fleet)
    ]
    with pytest.raises(ConfigError, match="'A' and 'P' have the same mean state at layer 0"):
        carry_out("profiles", told, root=tmp_path / "runs")
    assert {one.name for one in (tmp_path / "runs").rglob("*") if one.is_file()} <= {"run.json"}
    run = carry_out("profiles", {**told, "contrast": []}, root=tmp_path / "runs")
    assert run.result["contrast"] == []


def _first_layer_alike(acts):
    values = np.stack([acts.at(layer) for layer in acts.layers])
    values[0] = np.random.default_rng(0).standard_normal(values[0].shape)
    columns = {name: acts.column(name) for name in ("half", "id")}
    return Activations.from_values(values, columns, model=acts.model)


def test_rollouts_ask_for_stories_and_dialogues_of_a_model(model, tmp_path):
    told = {"model": model, "kind": "stories", "take": {**TAKE, "stories": 2}, "device": "cpu",
            "max_new_tokens": 3}  # fmt: skip
    assert plan("rollout", told, root=tmp_path).result["chats"] == 4 * 3 * 2
    few = {"emotions": ["joy", "fear"], "topics": ["storm"]}
    run = carry_out("rollout", {**told, "take": few}, root=tmp_path)
    found = read_transcripts(run.path)
    assert found.columns["emotion"].tolist() == ["joy", "fear"]
    assert set(found.columns["kind"]) == {"story"}
    told = {**told, "kind": "dialogues", "take": {"topics": 3, "dialogues": 2}}
    assert plan("rollout", told, root=tmp_path).result["chats"] == 6
    with pytest.raises(UnknownNameError, match="unknown emotion 'joyy'"):
        plan("rollout", {**told, "kind": "stories", "take": {"emotions": ["joyy"]}}, root=tmp_path)


def test_the_command_line_tells_what_became_of_the_texts(run, model, written):
    words = ("sift", model, written / "stories.parquet", "--min-tokens", 12, "--device", "cpu")
    code, said, _ = run(*words)
    assert code == 0
    assert "24 of 36 texts: 24 kept, 12 names the emotion" in said
    code, said, _ = run(*words, "--json")
    assert json.loads(said)["result"]["outcomes"]["kept"] == 24


def test_stories_are_read_from_the_position_that_was_asked_for(made):
    acts = open_activations(made["stories read"].path)
    assert acts.position == "mean:content[8:]"
    assert set(acts.columns["emotion"]) == set(TAKE["emotions"])


def test_pages_and_headline_say_what_the_tables_hold(made, fleet, tmp_path):
    vectors = made["emotions"]
    told = {"directions": [str(vectors.path / "emotions.safetensors")], "acts": fleet, "draws": 200}
    run = carry_out("profiles", told, root=tmp_path)
    page = (vectors.path / "report.md").read_text()
    assert f"held-out AUC {vectors.result['auc']:.3f}" in page
    assert "| anger | 6 | 2 |" in page
    units = [(Unit("e", "emotions", (), {}), vectors), (Unit("p", "profiles", (), {}), run)]
    rows = list(emotion_rows(units))
    assert rows[0].value == vectors.result["auc"]
    assert [row.unit for row in rows[1:3]] == ["emotion", "emotion"]
    gaps = pd.read_parquet(run.path / "gaps.parquet")
    told = [row.question for row in rows[3:]]
    assert sum("along contrast" in question for question in told) == 2  # the peak and the window
    assert sum("along fear" in question for question in told) == 2
    assert len(told) < (gaps["half"] == "second").sum()  # what shows nothing is on the page alone
    said = gaps_text(run.path)
    assert said.startswith("A minus P in pooled standard deviations")
    beyond = said.split("(")[1].split(")")[0].split(", ")
    assert {"fear", "contrast"} <= set(beyond)
    assert "## Gaps" in (run.path / "report.md").read_text()


def test_the_page_of_a_study_says_what_holds_and_what_does_not(made, fleet, tmp_path):
    vectors = made["emotions"]
    files = [str(vectors.path / f"{name}.safetensors") for name in ("emotions", "composite")]
    told = {"directions": files, "acts": fleet, "draws": 200}
    told |= {"curves": str(vectors.path / "curves.parquet")}
    run = carry_out("profiles", told, root=tmp_path)
    units = [(Unit("e", "emotions", (), {}), vectors), (Unit("p", "profiles", (), {}), run)]
    page = write_study_page(units, {}, tmp_path).read_text()
    first = page.split("\n## ")[0]
    assert "- holds: vectors tell emotions apart on topics" in first
    assert f"AUC {vectors.result['auc']:.3f}" in first
    assert "- holds: organisms differ along vectors that read their emotion" in first
    geometry = pd.read_parquet(vectors.path / "geometry.parquet")
    own = geometry.query("variant == 'denoised' and planned and component == 1")
    holds = "holds" if own["p"].item() < 0.05 else "does not hold"
    assert f"- {holds}: PC1 goes with valence. r = {own['r'].item():+.2f}" in first
    assert "## Emotion vectors" in page
    assert "### Gaps" in page
    assert write_study_page([], {}, tmp_path) is None


def test_a_page_tells_slopes_that_could_not_be_judged_and_those_beyond_the_band():
    slopes = pd.DataFrame(
        {"direction": "composite", "layers": "1-3", "measure": ["transfer", "loglik", "loglik"],
         "condition": ["person", "P", "A"], "slope": [np.nan, 2.0, -1.0],
         "low": [np.nan, 1.0, -2.0], "high": [np.nan, 3.0, 0.5],
         "beyond_band": [False, True, True]}
    )  # fmt: skip
    found = SimpleNamespace(slopes=slopes)
    (line,) = dose_verdicts("doses", found)
    assert line.startswith("doses: 1 of 2 judged slopes are off zero and beyond the random band")
    assert "1 not judged" in line
    assert line.endswith("composite on loglik (P) +2.")
