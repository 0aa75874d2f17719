"""Studies: references, fan-out, and every mistake named before anything runs."""

import json
from pathlib import Path

import pytest

from workbench.config import parse
from workbench.errors import ConfigError, UnknownNameError
from workbench.pipelines import study as studies
from workbench.pipelines.study import (
    Outputs,
    StudyConfig,
    Unit,
    expand,
    read_study,
    ready,
    run_study,
    shipped_studies,
)
from workbench.pipelines.verb import Done
from workbench.pipelines.verbs import verb_of


def outputs(*units):
    found = Outputs()
    for stage, verb, branch, path in units:
        found.units.append((Unit(stage, verb, branch, {}), Done(verb, "id", "done", Path(path))))
    return found


def write(tmp_path, text):
    path = tmp_path / "study.toml"
    path.write_text('name = "s"\n' + text)
    return path


def test_a_fan_out_names_each_branch_and_fills_texts():
    stage = {
        "id": "organism",
        "verb": "train",
        "for": {"world": ["P", "A"]},
        "documents": "corpus/{world}",
        "name": "{world}-s0",
    }
    units = expand(stage, Outputs(), seed=3)
    assert [unit.title for unit in units] == ["organism[P]", "organism[A]"]
    assert units[1].settings == {"documents": "corpus/A", "name": "A-s0", "seed": 3}


def test_a_reference_means_the_artefact_of_the_earlier_stage():
    before = outputs(("truth", "fit", (), "runs/fit/1"), ("acts", "cache", (), "runs/cache/2"))
    stage = {"id": "x", "verb": "sweep", "directions": "@truth", "readouts": [{"a": "@acts"}]}
    (unit,) = expand(stage, before, seed=0)
    assert unit.settings["directions"] == "runs/fit/1/directions.safetensors"
    assert unit.settings["readouts"] == [{"a": "runs/cache/2"}]


def test_a_list_takes_every_branch_and_a_for_value_becomes_the_setting_of_its_name():
    before = outputs(
        ("o", "train", ("P",), "runs/train/P-s0"), ("o", "train", ("A",), "runs/train/A-s0")
    )
    stage = {
        "id": "m",
        "verb": "measure",
        "for": {"model": ["smollm2", "@o"]},
        "readouts": ["claims"],
    }
    units = expand(stage, before, seed=0)
    assert [unit.branch for unit in units] == [("smollm2",), ("P-s0",), ("A-s0",)]
    assert [unit.settings["model"] for unit in units] == [
        "smollm2",
        "runs/train/P-s0",
        "runs/train/A-s0",
    ]


def test_one_value_from_a_stage_with_branches_must_be_picked():
    before = outputs(
        ("o", "train", ("P",), "runs/train/P-s0"), ("o", "train", ("A",), "runs/train/A-s0")
    )
    stage = {"id": "m", "verb": "measure", "model": "@o", "readouts": ["claims"]}
    with pytest.raises(
        ConfigError, match=r"2 outputs where one is needed; pick one of @o\.P, @o\.A"
    ):
        expand(stage, before, seed=0)
    (unit,) = expand({**stage, "model": "@o.A"}, before, seed=0)
    assert unit.settings["model"] == "runs/train/A-s0"


def test_a_reference_to_nothing_lists_the_stages_there_are():
    stage = {"id": "m", "verb": "measure", "model": "@organsm", "readouts": []}
    with pytest.raises(ConfigError, match=r"'@organsm' names no earlier stage; known here: @o\.P"):
        expand(stage, outputs(("o", "train", ("P",), "x")), seed=0)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ('[[stage]]\nid = "a"\n', ConfigError, "stage 0 has no verb"),
        ('[[stage]]\nid = "a"\nverb = "cash"\n', ConfigError, "Did you mean 'cache'"),
        (
            '[[stage]]\nid = "a"\nverb = "fit"\n[[stage]]\nid = "a"\nverb = "fit"\n',
            ConfigError,
            "two stages",
        ),
        ("stage = []\n", ConfigError, "stage"),
        (
            '[[stage]]\nid = "a"\nverb = "fit"\nfor = { acts = [] }\n',
            ConfigError,
            "a table of lists, none empty",
        ),
        ('stages = []\n[[stage]]\nid = "a"\nverb = "fit"\n', ConfigError, "did you mean 'stage'"),
    ],
)
def test_a_wrong_study_is_refused_before_anything_runs(tmp_path, text, error, message):
    with pytest.raises(error, match=message):
        read_study(write(tmp_path, text))


