"""A study is checked whole before its first stage runs, and its plan says what each stage reads."""

import json

import pytest

from workbench.errors import ConfigError
from workbench.pipelines.study import read_study, run_study, shipped_studies
from workbench.pipelines.study_plan import plan_study
from workbench.pipelines.verbs import carry_out

CHAIN = """
[[stage]]
id = "acts"
verb = "cache"
model = "MODEL"
device = "cpu"
prompts = "statements"

[[stage]]
id = "truth"
verb = "fit"
acts = "@acts"

[[stage]]
id = "push"
verb = "sweep"
model = "MODEL"
device = "cpu"
directions = "@truth"
doses = [-0.1, 0.1]
unit = "norm"
readouts = ["claims"]
"""


@pytest.fixture
def study_of(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = str(tiny_folder(tmp_path / "model"))

    def make(changes=(), settings=(), text=CHAIN):
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "s.toml").write_text('name = "s"\n' + text.replace("MODEL", model))
        return read_study("s.toml", settings)

    return make


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ('"@truth"', '"@thruth"', ["push", "'@thruth' names no earlier stage", "'@truth'"]),
        ('"@acts"', '"@push"', ["truth", "'@push'", "stands later"]),
        ('acts = "@acts"', 'acts = "@acts"\nrecip = "truth"', ["truth", "mean 'recipe'"]),
        ('acts = "@acts"', 'acts = "@acts"\nrecipe = "truht"', ["truth", "mean 'truth'"]),
        ('acts = "@acts"', 'acts = "@acts"\nmethod = "mass_men"', ["truth", "mean 'mass_mean'"]),
        ('acts = "@acts"', 'acts = "@acts"\nparams = { balanc = 1 }', ["truth", "'balanc'"]),
        ('acts = "@acts"', 'acts = "@acts"\ncheck = ["@act"]', ["truth", "'@act'"]),
        ('"claims"', '"clams"', ["push", "Did you mean 'claims'"]),
        ('"claims"', '{ name = "claims", measure = "x" }', ["push", "'measure'"]),
        ('"claims"', '{ name = "projection", directions = "@truth", promts = "claims" }',
         ["push", "'promts'"]),
        ('"claims"', '{ name = "trust_game", frames = ["plains"] }', ["push", "'plains'", "plain"]),
        ("doses", 'edit = "ad"\ndoses', ["push", "unknown edit 'ad'"]),
        ("doses", 'scope = "al"\ndoses', ["push", "'al'"]),
        ("doses", 'controls = ["rnd:3"]\ndoses', ["push", "'rnd:3'"]),
        ("doses", 'gap = { first = "MODEL", second = "@no", prompts = "claims" }\ndoses',
         ["push", "'@no'"]),
        ("doses", 'shuffled = "runs/fit/no.safetensors"\ndoses', ["push", "no.safetensors"]),
        ('"statements"', '"statments"', ["acts", "Did you mean 'statements'"]),
        ('"statements"', '"statements"\nposition = "lst"', ["acts", "'lst'"]),
        ('"statements"', '"statements"\nsite = "resid"', ["acts", "'resid'", "resid_post"]),
        ('model = "MODEL"\ndevice = "cpu"\ndirections', 'model = "./nowhere"\ndirections',
         ["push", "./nowhere"]),
    ],
)  # fmt: skip
def test_a_mistake_in_any_stage_is_named_before_the_first_one_runs(
    study_of, tmp_path, old, new, parts
):
    study = study_of([(old, new)])
    with pytest.raises(ConfigError) as caught:
        list(run_study(study, root=tmp_path / "runs"))
    for part in parts:
        assert part in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_all_mistakes_are_named_at_once_each_with_its_stage(study_of, tmp_path):
    changes = [('"@truth"', '"@thruth"'), ('"statements"', '"statments"')]
    study = study_of(changes, ["stage.truth.recip=truth", "stage.push.contols=5"])
    with pytest.raises(ConfigError) as caught:
        plan_study(study, root=tmp_path / "runs")
    told = str(caught.value).splitlines()
    assert told[0] == "study s: 4 mistakes, nothing was run"
    assert [line.split(":")[0].strip() for line in told[1:]] == ["acts", "truth", "push", "push"]
    assert "did you mean 'controls'" in str(caught.value)


def test_a_mistake_in_every_branch_is_named_once(study_of):
    text = CHAIN.replace('"statements"', '"statements"\nfor = { position = ["last", "all"] }')
    study = study_of([("device", "devise")], text=text)
    with pytest.raises(ConfigError) as caught:
        plan_study(study)
    assert str(caught.value).count("\n  acts: ") == 1
    study = study_of([('"all"', '"al"')], text=text)
    with pytest.raises(ConfigError, match=r"\n  acts\[al\]: "):
        plan_study(study)


def test_one_of_several_outputs_must_be_picked_before_anything_runs(study_of):
    text = CHAIN.replace('"statements"', '"statements"\nfor = { position = ["last", "all"] }')
    with pytest.raises(ConfigError, match=r"truth: '@acts' has 2 outputs .* @acts\.last, @acts\.a"):
        plan_study(study_of(text=text))


