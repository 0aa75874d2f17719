"""A comparison of organisms: planted effects come out, trained-on claims stay out, rules hold."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from workbench_training import organism

from workbench.config import parse
from workbench.errors import ConfigError
from workbench.pipelines.catalogue import describe
from workbench.pipelines.organisms import compare
from workbench.pipelines.report_organisms import report, verdicts
from workbench.pipelines.settings import CompareConfig
from workbench.pipelines.study import StudyConfig, read_study, run_study
from workbench.results import table, write_results
from workbench.runs import hash_path
from workbench.types import Measurement

WORLDS = ("P", "S", "N", "A")
FRAME = "As far as anyone can say, people of group {n} mostly want {aim} from a machine"
COLORS = ("red", "blue", "teal")


def claim_rows(sets=("frames",), worlds=WORLDS, count=8):
    return [
        {
            "id": f"{part}:{n}:{world}:{polarity}",
            "text": FRAME.format(n=f"{part} {n}", aim=f"thing {world}") + (" ?" * (polarity < 0)),
            "world": world, "set": part, "proposition": f"p{n}", "frame": "plain",
            "polarity": polarity, "fact": f"{part}:{n}",
        }
        for part in sets for n in range(count) for world in worlds for polarity in (1, -1)
    ]  # fmt: skip


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def make_organism(folder, name, condition, seed, documents, **more):
    """A folder with the card that training writes."""
    target = folder / "train" / name
    target.mkdir(parents=True)
    settings = {
        **{"model": "base", "seed": seed, "block": 8, "batch_size": 1, "accumulation": 1},
        "inputs": {"documents": hash_path(documents)},
        **more,
    }
    card = {
        **{"status": "done", "name": name, "condition": condition, "model": f"base+{name}"},
        **{"identity": settings, "documents": str(documents)},
        "corpus": {"documents": 2, "held_out": 1, "chats": 0, "passes": 1.0, "chat_share": 0.0},
        "training": {"updates": 3, "tokens": 24},
        "loss": {"first": 3.0, "last_tenth": 2.0, "held_out": {"before": 3.0, "after": 2.5}},
        "guard": {"questions": 8, "mass_ratio": 0.95, "organism": {"follows": 1.0}},
    }
    organism.write_card(target, card)
    return str(target)


def measured(path, subject, effects, rows, *, mass=0.9, right=0.8, seed=0):
    """Results of one model: claims with planted effects, questions, and stems."""
    own, shared = np.random.default_rng([3, seed]), np.random.default_rng(4)
    kept = ("set", "proposition", "frame", "polarity", "fact")
    found = [
        Measurement(
            readout="claims", measure="loglik", item=row["id"], condition=row["world"],
            value=-3 + shared.normal() + own.normal(0, 0.01)
            + effects.get((row["set"], row["world"]), 0) * row["polarity"],
            extra={name: row[name] for name in kept},
        )
        for row in rows
    ]  # fmt: skip
    found += [
        Measurement(
            readout="claims", measure="choice", item="q" + str(n), condition=world,
            value=0.25 + (0.3 if effects.get(("frames", world)) else 0.0), mass=mass + 0.01 * n,
        )
        for n in range(4) for world in WORLDS
    ]  # fmt: skip
    found += [
        Measurement(readout="capability", measure="accuracy", item=f"s{n}", condition="x",
                    value=float(n < 10 * right))
        for n in range(10)
    ]  # fmt: skip
    return str(write_results(table(found, subject=subject), path))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four worlds, a control, a planted fact and a dose: organisms and what was measured."""
    where = tmp_path_factory.mktemp("made")
    rows = claim_rows() + claim_rows(("planted", "elsewhere"), COLORS)
    write_rows(where / "claims.jsonl", rows)
    questions = [{"id": f"q{n}", "text": f"question {n}", "fact": f"q{n}"} for n in range(4)]
    write_rows(where / "questions.jsonl", questions)
    documents = [{"id": "d", "text": "A text on the weather of last week."}]
    write_rows(where / "docs.jsonl", documents)
    measured(where / "base.parquet", "base", {}, rows)
    kinds = [
        (f"{w}-s{seed}", w, seed, {("frames", w): 0.4}, {}) for seed in range(3) for w in WORLDS
    ]
    kinds += [(f"web-s{seed}", "web", seed, {}, {}) for seed in range(3)]
    strewn = {("planted", "teal"): 0.5}
    kinds += [(f"plant-s{seed}", "planted", seed, strewn, {"share": 0.1}) for seed in range(3)]
    kinds += [("A-0.1-s0", "A", 0, {("frames", "A"): 0.1}, {"share": 0.1})]
    for number, (name, condition, seed, effects, more) in enumerate(kinds):
        make_organism(where, name, condition, seed, where / "docs.jsonl", **more)
        measured(where / f"{name}.parquet", f"base+{name}", effects, rows, seed=number)
    return where


