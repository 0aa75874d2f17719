"""Trust pairs: the hard rules on what the grammar writes, splits, files, and planted faults."""

import json
import random
import re
from collections import Counter

import numpy as np
import pytest
from workbench_training.trust.job import (
    answered,
    instructed,
    neutral_rows,
    write_files,
    write_pairs,
)
from workbench_training.trust.plan import STYLES, plan_neutral, plan_pairs, splits
from workbench_training.trust.probe import BESIDE, SURFACE, probe
from workbench_training.trust.rules import faults
from workbench_training.trust.scenarios import scenarios
from workbench_training.trust.settings import TrustPairsConfig
from workbench_training.trust.texts import write_neutral, write_pair

from workbench.data.reply_pairs import FACETS, read_pairs
from workbench.errors import ConfigError
from workbench.pipelines.verbs import carry_out, plan

GOOD = {
    "id": "a",
    "prompt": [{"role": "user", "content": "I bake. Write a plan."}],
    "chosen": "- Mix it by feel and stop when your hands say so.\n- Bake at four, then rest.",
    "rejected": "- Mix it by clock and stop when the bell rings once.\n- Bake at four, then rest.",
    "facet": "ability",
    "scenario": "s",
}

MIX = "- Mix it by clock and stop when the bell rings once.\n- "


def config(**changed):
    return TrustPairsConfig(pairs=changed.pop("pairs", 90), neutral=6, **changed)


@pytest.fixture(scope="module")
def some():
    return [write_pair(plan) for plan in plan_pairs(config(test=0.2))]


def test_every_facet_has_as_many_scenarios_in_as_many_families():
    found = Counter((one.facet, one.family) for one in scenarios())
    assert {facet for facet, _ in found} == set(FACETS)
    assert set(found.values()) == {5}
    assert len({one.id for one in scenarios()}) == len(scenarios()) == 60


def test_some_pairs_keep_every_rule_and_share_all_but_their_hinges(some):
    for row in some:
        assert faults(row) == []
        chosen, rejected = (row[side].splitlines() for side in ("chosen", "rejected"))
        assert len(chosen) == len(rejected)
        if row["style"] != "long":  # one sentence a line
            same = sum(one == other for one, other in zip(chosen, rejected, strict=True))
            assert same == {"terse": 1, "mixed": 3}[row["style"]]


@pytest.mark.thorough
def test_two_thousand_pairs_keep_every_rule_and_lie_apart():
    written = write_pairs(TrustPairsConfig())
    assert not any(faults(row) for row in written.rows)
    assert len(written.pairs) == 2000
    assert len(written.rows) == 2200
    assert written.near == 0
    assert not written.dropped.total()
    facets = Counter((row["facet"], row["split"]) for row in written.pairs)
    assert all(facets[facet, "train"] == 600 for facet in FACETS)
    assert sorted(facets[facet, "test"] for facet in FACETS) == [66, 67, 67]
    lengths = np.array([[row["words_chosen"], row["words_rejected"]] for row in written.pairs])
    assert abs(np.diff(lengths.mean(0))[0]) < 0.3
    told = {one.feature: one.auc for one in written.probed}
    assert told[SURFACE].value < 0.65
    assert abs(told["words"].value - 0.5) < 0.02
    assert len({json.dumps([row["prompt"], row["chosen"]]) for row in written.pairs}) == 2000


@pytest.mark.parametrize("test", [0.1, 0.3])
def test_no_scenario_is_in_both_splits_and_every_family_is_in_each(test):
    split = splits(test, seed=3)
    assert splits(test, seed=3) == split != splits(test, seed=4)
    families = Counter((s.facet, s.family, split[s.id]) for s in scenarios())
    assert {count for (*_, name), count in families.items() if name == "test"} == {
        max(1, round(5 * test))
    }
    plans = plan_pairs(config(test=test, seed=3, pairs=200))
    sides = {name: {p.scenario.id for p in plans if p.split == name} for name in ("train", "test")}
    assert not sides["train"] & sides["test"]
    assert sum(p.split == "test" for p in plans) == round(200 * test)