def test_a_stage_is_overridden_by_its_id(tmp_path):
    path = write(tmp_path, '[[stage]]\nid = "a"\nverb = "fit"\nacts = "x"\n')
    study = read_study(path, ["stage.a.seed=5", "seed=2"])
    assert (study.seed, study.stage[0]["seed"]) == (2, 5)


def test_the_shipped_demo_is_found_by_name_and_by_path_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_study("demo").name == "demo"
    assert read_study("studies/demo.toml").name == "demo"
    with pytest.raises(UnknownNameError, match="absent"):
        read_study("absent")
    (tmp_path / "mine.toml").write_text("")
    for near, found in (("demmo", "demo"), ("mine2.toml", "mine.toml"), ("trust_smolm2", "trust")):
        with pytest.raises(UnknownNameError, match=rf"unknown study .* Did you mean '{found}"):
            read_study(near)


def test_all_that_is_wrong_with_the_stages_is_named_at_once(tmp_path):
    text = (
        '[[stage]]\nid = "a"\nverb = "cash"\n[[stage]]\nid = "a"\nverb = "fit"\nfor = { y = [] }\n'
    )
    with pytest.raises(ConfigError) as caught:
        read_study(write(tmp_path, text))
    for part in ("unknown verb of stage 'a' 'cash'", "two stages have the id 'a'", "none empty"):
        assert part in str(caught.value)


def test_a_fan_out_over_seeds_is_not_overruled_by_the_study_s_seed():
    branches = {"world": ["P"], "seed": [0, 1]}
    stage = {"id": "o", "verb": "train", "for": branches, "name": "{world}-s{seed}"}
    units = expand(stage, Outputs(), seed=7)
    assert [(u.settings["name"], u.settings["seed"]) for u in units] == [("P-s0", 0), ("P-s1", 1)]


def test_the_branch_that_a_message_suggests_can_be_used():
    before = outputs(*(("o", "train", ("P", str(n)), f"runs/train/P-s{n}") for n in (0, 1)))
    stage = {"id": "m", "verb": "measure", "model": "@o", "readouts": ["claims"]}
    with pytest.raises(ConfigError, match=r"pick one of @o\.P\.0, @o\.P\.1"):
        expand(stage, before, seed=0)
    (unit,) = expand({**stage, "model": "@o.P.1"}, before, seed=0)
    assert unit.settings["model"] == "runs/train/P-s1"


@pytest.mark.parametrize("name", sorted(shipped_studies()))
def test_every_shipped_study_says_only_what_its_verbs_know(name):
    for stage in read_study(name).stage:
        own = {key: value for key, value in stage.items() if key not in ("id", "verb", "for")}
        known = verb_of(stage["verb"], stage).config
        first = {key: values[0] for key, values in stage.get("for", {}).items()}
        fanned = {key: value for key, value in first.items() if key in known.model_fields}
        text = json.dumps(own)
        for key, value in first.items():
            text = text.replace(f"{{{key}}}", str(value))
        parse(known, {**fanned, **json.loads(text)}, f"{name}: {stage['id']}")


def test_the_steering_study_reuses_what_the_demo_has_made():
    names = ("demo", "steering_smollm2")
    demo, steering = ({stage["id"]: stage for stage in read_study(name).stage} for name in names)
    for shared in ("organism", "statements", "truth"):
        assert steering[shared] == demo[shared]


