"""The verbs personas and monitor on planted rollouts: rules, held-out questions, controls."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from planted_rollouts import STAMP, TRAITS, rollouts, states, write_rollouts, write_store

from workbench.directions import open_directions
from workbench.directions.trait_pairs import EFFECTIVE, trait_vectors
from workbench.errors import ConfigError, MismatchError
from workbench.pipelines.labelled import labelled
from workbench.pipelines.personas import split_questions
from workbench.pipelines.verbs import carry_out, plan
from workbench.transcripts import Scores, read_transcripts, write_transcripts


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Settings of ``personas`` on judged rollouts."""
    return write_rollouts(tmp_path_factory.mktemp("judged"))


@pytest.fixture(scope="module")
def made(judged, tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return carry_out("personas", {**judged, "held_out": 0.5}, root=root)


def monitored(judged, made, tmp_path, **changes):
    words = {
        "directions": [str(made.path)], "acts": judged["acts"]["prompt-last"],
        "transcripts": judged["transcripts"], "draws": 100,
    }  # fmt: skip
    done = carry_out("monitor", {**words, **changes}, root=tmp_path)
    return pd.read_parquet(done.path / "monitor.parquet")


def test_each_variant_is_a_file_of_all_traits_along_their_planted_axes(made):
    assert made.result["judge"] == "stand-in"
    assert made.result["traits"] == {"response-mean": 3, "prompt-mean": 3, "prompt-last": 3}
    for name in ("directions", "prompt-mean", "prompt-last"):
        found = open_directions(made.path / f"{name}.safetensors")
        assert found.names == TRAITS
        unit = found.unit_vectors()[found.layers.index(3)]
        np.testing.assert_array_less(0.9, np.diag(unit[:, :3]))
    assert open_directions(made.path / "directions.safetensors").position == "mean:assistant"


def test_the_rule_of_the_library_is_what_counts_pairs_and_lengths_of_answers_are_told(judged, made):
    transcripts = read_transcripts(judged["transcripts"])
    out = made.result["held_out"]
    keep = ~np.isin(transcripts.columns["question"], out)
    acts = states(transcripts)[:, keep]
    told = transcripts.take(np.flatnonzero(keep))
    assert len(out) == 4
    from workbench.activations import Activations

    store = Activations.from_values(
        acts.astype(np.float32), {"id": np.array(told.ids)}, model=STAMP, layers=(1, 3),
        position="mean:assistant",
    )  # fmt: skip
    plain = trait_vectors(labelled(store, told), judge="stand-in", rule=EFFECTIVE)
    saved = open_directions(made.path / "directions.safetensors")
    np.testing.assert_allclose(saved.vectors, plain.vectors.vectors, atol=1e-6)
    counts = pd.read_parquet(made.path / "counts.parquet")
    own = counts[counts["read"] == "response-mean"].reset_index(drop=True)
    assert own["used"].tolist() == plain.counts["used"].tolist()
    assert set(own["words_positive"]) == {3.0}
    assert set(own["words_negative"]) == {1.0}


def test_the_tables_hold_checks_against_chance_and_cosines_between_reads(made):
    checks = pd.read_parquet(made.path / "checks.parquet")
    strong = checks[checks["layer"] == 3]
    assert (strong["length"] > strong["null"]).all()
    assert set(checks["judge"]) == {"stand-in"}
    similarity = pd.read_parquet(made.path / "similarity.parquet")
    assert len(similarity) == 3 * 2 * 3
    assert (similarity["cosine"] > similarity["random"]).all()


def test_held_out_questions_are_the_same_for_every_variant_and_stand_in_the_file(made):
    files = ("directions", "prompt-mean", "prompt-last")
    infos = [open_directions(made.path / f"{name}.safetensors").info for name in files]
    assert len({tuple(info["held_out"]) for info in infos}) == 1
    assert not set(infos[0]["held_out"]) & set(infos[0]["questions"])
    assert len(infos[0]["questions"]) == 4


def test_a_trait_with_questions_of_its_own_keeps_its_share_of_them(judged):
    from workbench.activations import open_activations

    told = read_transcripts(judged["transcripts"])
    own = np.where(told.columns["trait"] == "loud", "own-", "")
    columns = {**told.columns, "question": np.char.add(own, told.columns["question"])}
    acts = labelled(open_activations(judged["acts"]["prompt-last"]), replace(told, columns=columns))
    kept, out = split_questions(acts, 0.25, seed=3)
    assert sum(name.startswith("own-") for name in out) == 2
    assert len(out) == 4
    by_trait = {trait: set(kept.column("question")[kept.column("trait") == trait].tolist())
                for trait in TRAITS}  # fmt: skip
    assert by_trait["candid"] == by_trait["malicious"]
    assert {len(names) for names in by_trait.values()} == {6}


def test_without_a_judge_every_pair_counts_and_the_file_says_so(tmp_path):
    settings = write_rollouts(tmp_path, judge=None)
    done = carry_out("personas", settings, root=tmp_path / "runs")
    assert (done.result["judge"], done.result["rule"]) == ("none", "all pairs, at least 1")
    counts = pd.read_parquet(done.path / "counts.parquet")
    assert (counts["used"] == 16).all()


def test_a_store_is_judged_anew_without_a_capture(judged, tmp_path):
    told = read_transcripts(judged["transcripts"])
    values = np.where(told.columns["trait"] == "loud", told.scores["score"].values, np.nan)
    lacking = tuple("" if kept else "no answer" for kept in ~np.isnan(values))
    other = told.with_scores("score", Scores("second", values, lacking, ("",) * len(told)))
    write_transcripts(other, tmp_path / "again.parquet")
    data = {**judged, "transcripts": str(tmp_path / "again.parquet")}
    done = carry_out("personas", data, root=tmp_path)
    assert open_directions(done.path / "directions.safetensors").names == ("loud",)
    assert done.result["judge"] == "second"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"acts": {"prompt-last": "response-mean"}}, ConfigError, "was captured at position"),
        ({"held_out": 0.01}, ConfigError, "of 8 questions of 'candid' is 0"),
        ({"least": 99}, ConfigError, "no trait has good pairs enough"),
        ({"layers": [2]}, ConfigError, "layer 2"),
        ({"transcripts": "nothing.parquet"}, ConfigError, "no input 'nothing.parquet'"),
        ({"acts": {"answer": "x"}}, ConfigError, "acts"),
    ],
)
def test_what_does_not_fit_is_refused(judged, tmp_path, change, error, message):
    if "prompt-last" in change.get("acts", {}):
        change = {"acts": {"prompt-last": judged["acts"]["response-mean"]}}
    with pytest.raises(error, match=message):
        carry_out("personas", {**judged, **change}, root=tmp_path)