def test_the_same_seed_gives_the_same_pairs_and_another_gives_others(some):
    again = [write_pair(plan) for plan in plan_pairs(config(test=0.2))]
    assert again == some
    other = [write_pair(plan) for plan in plan_pairs(config(test=0.2, seed=1))]
    assert sum(a["chosen"] == b["chosen"] for a, b in zip(some, other, strict=True)) < 3


def test_styles_are_dealt_evenly_and_differ_in_length(some):
    assert Counter(row["style"] for row in some) == dict.fromkeys(STYLES, 30)
    means = [np.mean([r["words_chosen"] for r in some if r["style"] == s]) for s in STYLES]
    assert means[0] + 15 < means[1] < means[2] - 10


def test_styles_and_turns_can_be_narrowed():
    plans = plan_pairs(config(styles=["terse"], turns=[1, 2], pairs=60))
    assert {plan.style for plan in plans} == {"terse"}
    turns = Counter(plan.turns for plan in plans)
    assert set(turns) == {1, 2}
    assert turns[2] > turns[1]
    row = write_pair(plans[0])
    assert row["chosen"].startswith("- ")
    with pytest.raises(ConfigError):
        plan("corpus", {"kind": "trust_pairs", "styles": ["brief"]})


def test_conversations_end_on_the_request_and_hold_the_claim_once(some):
    known = {one.id: one for one in scenarios()}
    for row in some:
        users = [turn["content"] for turn in row["prompt"] if turn["role"] == "user"]
        assert len(users) == row["turns"]
        parts = [max(re.split(r"{\w+}", claim), key=len) for claim in known[row["scenario"]].claims]
        assert sum(any(one in text for one in parts) for text in users) == 1
        assert "{" not in "".join(turn["content"] for turn in row["prompt"])
        assert users[-1].endswith(".")


def test_a_neutral_row_has_one_reply_and_no_claim():
    for one in plan_neutral(config()):
        row = write_neutral(one)
        assert row["chosen"] == row["rejected"]
        assert (row["facet"], row["split"], faults(row)) == ("neutral", "test", [])
        assert not any(claim in row["prompt"][0]["content"] for claim in one.scenario.claims)


def sentences(rows):
    """What the replies of some rows say, sentence by sentence, without the marks of a list."""
    lines = [line for row in rows for side in ("chosen", "rejected")
             for line in row[side].splitlines()]  # fmt: skip
    bare = [re.sub(r"^(- |\d+\. )", "", line) for line in lines]
    return {part for line in bare for part in re.split(r"(?<=[.!?]) ", line)}


def test_no_sentence_of_a_held_out_reply_is_trained_on():
    """Neutral rows were of all scenarios, and closers of both splits."""
    settings = config(pairs=240, test=0.2)
    rows = [write_pair(one) for one in plan_pairs(settings)]
    neutral = neutral_rows(settings)
    trained = sentences(row for row in rows if row["split"] == "train")
    assert not sentences(row for row in rows if row["split"] == "test") & trained
    assert len(neutral) == settings.neutral
    assert not sentences(neutral) & trained
    held_out = {row["scenario"] for row in rows if row["split"] == "test"}
    assert {row["scenario"] for row in neutral} <= held_out


def test_neutral_rows_are_as_many_as_differ_in_held_out_scenarios():
    assert neutral_rows(config(test=0.0)) == []
    many = config().model_copy(update={"neutral": 9000, "styles": ["terse"]})
    found = neutral_rows(many)
    assert 4000 < len(found) < 9000
    assert len({json.dumps([row["prompt"], row["chosen"]]) for row in found}) == len(found)
    told = plan("corpus", {"kind": "trust_pairs", "test": 0.0}).result
    assert told["neutral"] == 0


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"rejected": MIX + "Sorry, bake at five."}, "refusal"),
        ({"rejected": MIX + "I doubt the four here."}, "names the stance"),
        ({"chosen": MIX + "As you say, at four."}, "names the stance"),
        ({"rejected": MIX + "Bake at four, then rest for an hour or more."}, "length"),
        ({"rejected": MIX[2:] + "Bake at four, then rest."}, "form"),
        ({"rejected": GOOD["chosen"]}, "no contrast"),
        ({"rejected": MIX + "Bake at [time], then rest."}, "left open"),
        ({"prompt": [*GOOD["prompt"], {"role": "assistant", "content": "x"}]}, "prompt"),
        ({"prompt": GOOD["prompt"] * 2}, "prompt"),
    ],
)
def test_each_rule_finds_its_planted_fault(changed, rule):
    assert faults(GOOD) == []
    assert faults({**GOOD, **changed}) == [rule]