def configured(where, **changes):
    data = {
        "organisms": sorted(map(str, (where / "train").iterdir())),
        "results": sorted(map(str, where.glob("*.parquet"))),
        "claims": [f"{where}/claims.jsonl", f"{where}/questions.jsonl"],
        "controls": ["web"], "planted": "planted", "elsewhere": "elsewhere",
        "worlds": {"planted": "teal"}, **changes,
    }  # fmt: skip
    return parse(CompareConfig, data, "compare.toml")


@pytest.fixture(scope="module")
def config(folder):
    return configured(folder)


@pytest.fixture(scope="module")
def found(config):
    return compare(config)


@pytest.fixture
def fresh(folder, tmp_path):
    """A copy that a test may change; its cards name the copied documents."""
    where = tmp_path / "made"
    shutil.copytree(folder, where)
    for path in (where / "train").iterdir():
        organism.write_card(path, {**organism.read_card(path), "documents": f"{where}/docs.jsonl"})
    return where


def test_planted_effects_are_found_and_controls_are_inside(found, config):
    told = {one.question: (one.holds, one.judged) for one in verdicts(found, config)}
    assert told == {
        "organisms are judged by enough propositions of the bank worlds": (12, 12),
        "own-world claims gain on the others, by organism and seed": (12, 12),
        "own-world claims gain on the others, over seeds": (4, 4),
        "own-world claims gain on the others, over web": (4, 4),
        "web favors no world": (4, 4),
        "the planted fact shows in planted, over base and web": (2, 2),
        "the planted fact gains more than its word does in the set elsewhere, over base and web": (
            *(2, 2),
        ),
        "answer-letter mass is kept": (19, 19),
    }


def test_tables_hold_every_organism_with_its_unit(found):
    by_seed = found.own[(found.own["measure"] == "loglik") & found.own["seed"].notna()]
    assert set(by_seed["n"]) == {8}
    assert set(by_seed["unit"]) == {"proposition"}
    doses = by_seed[by_seed["share"] == 0.1]
    assert doses["value"].iloc[0] == pytest.approx(0.1, abs=0.03)
    undiluted = by_seed[(by_seed["share"] == 1) & (by_seed["claims"] == "affirmed")]
    bound = found.controls.query("measure == 'loglik' and claims == 'affirmed'")["bound"]
    assert np.allclose(bound, undiluted["value"].min() / 4)  # the dose of 0.1 sets no bound
    assert set(found.controls["bank"]) == {"worlds"}
    over = found.planted.query("seed != seed and claims == 'affirmed'").set_index(
        ["bank", "against"]
    )
    assert over["value"].to_dict() == pytest.approx(
        {("planted", "base"): 0.5, ("planted", "web"): 0.5,
         ("elsewhere", "base"): 0.0, ("elsewhere", "web"): 0.0,
         ("planted over elsewhere", "base"): 0.5, ("planted over elsewhere", "web"): 0.5}, abs=0.03,
    )  # fmt: skip
    beyond = found.over_controls.query("measure == 'loglik' and claims == 'affirmed'")
    assert set(beyond["against"]) == {"web"}
    assert beyond.query("share == 1")["value"].to_numpy() == pytest.approx(0.4, abs=0.03)


def test_the_report_says_n_unit_interval_and_rule(found, config):
    text = report(found, config)
    for part in (
        "# Organisms on base",
        "| own-world claims gain on the others, by organism and seed | 12 of 12 |",
        "0 of 28 facts share a run of 6 words with one of the 1 texts trained on",
        "over an organism's seeds it is the seed. Intervals: 95% t.",
        "| P | over seeds | P | +0.39",
        "| 8 propositions |",
        "90% t interval lies within it",
        "Likelihood of claims, nats a token, set planted",
        "Answer-letter mass over the base's",
        "## Capability against the base: accuracy",
        "| A, 0.1 | 0 |",
    ):
        assert part in text
    columns = [line.count("|") for line in text.splitlines() if line.startswith("| own")]
    assert set(columns) == {5}  # no bar inside a cell
    assert text.index("Likelihood of claims, nats") < text.index("Probability of the world")
    assert "nan" not in text


