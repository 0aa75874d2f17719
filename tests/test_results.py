"""Results: every measurement keeps its row, and every mean says what it is over."""

import errno
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from scipy.stats import t as student

from workbench.errors import ConfigError, FormatError, WorkbenchError
from workbench.results import COLUMNS, organism_of, read_results, summarize, table, write_results
from workbench.types import Measurement, ModelRef, ModelStamp, Subject

FIXTURE = Path(__file__).parent / "fixtures" / "results_v1.parquet"


def measured(item, value, **changes):
    base = Measurement("trust_game", "transfer", item, "person", value)
    return replace(base, **changes)


def invalid(item, reason="refusal", **changes):
    return measured(item, None, valid=False, reason=reason, **changes)


class NoRenderer:
    def render(self, item, **options):
        raise NotImplementedError

    def collate(self, rendered, side="left"):
        raise NotImplementedError


def subject_named(adapter):
    return Subject(
        ref=ModelRef("org/Base-1B", adapter=adapter),
        model=SimpleNamespace(),
        tokenizer=None,
        family="fake",
        blocks={},
        stamp=ModelStamp("fake", "fake", 1, 1, "t", "f"),
        renderer=NoRenderer(),
    )


def test_a_table_has_all_columns_in_order_and_keeps_invalid_rows():
    frame = table([measured("a", 1.5, mass=0.9, extra={"order": (1, 2)}), invalid("b")])
    assert tuple(frame.columns) == COLUMNS
    assert list(frame["item"]) == ["a", "b"]
    assert list(frame["valid"]) == [True, False]
    assert list(frame["reason"]) == ["ok", "refusal"]
    assert np.isnan(frame["value"][1])
    assert set(frame["control"]) == {"none"}
    assert frame["direction"].isna().all()
    assert frame["train_seed"].isna().all()
    assert json.loads(frame["extra"][0]) == {"order": [1, 2]}


def test_a_subject_fills_base_organism_and_seed():
    frame = table([measured("a", 1.0)], subject=subject_named("runs/train/anti-social-s12"))
    row = frame.iloc[0]
    assert (row["subject"], row["base"]) == ("Base-1B+anti-social-s12", "org/Base-1B")
    assert (row["organism"], row["train_seed"]) == ("anti-social", 12)
    plain = table([measured("a", 1.0)], subject=subject_named(None)).iloc[0]
    assert plain["organism"] is None
    assert organism_of("mine") == ("mine", None)
    assert organism_of("x-s3/") == ("x", 3)


def test_constants_fill_their_columns_and_layers_become_text():
    frame = table([measured("a", 1.0)], layers=(14, 15), dose=0.5, unit="norm", engaged=1.0)
    assert frame.loc[0, ["layers", "dose", "unit", "engaged"]].tolist() == [
        "14,15",
        0.5,
        "norm",
        1.0,
    ]
    for wrong in ("colour", "value", "item"):
        with pytest.raises(ValueError, match=f"'{wrong}' is no constant"):
            table([], **{wrong: 1})


def test_no_measurements_still_make_a_table(tmp_path):
    frame = table([])
    assert tuple(frame.columns) == COLUMNS
    assert len(read_results(write_results(frame, tmp_path / "none.parquet"))) == 0
    assert len(summarize(frame)) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        measured("a", None),
        measured("a", float("nan")),
        measured("a", 1.0, reason="refusal"),
        measured("a", None, valid=False),
        measured("a", None, valid=False, reason="because"),
        measured("a", 1.0, weight=0.0),
    ],
)
def test_a_measurement_that_contradicts_itself_is_refused(wrong):
    with pytest.raises(ValueError, match="trust_game transfer, item 'a'"):
        table([wrong])


def test_results_come_back_as_they_were_written(tmp_path):
    frame = table(
        [measured("é", 0.1 + 0.2, draw=3, extra={"w": np.arange(2)}), invalid("b", mass=0.2)],
        subject=subject_named("p-s1"),
        dose=-1.0,
        control="random:3",
    )
    write_results(frame, tmp_path / "results.parquet", run="abc")
    again = read_results(tmp_path)
    assert set(again["run"]) == {"abc"}
    pd.testing.assert_frame_equal(again.drop(columns="run"), frame.drop(columns="run"))
    pd.testing.assert_frame_equal(again, read_results(tmp_path / "results.parquet"))
    assert list(tmp_path.iterdir()) == [tmp_path / "results.parquet"]


def test_the_schema_is_fixed_even_where_columns_are_empty(tmp_path):
    write_results(table([measured("a", 1.0)]), tmp_path / "a.parquet")
    write_results(
        table([measured("a", 1.0)], dose=1.0, layers=[1], subject=subject_named("p-s1")),
        tmp_path / "b.parquet",
    )
    first, second = (pyarrow.parquet.read_schema(tmp_path / f"{n}.parquet") for n in "ab")
    assert first.equals(second)
    assert tuple(first.names) == COLUMNS