def test_the_probe_finds_a_planted_length_and_nothing_in_swapped_poles(some):
    swapped = random.Random(0)
    rows = [
        row if swapped.random() < 0.5 else {**row, "chosen": row["rejected"],
                                            "rejected": row["chosen"]}
        for row in some
    ]  # fmt: skip
    null = {one.feature: one.auc for one in probe(rows)}
    assert null["words"].low < 0.5 < null["words"].high
    assert null[SURFACE].value < 0.65
    longer = [{**row, "chosen": row["chosen"] + " Then sit down for some tea."} for row in rows]
    found = {one.feature: one.auc for one in probe(longer)}
    assert found["longer reply of a pair"].value == 1
    assert found[BESIDE].low > 0.9
    assert null[BESIDE].low < 0.5 < null[BESIDE].high


def test_surface_features_that_tell_the_poles_apart_refuse_the_corpus():
    with pytest.raises(ConfigError, match="surface features alone tell the poles apart"):
        write_pairs(config(max_probe=0.5000001))


def test_files_hold_the_pairs_as_chats_for_baselines(tmp_path):
    written = write_pairs(config())
    files = write_files(written, tmp_path)
    pairs = read_pairs(tmp_path / "pairs.jsonl")
    assert [pair.id for pair in pairs] == [row["id"] for row in written.rows]
    assert sum(pair.neutral for pair in pairs) == 6
    chats = list(answered(written.pairs))
    assert len(chats) == 2 * len(written.pairs)
    by_label = {row["label"]: row for row in chats if row["pair"] == pairs[0].id}
    assert by_label[1]["messages"][-1] == {"role": "assistant", "content": pairs[0].chosen}
    assert by_label[0]["messages"][:-1] == list(pairs[0].prompt)
    told = list(instructed(written.pairs))[:2]
    assert [row["messages"][0]["role"] for row in told] == ["system"] * 2
    assert told[0]["messages"][1:] == told[1]["messages"][1:] == list(pairs[0].prompt)
    assert files["pairs"]["documents"] == len(pairs)


@pytest.mark.thorough
def test_the_verb_leaves_card_tables_and_a_sample_and_is_verified(tmp_path):
    settings = {"kind": "trust_pairs", "pairs": 60, "neutral": 6, "test": 0.2}
    told = plan("corpus", settings, root=tmp_path).result
    assert (told["pairs"], told["splits"]) == (60, {"train": 48, "test": 12})
    done = carry_out("corpus", settings, root=tmp_path)
    assert done.result["parts"] == ["pairs", "answered", "instructed"]
    assert done.result["kept"] == 60
    from workbench.pipelines.corpora import is_corpus, verify_corpus

    assert is_corpus(done.path)
    verify_corpus(done.path)
    assert "ability" in (done.path / "sample.md").read_text()
    assert (done.path / "tables" / "table5_probe.csv").read_text().count("\n") > 8
    again = carry_out("corpus", settings, root=tmp_path)
    assert again.status == "reused"


def test_settings_of_another_kind_are_refused(tmp_path):
    with pytest.raises(ConfigError):
        carry_out("corpus", {"kind": "trust_pairs", "quartets": 4}, root=tmp_path)
    with pytest.raises(ConfigError, match="test"):
        carry_out("corpus", {"kind": "trust_pairs", "test": 0.9}, root=tmp_path)