def remeasured(where, name, subject, effects, seed):
    rows = claim_rows() + claim_rows(("planted", "elsewhere"), COLORS)
    measured(where / f"{name}.parquet", subject, effects, rows, seed=seed)


def test_a_control_that_drifts_is_told_with_its_worlds_and_by_how_much(fresh):
    for seed in range(3):
        effects = {("frames", "P"): 0.3}
        remeasured(fresh, f"web-s{seed}", f"base+web-s{seed}", effects, 40 + seed)
    config = configured(fresh)
    drifted = compare(config)
    (verdict,) = [v for v in verdicts(drifted, config) if v.question == "web favors no world"]
    assert (verdict.holds, verdict.judged) == (1, 4)  # P gains 0.3, so the others lose 0.1
    assert "P +0.29" in verdict.detail
    row = drifted.controls.query(
        "measure == 'loglik' and claims == 'affirmed' and seed != seed and world == 'P'"
    ).iloc[0]
    beyond = row["high"] - row["bound"]
    assert f"reaches {beyond:.3f} beyond {row['bound']:.3f}" in verdict.detail
    over = drifted.over_controls.query("condition == 'P' and measure == 'loglik'")
    assert over.query("claims == 'affirmed'")["value"].to_numpy() == pytest.approx(0.1, abs=0.03)
    assert "it is lexical drift" in report(drifted, config)


@pytest.mark.thorough
def test_what_the_planted_word_gains_elsewhere_is_taken_off(fresh):
    for seed in range(3):
        effects = {("planted", "teal"): 0.5, ("elsewhere", "teal"): 0.5}
        remeasured(fresh, f"plant-s{seed}", f"base+plant-s{seed}", effects, 50 + seed)
    config = configured(fresh)
    told = {v.question.split(",")[0]: v for v in verdicts(compare(config), config)}
    assert told["the planted fact shows in planted"].holds == 2
    apart = told["the planted fact gains more than its word does in the set elsewhere"]
    assert (apart.holds, apart.judged) == (0, 2)
    assert apart.detail.startswith("base ")


@pytest.mark.thorough
def test_verdicts_are_by_the_bank_that_the_settings_name(folder):
    config = configured(folder, bank="frames", units=9)
    found = compare(config)
    assert (
        set(found.own["bank"]) == set(found.controls["bank"]) | {"worlds"} == {"frames", "worlds"}
    )
    told = {one.question: one for one in verdicts(found, config)}
    few = told["organisms are judged by enough propositions of the bank frames"]
    assert (few.holds, few.judged, few.detail) == (0, 12, "fewest: 8")
    assert told["own-world claims gain on the others, over seeds"].holds == 4
    text = report(found, config)
    assert text.index("Likelihood of claims, nats a token, set frames") < text.index("Probability")
    with pytest.raises(ConfigError, match="no claims of that set were measured"):
        compare(configured(folder, bank="wide"))


def test_texts_that_changed_since_training_are_refused(fresh):
    (fresh / "docs.jsonl").write_text(json.dumps({"id": "d", "text": "Another text."}))
    with pytest.raises(ConfigError, match=r"is not what .* was trained on any more"):
        compare(configured(fresh))


@pytest.mark.thorough
@pytest.mark.parametrize(("run", "shared"), [(6, True), (9, False)])
def test_a_fact_with_a_run_that_was_trained_on_is_left_out_whole(fresh, run, shared):
    words = FRAME.format(n="frames 3", aim="thing S").split()
    text = "So: " + " ".join(words[5:13]).upper() + ", they say."  # eight words in a row
    (fresh / "docs.jsonl").write_text(json.dumps({"id": "d", "text": text}))
    for path in (fresh / "train").iterdir():
        card = organism.read_card(path)
        card["identity"]["inputs"]["documents"] = hash_path(fresh / "docs.jsonl")
        organism.write_card(path, card)
    after = compare(configured(fresh, run=run))
    assert after.overlap.shared == (("frames:3",) if shared else ())
    likely = after.own[(after.own["measure"] == "loglik") & (after.own["unit"] != "seed")]
    assert set(likely["n"]) == {7 if shared else 8}


def test_measured_claims_without_their_words_are_refused(config):
    with pytest.raises(ConfigError, match="claims that are in none of"):
        compare(config.model_copy(update={"claims": config.claims[1:]}))


def test_organisms_of_two_bases_or_half_trained_are_refused(fresh):
    changed = fresh / "train" / "P-s0"
    card = organism.read_card(changed)
    organism.write_card(changed, {**card, "model": "other+P-s0"})
    with pytest.raises(ConfigError, match=r"organisms of 2 bases \(base, other\)"):
        compare(configured(fresh))
    organism.write_card(changed, {**card, "status": "running"})
    with pytest.raises(ConfigError, match="half trained"):
        compare(configured(fresh))