def test_a_store_of_other_rollouts_and_one_of_every_token_are_refused(judged, tmp_path):
    values, names = np.ones((2, 3, STAMP.width)), {"id": np.array(["a", "b", "c"])}
    strange = write_store(tmp_path / "strange", values, names, "mean:assistant")
    with pytest.raises(MismatchError, match=r"3 of 3 items .* not among the 96 transcripts"):
        carry_out("personas", {**judged, "acts": {"response-mean": strange}}, root=tmp_path)


def test_a_plan_counts_what_is_there_and_reads_no_state(judged, tmp_path):
    told = plan("personas", judged, root=tmp_path).result
    assert told["items"] == {"response-mean": 96, "prompt-mean": 96, "prompt-last": 96}
    assert told["judge"] == "stand-in"


# --- monitor --------------------------------------------------------------------------------------


def test_the_projection_foretells_the_score_on_questions_that_were_held_out(judged, made, tmp_path):
    table = monitored(judged, made, tmp_path)
    assert set(table["questions"]) == {"held out"}
    assert set(table["target"]) == {"score"}
    pooled = table[(table["within"] == "") & (table["layer"] == 3)]
    assert (pooled["correlation"] > 0.9).all()
    assert (pooled["correlation"] > pooled["random"]).all()
    assert (pooled["others"] < pooled["correlation"]).all()
    assert set(pooled["n"]) == {4}
    assert set(pooled["unit"]) == {"question"}


def test_within_a_system_prompt_it_is_the_answers_own_strength_that_is_foretold(
    judged, made, tmp_path
):
    table = monitored(judged, made, tmp_path, seen=True)
    inner = table[(table["within"] == "system prompt") & (table["layer"] == 3)]
    pooled = table[(table["within"] == "") & (table["layer"] == 3)]
    assert (inner["correlation"] > 0.4).all()
    assert (inner["correlation"].to_numpy() < pooled["correlation"].to_numpy()).all()
    assert set(table["questions"]) == {"seen and unseen"}


def test_where_nobody_judged_it_tells_the_poles_apart_and_says_that_this_is_no_score(tmp_path):
    settings = write_rollouts(tmp_path, judge=None)
    made = carry_out("personas", {**settings, "held_out": 0.5}, root=tmp_path / "runs")
    table = monitored(settings, made, tmp_path / "runs")
    assert set(table["target"]) == {"pole"}
    assert set(table["judge"]) == {"none: the pole of the instruction"}
    assert set(table["within"]) == {"", "pair of instructions"}
    assert (table.loc[table["layer"] == 3, "correlation"] > 0.8).all()
    with pytest.raises(ConfigError, match="has no scores to foretell"):
        monitored(settings, made, tmp_path / "runs", target="score")


def test_vectors_from_every_question_have_nothing_left_to_be_tried_on(judged, tmp_path):
    made = carry_out("personas", judged, root=tmp_path)
    with pytest.raises(ConfigError, match="made from all 8 questions"):
        monitored(judged, made, tmp_path)


def test_another_position_and_vectors_of_other_traits_are_refused(judged, made, tmp_path):
    with pytest.raises(ConfigError, match="monitoring reads the last prompt token"):
        monitored(judged, made, tmp_path, acts=judged["acts"]["response-mean"])
    told = rollouts()
    named = replace(told, columns={**told.columns, "trait": np.full(len(told), "brave")})
    write_transcripts(named, tmp_path / "brave.parquet")
    with pytest.raises(ConfigError, match="no rollout is of a trait named candid, loud"):
        monitored(judged, made, tmp_path, transcripts=str(tmp_path / "brave.parquet"))