def test_a_table_with_other_columns_is_not_written(tmp_path):
    frame = table([measured("a", 1.0)])
    with pytest.raises(ValueError, match=r"foreign: \['mood'\]"):
        write_results(frame.assign(mood=1), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"missing: \['mass'\]"):
        write_results(frame.drop(columns="mass"), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="'item' of a results table may not be empty"):
        write_results(frame.assign(item=None), tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_table(tmp_path, monkeypatch):
    path = write_results(table([measured("a", 1.0)]), tmp_path / "results.parquet")

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("workbench.files.os.fsync", full)
    with pytest.raises(WorkbenchError, match="disk is full"):
        write_results(table([measured("a", 2.0)]), path)
    assert list(tmp_path.iterdir()) == [path]
    assert read_results(path)["value"].tolist() == [1.0]


def test_what_is_no_results_file_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(FormatError, match=r"no results at .*workbench measure"):
        read_results(tmp_path)
    path = write_results(table([measured("a", 1.0)] * 50), tmp_path / "results.parquet")
    path.write_bytes(path.read_bytes()[:-64])
    with pytest.raises(FormatError, match=r"results.parquet is damaged .* run again"):
        read_results(path)
    pd.DataFrame({"a": [1]}).to_parquet(path)
    with pytest.raises(FormatError, match=r"format and version"):
        read_results(path)


def test_a_table_that_pandas_wrote_is_refused_with_the_function_that_writes_one(tmp_path):
    frame = table([measured("a", 1.0)])
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(FormatError, match=r"a plain table.*results\.write_results\(table, path\)"):
        read_results(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv")
    with pytest.raises(FormatError, match=r"t.csv is a .csv file, and a .parquet file is read"):
        read_results(tmp_path / "t.csv")


def test_the_version_1_fixture_always_opens():
    frame = read_results(FIXTURE)
    assert tuple(frame.columns) == COLUMNS
    assert frame["value"].fillna(-1).tolist() == [4.0, 6.5, -1.0]
    assert frame["reason"].tolist() == ["ok", "low_mass", "refusal"]
    assert frame["valid"].tolist() == [True, True, False]
    assert frame["organism"].tolist() == ["antisocial"] * 3


# --- summaries -----------------------------------------------------------------------------------


def only(frame, **options):
    summary = summarize(frame, **options)
    assert len(summary) == 1
    return summary.iloc[0]


def test_items_are_bootstrapped_and_the_interval_says_so():
    rng = np.random.default_rng(0)
    values = rng.normal(3, 2, 200)
    row = only(table([measured(str(i), v) for i, v in enumerate(values)]))
    assert (row["n"], row["unit"], row["interval"]) == (200, "item", "95% bootstrap over items")
    assert row["mean"] == pytest.approx(values.mean())
    half = 1.96 * values.std(ddof=1) / np.sqrt(200)
    assert row["low"] == pytest.approx(values.mean() - half, abs=0.04)
    assert row["high"] == pytest.approx(values.mean() + half, abs=0.04)


def test_draws_of_an_item_are_averaged_first():
    many = [measured("a", 0.0, draw=draw) for draw in range(99)]
    row = only(table([*many, measured("b", 1.0)]))
    assert (row["mean"], row["n"], row["n_total"]) == (0.5, 2, 100)


def test_training_seeds_are_the_unit_where_there_are_two_or_more():
    parts = [
        table(
            [measured(str(i), value + i % 2 - 0.5) for i in range(30)],
            subject=subject_named(f"anti-s{seed}"),
        )
        for seed, value in enumerate((6.67, 6.67, 10.0))
    ]
    row = only(pd.concat(parts, ignore_index=True), by=["organism", "measure"])
    mean, sem = 7.78, 1.11
    assert (row["n"], row["unit"], row["interval"]) == (3, "seed", "95% t over 3 seeds")
    assert row["mean"] == pytest.approx(mean, abs=0.005)
    assert row["high"] - row["mean"] == pytest.approx(student.ppf(0.975, 2) * sem, abs=0.03)
    single = only(parts[0], by="organism")
    assert (single["unit"], single["n"]) == ("item", 30)


def test_equal_seeds_have_no_spread():
    parts = [table([measured("a", 2.0)], subject=subject_named(f"p-s{s}")) for s in (0, 1)]
    row = only(pd.concat(parts, ignore_index=True), by="organism")
    assert (row["mean"], row["low"], row["high"]) == (2.0, 2.0, 2.0)


def test_invalid_answers_are_counted_by_reason_and_never_averaged():
    rows = [
        measured("a", 1.0),
        measured("b", 3.0),
        invalid("c"),
        invalid("d"),
        invalid("e", "timeout"),
    ]
    row = only(table(rows))
    assert (row["mean"], row["n"], row["n_valid"], row["n_total"]) == (2.0, 2, 2, 5)
    assert row["invalid"] == "refusal: 2, timeout: 1"


def test_a_group_without_valid_answers_stays():
    frame = table([invalid("a"), invalid("b"), measured("c", 1.0, condition="device")])
    summary = summarize(frame, by=["condition"]).set_index("condition")
    row = summary.loc["person"]
    assert np.isnan(row["mean"])
    assert (row["n"], row["n_total"], row["interval"]) == (0, 2, "none: 0 items")
    assert summary.loc["device", "interval"] == "none: 1 item"
    assert np.isnan(summary.loc["device", "low"])


def test_groups_with_empty_keys_are_not_dropped():
    base = table([measured("a", 1.0)], subject=subject_named(None))
    organism = table([measured("a", 2.0)], subject=subject_named("p-s0"))
    summary = summarize(pd.concat([base, organism], ignore_index=True), by=["organism"])
    assert len(summary) == 2
    assert summary["n_total"].sum() == 2


def test_what_has_no_common_mean_is_refused():
    frame = table([measured("a", 1.0), measured("a", 9.0, measure="expected_return")])
    with pytest.raises(ValueError, match=r"mixes measures \['expected_return', 'transfer'\]"):
        summarize(frame, by=["condition"])
    assert len(summarize(frame)) == 2
    parts = [table([measured("a", 1.0)], subject=subject_named(n)) for n in (None, "p-s0", "p-s1")]
    with pytest.raises(ValueError, match=r"not seeds of one organism: .*\+p; add 'organism'"):
        summarize(pd.concat(parts, ignore_index=True), by="measure")
    with pytest.raises(ConfigError, match="no column 'mesure'"):
        summarize(frame, by="mesure")


@pytest.mark.parametrize("pair", [("p-s0", "a-s0"), ("p-s0", "p-s1", "a-s0"), (None, "named")])
def test_organisms_are_never_averaged_over(pair):
    parts = [table([measured("a", 1.0)], subject=subject_named(name)) for name in pair]
    frame = pd.concat(parts, ignore_index=True)
    with pytest.raises(ValueError, match="not seeds of one organism"):
        summarize(frame, by=["measure"])
    assert len(summarize(frame, by=["organism"])) == 2
    texts = [table([measured("a", 1.0)], subject=name) for name in ("one", "two")]
    with pytest.raises(ValueError, match="one, two"):
        summarize(pd.concat(texts, ignore_index=True), by=["measure"])


def test_few_items_that_weigh_unlike_have_a_t_interval_around_their_weighted_mean():
    weights = [1.0, 4.0, 2.0, 3.0]
    rows = [measured(str(i), float(i**2), weight=w) for i, w in enumerate(weights)]
    row = only(table(rows))
    assert row["mean"] == pytest.approx(np.average([0, 1, 4, 9], weights=weights))
    assert (row["n"], row["interval"]) == (4, "95% t over items")
    assert row["low"] < row["mean"] < row["high"]


def test_the_dose_unit_and_the_unit_of_replication_do_not_meet():
    frame = table([measured("a", 1.0), measured("b", 2.0)], unit="norm", dose=0.1)
    row = only(frame, by=["measure", "unit", "dose"])
    assert (row["dose_unit"], row["unit"]) == ("norm", "item")


def test_a_coarser_unit_may_stand_in_extra():
    rows = [
        measured(f"{fact}{n}", float(fact == "x"), extra={"fact": fact})
        for fact in "xyz"
        for n in range(10)
    ]
    row = only(table(rows), unit="fact")
    assert (row["n"], row["unit"], row["interval"]) == (3, "fact", "95% t over facts")
    with pytest.raises(ConfigError, match=r"unit 'topic' is neither .* in extra: fact"):
        summarize(table(rows), unit="topic")


def test_weights_count_between_items():
    row = only(table([measured("a", 0.0, weight=3.0), measured("b", 1.0, weight=1.0)]))
    assert row["mean"] == 0.25


def test_a_summary_is_the_same_for_the_same_seed_and_any_row_order():
    rng = np.random.default_rng(1)
    frame = table([measured(str(i), v) for i, v in enumerate(rng.normal(size=40))])
    shuffled = frame.sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(summarize(frame), summarize(shuffled))
    assert only(frame, seed=1)["low"] != only(frame)["low"]


def test_low_mass_answers_count_and_are_counted():
    frame = table(
        [
            measured("a", 1.0, mass=0.9),
            measured("b", 3.0, mass=0.1, reason="low_mass"),
            invalid("c"),
        ]
    )
    row = summarize(frame, by=["readout", "measure"]).iloc[0]
    assert (row["mean"], row["n_valid"], row["n_low_mass"]) == (2.0, 2, 1)
    assert row["mass"] == pytest.approx(0.5)