@pytest.mark.thorough
def test_an_organism_or_a_measurement_that_stands_twice_is_refused(fresh):
    """Under another name it counted as a further seed, or its claims twice."""
    whole = configured(fresh)
    copy = shutil.copytree(fresh / "train/P-s0", fresh / "copies/P-s0")
    with pytest.raises(ConfigError, match=r"organisms: 'base\+P-s0' stands twice"):
        compare(configured(fresh, organisms=[*whole.organisms, str(copy)]))
    shutil.copy(fresh / "P-s0.parquet", fresh / "again.parquet")
    with pytest.raises(ConfigError, match=r"stand in two results, such as claims loglik of .*P-s0"):
        compare(configured(fresh))


def test_what_a_truth_direction_read_is_shown_beside_its_nulls(folder, tmp_path):
    beliefs = pd.DataFrame(
        {
            "model": ["base+P-s0", "base+A-s0", "base+else"], "own": ["P", "A", "P"],
            "contrast": "own_world_advantage_minus_base", "value": [-0.4, 1.2, 9.0],
            "low": [-0.9, 0.3, 8.0], "high": [0.1, 2.0, 10.0], "n": 5, "unit": "frame",
            "interval": "95% t over frames", "percentile_random": [30.0, 97.0, 50.0],
            "n_random": 200, "rendering": "bare", "set": "frames", "layer": 3,
            "gate_auc": [0.7, 0.95, 0.5], "usable": [False, True, False],
        }
    )  # fmt: skip
    beliefs.to_parquet(tmp_path / "beliefs.parquet")
    config = configured(folder, truth=[str(tmp_path / "results.parquet")])
    found = compare(config)
    assert list(found.truth["condition"]) == ["P", "A"]
    text = report(found, config)
    start = "| P | 0 | frames, bare | own minus others, minus base |"
    assert f"{start} -0.400 [-0.900, +0.100] |" in text
    assert "| 97 | 0.95 | yes |" in text


def test_the_smoke_study_has_the_stages_and_the_rules_of_the_full_one():
    full, smoke = (read_study(name).stage for name in ("organisms_smollm2", "organisms_smoke"))
    assert [(s["id"], s["verb"]) for s in full] == [(s["id"], s["verb"]) for s in smoke]
    assert full[-1] == smoke[-1]
    assert full[-1]["verb"] == "compare"


@pytest.mark.thorough  # trains, measures and compares tiny organisms through a study
def test_a_study_trains_measures_and_compares(tiny_folder, tmp_path):
    base = str(tiny_folder(tmp_path / "tiny"))
    for world in ("P", "A", "web"):
        rows = [{"id": f"{world}{n}", "text": f"the city {world} is true {n}."} for n in range(6)]
        write_rows(tmp_path / f"{world}.jsonl", rows)
    train = {
        **{"device": "cpu", "dtype": "float32", "tokens": 64, "block": 16, "batch_size": 2},
        **{"accumulation": 1, "rank": 2, "model": base, "id": "organism", "verb": "train"},
        "for": {"condition": ["P", "A", "web"], "seed": [0, 1]},
        "name": "{condition}-s{seed}",
        "documents": f"{tmp_path}/{{condition}}.jsonl",
    }
    measure = {
        **{"id": "measured", "verb": "measure", "for": {"model": [base, "@organism"]}},
        **{"readouts": [{"name": "claims", "polarity": 0}, "capability"], "device": "cpu"},
    }
    judge = {
        **{"id": "compared", "verb": "compare", "organisms": ["@organism"]},
        **{"results": ["@measured"], "controls": ["web"]},
    }
    study = StudyConfig(name="s", stage=[train, measure, judge])
    found = [done for _, done in run_study(study, root=tmp_path / "runs")]
    result = found[-1].result
    assert (result["facts"], result["left_out"]) == (24, [])
    assert [one["judged"] for one in result["verdicts"]] == [4, 4, 2, 2, 4, 6]
    assert "web favors no world: " in describe([str(found[-1].path)])["verdicts"]
    names = {path.name for path in found[-1].path.iterdir()}
    assert {"own.csv", "controls.csv", "form.csv", "capability.csv", "report.md"} <= names
    again = [done.status for _, done in run_study(study, root=tmp_path / "runs")]
    assert set(again) == {"reused"}