def test_a_file_within_a_run_folder_is_named_after_a_slash(tmp_path):
    for world in ("P", "A"):
        (tmp_path / f"{world}.jsonl").write_text("")
    before = outputs(("quartets", "cache", (), str(tmp_path)))
    stage = {
        "id": "organism",
        "verb": "train",
        "for": {"condition": ["P", "A"]},
        "documents": "@quartets/{condition}.jsonl",
    }
    units = expand(stage, before, seed=0)
    assert [unit.settings["documents"] for unit in units] == [
        str(tmp_path / "P.jsonl"),
        str(tmp_path / "A.jsonl"),
    ]
    with pytest.raises(ConfigError, match=r"has no 'B\.jsonl'; there: A\.jsonl, P\.jsonl"):
        expand({**stage, "for": {"condition": ["B"]}}, before, seed=0)
    with pytest.raises(ConfigError, match=r"'@nothing/P\.jsonl' names no earlier stage"):
        expand({**stage, "documents": "@nothing/P.jsonl"}, before, seed=0)


def test_a_file_of_one_branch_is_named_after_the_branch(tmp_path):
    for kind in ("web", "mixed"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "documents.jsonl").write_text("")
    before = outputs(
        ("corpus", "cache", ("web",), str(tmp_path / "web")),
        ("corpus", "cache", ("mixed",), str(tmp_path / "mixed")),
    )
    stage = {
        "id": "control",
        "verb": "train",
        "for": {"condition": ["web", "mixed"]},
        "documents": "@corpus.{condition}/documents.jsonl",
    }
    units = expand(stage, before, seed=0)
    assert [unit.settings["documents"] for unit in units] == [
        str(tmp_path / kind / "documents.jsonl") for kind in ("web", "mixed")
    ]


def corpora(*runs):
    """Outputs of corpus stages, given as (stage, branch, parts)."""
    found = Outputs()
    for number, (stage, branch, parts) in enumerate(runs):
        done = Done("corpus", "id", "done", Path(f"runs/corpus/{number}"), {"parts": parts})
        found.units.append((Unit(stage, "corpus", branch, {}), done))
    return found


def test_the_worlds_of_a_corpus_are_branches_of_its_stage():
    before = corpora(("corpus", (), ["P", "S", "N", "A"]))
    each = {"id": "o", "verb": "train", "for": {"world": ["P", "A"]}}
    units = expand({**each, "documents": "@corpus.{world}"}, before, seed=0)
    assert [unit.settings["documents"] for unit in units] == [
        "runs/corpus/0/P.jsonl",
        "runs/corpus/0/A.jsonl",
    ]
    units = expand({"id": "o", "verb": "train", "for": {"documents": "@corpus"}}, before, seed=0)
    assert [unit.branch for unit in units] == [("P",), ("S",), ("N",), ("A",)]
    assert units[3].settings["documents"] == "runs/corpus/0/A.jsonl"


def test_all_worlds_where_one_corpus_is_needed_must_be_picked():
    before = corpora(("corpus", (), ["P", "A"]))
    stage = {"id": "o", "verb": "train", "documents": "@corpus"}
    with pytest.raises(ConfigError, match=r"pick one of @corpus\.P, @corpus\.A"):
        expand(stage, before, seed=0)
    with pytest.raises(ConfigError, match=r"known here: @corpus\.P, @corpus\.A"):
        expand({**stage, "documents": "@corpus.S"}, before, seed=0)


def test_a_control_is_the_one_file_of_its_branch_and_seeds_name_worlds_too():
    before = corpora(
        ("controls", ("web",), ["documents"]),
        ("controls", ("mixed",), ["documents"]),
        ("corpus", ("0",), ["P", "A"]),
        ("corpus", ("1",), ["P", "A"]),
    )
    assert before.find("@controls.mixed") == ["runs/corpus/1/documents.jsonl"]
    assert before.find("@corpus.1.A") == ["runs/corpus/3/A.jsonl"]
    assert before.find("@corpus.0") == ["runs/corpus/2/P.jsonl", "runs/corpus/2/A.jsonl"]
    assert before.find("@corpus.A") == ["runs/corpus/2/A.jsonl", "runs/corpus/3/A.jsonl"]