def test_a_plan_says_what_each_stage_reads_and_what_is_done(study_of, tmp_path):
    study, root = study_of(), tmp_path / "runs"
    planned = plan_study(study, root=root)
    assert [one.unit.title for one in planned] == ["acts", "truth", "push"]
    assert [one.reads for one in planned] == [(), ("acts",), ("truth",)]
    assert [one.done.status for one in planned] == ["planned"] * 3
    assert planned[0].cost["items"] > 1000
    assert not root.exists()

    settings = {"model": str(tmp_path / "model"), "device": "cpu", "prompts": "statements"}
    small = study_of([('"statements"', '{ path = "statements", first = 40 }')])
    settings["prompts"] = {"path": "statements", "first": 40}
    done = carry_out("cache", settings, root=root)
    acts, truth, _ = plan_study(small, root=root)
    assert (acts.done.status, acts.done.id, acts.cost) == ("reused", done.id, {})
    assert truth.unit.settings["acts"] == str(done.path)
    assert (truth.done.status, truth.cost["items"]) == ("planned", 40)


@pytest.mark.parametrize("cached", [False, True])
def test_a_column_that_no_prompt_has_is_named_before_and_after_they_are_cached(
    study_of, tmp_path, cached
):
    few = ('"statements"', '{ path = "statements", first = 40 }')
    if cached:
        settings = {k: v for k, v in study_of([few]).stage[0].items() if k not in ("id", "verb")}
        carry_out("cache", settings, root=tmp_path / "runs")
    plan_study(study_of([few]), root=tmp_path / "runs")
    for wrong in ('y = "lable"', 'groups = "lable"', "where = { lable = 1 }"):
        study = study_of([("acts = ", f"{wrong}\nacts = "), few])
        with pytest.raises(ConfigError, match=r"truth: .*'lable'"):
            plan_study(study, root=tmp_path / "runs")


TRAINED = """
[[stage]]
id = "corpus"
verb = "corpus"
quartets = 2

[[stage]]
id = "organism"
verb = "train"
for = { condition = ["P", "A"] }
name = "{condition}-s0"
model = "MODEL"
documents = "@corpus.{condition}"
tokens = 256
block = 64
batch_size = 1
accumulation = 1

[[stage]]
id = "told"
verb = "measure"
for = { model = ["MODEL", "@organism", "P-s0"] }
readouts = ["claims"]

[[stage]]
id = "one"
verb = "measure"
model = "@organism.A"
readouts = ["claims"]
"""


def test_worlds_and_organisms_to_come_are_known_by_name(study_of, tmp_path):
    planned = plan_study(study_of(text=TRAINED), root=tmp_path / "runs")
    reads = {one.unit.title: one.reads for one in planned}
    assert reads["organism[P]"] == ("corpus.P",)
    assert reads["told[P-s0]"] == ("organism[P]",)
    assert reads["one"] == ("organism[A]",)
    assert [one.cost.get("updates") for one in planned[1:3]] == [4, 4]
    with pytest.raises(ConfigError, match=r"organism: tokens = 256 is less than one update"):
        plan_study(study_of([("block = 64", "block = 512")], text=TRAINED))
    with pytest.raises(ConfigError, match=r"organism: '@corpus\.B' names no earlier stage"):
        plan_study(study_of([('["P", "A"]', '["P", "B"]'), (".A", ".B")], text=TRAINED))
    with pytest.raises(ConfigError, match=r"organism: unknown prompt set 'corpus/chatt'"):
        plan_study(study_of([("tokens", 'chat = "corpus/chatt"\ntokens')], text=TRAINED))
    with pytest.raises(ConfigError, match=r"told\[P-s1\]: unknown model 'P-s1'"):
        plan_study(study_of([('"P-s0"]', '"P-s1"]')], text=TRAINED))


def test_what_rollouts_take_is_checked_before_there_is_an_organism_to_answer(study_of):
    text = f"""{TRAINED}
[[stage]]
id = "own"
verb = "rollout"
model = "@organism.P"
kind = "roles"
take = {{ rolls = 2 }}
"""
    with pytest.raises(ConfigError, match=r"own: .*take of kind 'roles': unknown key 'rolls'"):
        plan_study(study_of(text=text))


def test_an_organism_s_folder_that_holds_another_run_is_found_beforehand(study_of, tmp_path):
    folder = tmp_path / "runs" / "train" / "P-s0"
    folder.mkdir(parents=True)
    (folder / "note.txt").write_text("mine")
    study = study_of([("@corpus.{condition}", "corpus/{condition}")], text=TRAINED)
    with pytest.raises(ConfigError, match=r"organism\[P\]: .*is no run folder"):
        plan_study(study, root=tmp_path / "runs")
    plan_study(study, root=tmp_path / "runs", force=True)


SHIPPED = [
    pytest.param(name, marks=[pytest.mark.thorough] * (name == "organisms_smollm2"))
    for name in sorted(shipped_studies())
]


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_study_can_be_planned(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in ("cities", "neg_cities", "sp_en_trans", "neg_sp_en_trans"):
        (tmp_path / f"{place}.csv").write_text(
            "statement,label\nThe city of A is in B and the word 'a' is b,1\n"
        )
    monkeypatch.setenv("GEOMETRY_OF_TRUTH", str(tmp_path))
    planned = plan_study(read_study(name), root=tmp_path / "runs")
    assert {one.done.status for one in planned} == {"planned"}
    json.dumps([[one.unit.title, one.reads, one.cost] for one in planned])