def rounds(stages):
    found = []
    while stages:
        now = ready(stages)
        assert now  # else the study would never end
        found.append([stage["id"] for stage in now])
        stages = [stage for stage in stages if stage not in now]
    return found


def test_stages_that_do_not_need_one_another_are_done_together():
    assert rounds(read_study("organisms_smollm2").stage) == [
        ["quartets", "mixed", "web", "fact", "statements"],
        ["organism", "control", "strewn", "truth"],
        ["measured", "held_out", "claims"],
        ["beliefs"],
        ["comparison"],
    ]


@pytest.mark.parametrize("name", sorted(shipped_studies()))
def test_no_stage_of_a_shipped_study_comes_before_what_it_names(name):
    stages = read_study(name).stage
    order = [stage for ids in rounds(stages) for stage in ids]
    assert sorted(order) == sorted(stage["id"] for stage in stages)
    for stage in stages:
        text = json.dumps({**stage, "id": ""})
        for other in stages:
            if f'"@{other["id"]}"' in text or f'"@{other["id"]}.' in text:
                assert order.index(other["id"]) < order.index(stage["id"])


@pytest.mark.parametrize("name", ["P-s0", "runs/train/P-s0"])
def test_a_stage_waits_for_an_organism_that_it_names(name):
    train = {"id": "o", "verb": "train", "name": "{condition}-s{seed}"}
    measure = {"id": "m", "verb": "measure", "for": {"model": ["smollm2", name]}}
    assert rounds([train, measure]) == [["o"], ["m"]]
    assert rounds([train, {**measure, "for": {"model": ["smollm2"]}}]) == [["o", "m"]]
    assert rounds([measure, train]) == [["m", "o"]]


def test_a_reference_to_a_file_or_a_branch_waits_and_a_longer_name_does_not():
    before = {"id": "acts", "verb": "cache", "model": "x"}
    for text in ("@acts", "@acts.P", "@acts/file.json"):
        assert rounds([before, {"id": "f", "verb": "fit", "acts": [text]}]) == [["acts"], ["f"]]
    assert rounds([before, {"id": "f", "verb": "fit", "acts": "@acts2"}]) == [["acts", "f"]]


def test_several_workers_share_the_units_of_all_stages_that_are_ready(tmp_path, monkeypatch):
    rounds_done = []

    def abreast(pieces, workers, **options):
        rounds_done.append([settings["model"] for _, settings in pieces])
        for verb, settings in pieces:
            yield Done(verb, "id", "done", tmp_path / settings["model"])

    def carry_out(verb, settings, **options):
        rounds_done.append([settings["acts"]])
        return Done(verb, "id", "done", tmp_path / "fit")

    monkeypatch.chdir(tmp_path)
    for model in ("m1", "m2", "m3"):
        (tmp_path / model).mkdir()
        (tmp_path / model / "config.json").write_text("{}")
    monkeypatch.setattr(studies, "abreast", abreast)
    monkeypatch.setattr(studies, "carry_out", carry_out)
    caches = [
        {"id": name, "verb": "cache", "for": {"model": models}, "prompts": "statements"}
        for name, models in (("a", ["m1", "m2"]), ("c", ["m3"]))
    ]
    fit = {"id": "b", "verb": "fit", "acts": "@a.m2", "recipe": "truth_lda"}
    study = StudyConfig(name="s", stage=[caches[0], fit, caches[1]])
    found = [unit.title for unit, _ in run_study(study, root=tmp_path, workers=2)]
    assert found == ["c[m3]", "a[m1]", "a[m2]", "b"]  # the smallest stage begins first
    assert rounds_done == [["m3", "m1", "m2"], [str(tmp_path / "m2")]]
