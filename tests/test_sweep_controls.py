"""Controls, prompting baselines, percentile caps and realised shifts of sweeps."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import workbench as wb
from workbench.directions import thresholds
from workbench.errors import ConfigError, MismatchError
from workbench.interventions import Gap
from workbench.models.prompted import prompted
from workbench.sweeps import Design
from workbench.sweeps.controls import Controls, order_of, versions
from workbench.types import CandidatesRead, LogitsRead, Measurement, Request

IDS = [(20, 30, 40, 50), (60, 70, 80, 45, 33), (90, 100, 110, 120, 130)]
TEXTS = ["the city of the", "is true and a city is not false", "in a city of the"]


class NextToken:
    """Log-probability of one token after each of three prompts."""

    name = "next_token"

    def requests(self, subject):
        return [Request(str(n), "x", ids, (LogitsRead((300,)),)) for n, ids in enumerate(IDS)]

    def score(self, requests, answers):
        assert all(len(answer) == 1 for answer in answers)
        return [
            Measurement(self.name, "logp", r.item, r.condition, float(a[0][0]))
            for r, a in zip(requests, answers, strict=True)
        ]


class Asked(NextToken):
    """The same of chats, which a prompting baseline reaches."""

    def requests(self, subject):
        rendered = [subject.renderer.render(text, render="chat") for text in TEXTS]
        return [Request(str(n), "x", r.ids, (LogitsRead((300,)),)) for n, r in enumerate(rendered)]


def directions(subject, layers=(1, 2, 3), seed=0, name="a"):
    vectors = np.random.default_rng(seed).normal(size=(1, len(layers), subject.width))
    norms = np.linspace(2, 3, len(layers))
    return wb.Directions((name,), tuple(layers), vectors, subject.stamp, norms=norms)


def values(table, **where):
    for column, wanted in where.items():
        table = table[table[column] == wanted]
    return table.sort_values("item")["value"].to_numpy()


def swept(subject, own, **options):
    settings = {"readouts": [NextToken()], "doses": [-1, 1], "controls": 0} | options
    return wb.sweep(subject, own, **settings)


# --- controls ------------------------------------------------------------------------------------


def test_controls_are_read_from_numbers_and_words():
    assert Controls.of(3) == Controls(random=3)
    assert Controls.of("random:2") == Controls(random=2)
    assert Controls.of(["random:2", "sign", "layers:4"]) == Controls(2, 4, sign=True)
    assert Controls.of(["shuffled", "noop"]) == Controls(0, shuffled=True, noop=True)
    for wrong in ("randm:2", "random:x", "sign:2", -1):
        with pytest.raises(ConfigError, match="control"):
            Controls.of([wrong])


def test_the_turned_direction_does_at_a_dose_what_the_direction_does_at_minus_it(tiny_subject):
    table = swept(tiny_subject, directions(tiny_subject), controls=["sign"])
    np.testing.assert_array_equal(
        values(table, control="sign", dose=1.0), values(table, control="none", dose=-1.0)
    )
    assert not np.allclose(values(table, control="sign", dose=1.0), values(table, dose=0.0))


def test_moved_vectors_are_the_window_s_own_at_other_blocks(tiny_subject):
    own, window = directions(tiny_subject), (1, 2, 3)
    assert {order_of(window, 0, number) for number in range(2)} == {(2, 3, 1), (3, 1, 2)}
    nine = {order_of((22, 23, 24, 25), 0, number) for number in range(9)}
    assert len(nine) == 9
    assert all(a != b for order in nine for a, b in zip(order, (22, 23, 24, 25), strict=True))
    with pytest.raises(ConfigError, match="more orders than 3 blocks have"):
        order_of(window, 0, 2)
    (name, moved), *_ = versions(own, window, Controls(random=0, layers=2), 0)
    assert name == "layers:0"
    for to, frm in zip(window, order_of(window, 0, 0), strict=True):
        np.testing.assert_array_equal(moved.at(to), own.at(frm))
    with pytest.raises(ConfigError, match="is one block"):
        swept(tiny_subject, own, layers=[1], controls=["layers:1"])


def test_thresholds_by_layer_move_with_the_vectors(tiny_subject):
    own, floor = directions(tiny_subject), {1: 1.0, 2: 2.0, 3: 3.0}
    design = Design([1], "cap", controls=["layers:1"], thresholds={"floor": floor})
    (window,) = design.windows(tiny_subject, own)
    cell = next(cell for cell in window.cells if cell.control == "layers:0")
    order = order_of((1, 2, 3), 0, 0)
    assert [edit.rows["floor"] for edit in cell.arm] == [floor[layer] for layer in order]


def test_shuffled_labels_direction_has_the_length_of_the_direction(tiny_subject):
    own, drawn = directions(tiny_subject), directions(tiny_subject, seed=9)
    table = swept(tiny_subject, own, controls=["shuffled"], shuffled=drawn * 7)
    same = replace(
        drawn,
        vectors=drawn.vectors
        / np.linalg.norm(drawn.vectors, axis=-1, keepdims=True)
        * np.linalg.norm(own.vectors, axis=-1, keepdims=True),
    )
    alone = swept(tiny_subject, same)
    np.testing.assert_allclose(
        values(table, control="shuffled", dose=1.0), values(alone, dose=1.0), atol=1e-5
    )
    with pytest.raises(ConfigError, match="needs the direction that shuffled labels give"):
        swept(tiny_subject, own, controls=["shuffled"])
    with pytest.raises(MismatchError, match="one is called 'a'"):
        swept(tiny_subject, own, controls=["shuffled"], shuffled=directions(tiny_subject, name="b"))


def test_a_cap_that_nothing_reaches_changes_nothing_and_is_for_caps_alone(tiny_subject):
    own = directions(tiny_subject)
    table = swept(tiny_subject, own, edit="cap", floor=1.5, doses=[1], controls=["noop"])
    np.testing.assert_array_equal(values(table, control="noop"), values(table, dose=0.0))
    assert not np.allclose(values(table, control="none", dose=1.0), values(table, dose=0.0))
    with pytest.raises(ConfigError, match="control noop is for cap"):
        swept(tiny_subject, own, controls=["noop"])


# --- prompting baselines -------------------------------------------------------------------------


def test_a_prompting_baseline_is_the_model_behind_that_prompt(tiny_subject):
    told = {"name": "told", "system": "in a city"}
    table = swept(tiny_subject, directions(tiny_subject), readouts=[Asked()], baselines=[told])
    plain = wb.measure(prompted(tiny_subject, system="in a city"), [Asked()])
    rows = table[table["control"] == "prompt:told"]
    np.testing.assert_allclose(values(rows), values(plain), atol=1e-5)
    assert not np.allclose(values(rows), values(table, dose=0.0))
    assert rows["dose"].isna().all()
    assert set(rows["direction"]) == {"a"}


def test_a_baseline_stands_beside_the_doses_in_the_changes(tiny_subject):
    from workbench.effects import changes

    told = {"name": "told", "system": "in a city"}
    table = swept(tiny_subject, directions(tiny_subject), readouts=[Asked()], baselines=[told])
    found = changes(table).set_index("control").loc["prompt:told"]
    expected = values(table, control="prompt:told") - values(table, dose=0.0)
    assert found["change"] == pytest.approx(expected.mean(), abs=1e-6)


# --- percentile caps -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def calibration(tiny_subject):
    rows = [{"id": str(n), "text": text} for n, text in enumerate(TEXTS * 6)]
    prompts = wb.PromptSet.from_records(rows, text="text")
    return wb.capture(tiny_subject, prompts, layers=[1, 2, 3], position="all")


@pytest.mark.parametrize(("side", "along"), [("floor", "direction"), ("ceiling", "opposite")])
def test_a_percentile_cap_is_the_cap_at_that_threshold(tiny_subject, calibration, side, along):
    own = directions(tiny_subject)
    options = {"edit": "cap", "unit": "percentile", "side": side, "calibration": calibration}
    table = swept(tiny_subject, own, doses=[30], **options)
    limits = dict(thresholds(own, calibration, 30, along=along))
    plain = swept(tiny_subject, own, edit="cap", doses=[1], **{side: limits})
    np.testing.assert_allclose(values(table, dose=30.0), values(plain, dose=1.0), atol=1e-6)
    assert not np.allclose(values(table, dose=30.0), values(table, dose=0.0))


def test_a_random_cap_in_percentiles_acts_about_as_often(tiny_subject, calibration):
    own = directions(tiny_subject)
    options = {"edit": "cap", "unit": "percentile", "calibration": calibration, "scope": "all"}
    table = swept(tiny_subject, own, doses=[50], controls=3, layers=[1], **options)
    for control in ("none", "random:0", "random:1", "random:2"):
        engaged = table[(table["control"] == control) & (table["dose"] == 50)]["engaged"]
        assert 0.15 < engaged.iloc[0] < 0.85


@pytest.mark.parametrize("side", ["floor", "ceiling"])
def test_matched_caps_act_exactly_as_often_on_what_they_are_matched_on(
    tiny_subject, calibration, side
):
    own = directions(tiny_subject)
    asked = wb.PromptSet.from_records([{"text": f"{n} {text}"} for n, text in enumerate(TEXTS)])
    match = wb.capture(tiny_subject, asked, layers=[1, 2, 3], position="all")
    first = np.isin(np.arange(match.offsets[-1]), match.offsets)
    options = {"edit": "cap", "unit": "percentile", "side": side, "calibration": calibration}
    for window in ([1], [1, 2, 3]):
        design = Design(
            [50.0], layers=window, controls=["random:3", *["layers:1"] * (len(window) > 1)],
            match=match, **options,
        )  # fmt: skip
        (laid,) = design.windows(tiny_subject, own)
        shares = {}
        for cell in laid.cells:
            for edit in cell.arm if cell.dose else ():
                rows = match.at(edit.layer)[~first]
                along, limit = rows @ edit.v, edit.rows[side]
                moved = along < limit if side == "floor" else along > limit
                shares.setdefault(edit.layer, {})[cell.control] = moved.sum()
        for found in shares.values():
            assert len(set(found.values())) == 1
            assert 0 < found["none"] < len(rows)


def test_a_match_is_for_caps_in_percentiles(tiny_subject, calibration):
    with pytest.raises(ConfigError, match='match is for caps with unit="percentile"'):
        swept(tiny_subject, directions(tiny_subject), edit="cap", floor=1.0, match=calibration)


def test_percentiles_are_refused_where_they_mean_nothing(tiny_subject, calibration):
    own = directions(tiny_subject)
    given = {"edit": "cap", "unit": "percentile", "calibration": calibration}
    for options, words in (
        ({"unit": "percentile"}, "is for edit="),
        ({**given, "calibration": None}, "is for edit="),
        ({**given, "floor": 1.0}, "set the threshold themselves"),
        ({**given, "side": "top"}, "side 'top'"),
        ({**given, "doses": [-5]}, "percentile dose -5"),
        ({**given, "doses": [100]}, "percentile dose 100"),
    ):
        with pytest.raises(ConfigError, match=words):
            swept(tiny_subject, own, **options)


# --- realised shifts -----------------------------------------------------------------------------


def identity(subject):
    """Blocks replaced by the identity, by hooks of the test's own."""

    def keep(_module, args, kwargs, output):
        h = args[0] if args else kwargs["hidden_states"]
        return h if torch.is_tensor(output) else (h, *output[1:])

    return [
        block.register_forward_hook(keep, with_kwargs=True) for block in subject.blocks.values()
    ]


def test_three_neighboring_blocks_shift_by_one_two_and_three_doses(make_subject):
    subject = make_subject()
    handles = identity(subject)
    own = directions(subject, layers=(1, 2, 3))
    own = replace(own, vectors=np.repeat(own.vectors[:, :1], 3, axis=1))
    length = float(np.linalg.norm(own.vectors[0, 0]))
    summed = swept(subject, own, doses=[0.5])
    aimed = swept(subject, own, doses=[0.5], per_layer="residual_target")
    for handle in handles:
        handle.remove()
    row = summed[summed["dose"] == 0.5].iloc[0]
    assert row["dose_raw"] == pytest.approx(0.5 * length, rel=1e-4)
    assert row["realised"] == pytest.approx(2 * 0.5 * length, rel=1e-4)
    row = aimed[aimed["dose"] == 0.5].iloc[0]
    assert row["realised"] == pytest.approx(0.5 * length, rel=1e-4)
    assert row["dose_raw"] == pytest.approx(0.5 * length / 3, rel=1e-4)
    assert aimed.loc[aimed["dose"] == 0, "realised"].eq(0).all()


def test_a_target_is_met_at_every_block_of_a_real_stack(tiny_subject):
    own = directions(tiny_subject)
    table = swept(tiny_subject, own, doses=[1], unit="norm", per_layer="residual_target")
    norms = np.linspace(2, 3, 3)
    row = table[table["dose"] == 1].iloc[0]
    assert row["realised"] == pytest.approx(norms.mean(), rel=1e-3)
    free = swept(tiny_subject, own, doses=[1], unit="norm")
    assert abs(free[free["dose"] == 1].iloc[0]["realised"] - norms.mean()) > 0.05


def test_the_realised_shift_is_read_after_the_edits_on_the_readouts_prompts(tiny_subject):
    own = directions(tiny_subject, layers=(1, 2))
    row = swept(tiny_subject, own, doses=[1.5]).query("dose == 1.5").iloc[0]
    unit = own.vectors[0] / np.linalg.norm(own.vectors[0], axis=-1, keepdims=True)
    found = {}
    for dose in (0.0, 1.5):
        with wb.intervene(tiny_subject, [wb.Intervention.add(own, dose=dose)]):
            found[dose] = []
            for ids in IDS:
                kept = {}

                def keep(_module, _args, output, kept=kept, place=0):
                    h = output if torch.is_tensor(output) else output[0]
                    kept[place] = h[0, -1].numpy()

                handles = [
                    tiny_subject.blocks[layer].register_forward_hook(partial(keep, place=n))
                    for n, layer in enumerate((1, 2))
                ]  # after the edits' hooks, so these see what they leave
                with torch.no_grad():
                    tiny_subject.model(torch.tensor([ids]))
                for handle in handles:
                    handle.remove()
                found[dose].append([kept[n] @ unit[n] for n in range(2)])
    moved = np.array(found[1.5]) - np.array(found[0.0])
    assert row["realised"] == pytest.approx(moved.mean(), rel=1e-4)
    assert abs(row["realised"] - row["dose_raw"]) > 0.1


class TwoTokens(NextToken):
    """Asks for a string of two tokens, so that there is a new one to edit."""

    def requests(self, subject):
        line = CandidatesRead(((7, 8),))
        return [replace(one, reads=(line,)) for one in super().requests(subject)]


def test_the_shift_of_new_tokens_alone_is_not_known_and_not_zero(tiny_subject):
    own = directions(tiny_subject, layers=(1, 2))
    options = {"readouts": [TwoTokens()], "doses": [1.5]}
    assert swept(tiny_subject, own, scope="generated", **options)["realised"].isna().all()
    assert swept(tiny_subject, own, scope="last", **options)["realised"].notna().all()
    with pytest.raises(ConfigError, match="'generated' covers no token"):
        swept(tiny_subject, own, scope="generated", per_layer="residual_target", **options)


def test_a_target_is_for_adding_alone(tiny_subject):
    with pytest.raises(ConfigError, match="per_layer 'residual_target' for ablate"):
        swept(tiny_subject, directions(tiny_subject), edit="ablate", per_layer="residual_target")
    with pytest.raises(ConfigError, match="per_layer 'sum'"):
        swept(tiny_subject, directions(tiny_subject), per_layer="sum")


# --- units and subjects --------------------------------------------------------------------------


def test_norms_are_measured_where_the_directions_bring_none(tiny_subject):
    own = replace(directions(tiny_subject), norms=None)
    table = swept(tiny_subject, own, doses=[0.5], unit="norm", controls=1)
    rows = table[table["dose"] == 0.5]
    np.testing.assert_allclose(rows["dose_norm"], 0.5, rtol=1e-5)
    assert (rows["dose_raw"] > 0).all()


def test_several_subjects_are_swept_one_after_another(tiny_subject, subject_of):
    other = subject_of("qwen3", seed=5)
    own = directions(tiny_subject)
    table = wb.sweep([tiny_subject, other], own, readouts=[NextToken()], doses=[1], controls=1)
    alone = wb.sweep(other, own, readouts=[NextToken()], doses=[1], controls=1)
    part = table.iloc[len(table) // 2 :].reset_index(drop=True)
    np.testing.assert_allclose(part["value"], alone["value"], atol=1e-6)


def test_gap_doses_are_told_in_gaps_after_aiming(tiny_subject):
    gap = Gap(2.0, 0.1, 8, "item")
    own = directions(tiny_subject)
    table = swept(tiny_subject, own, doses=[1], unit="gap", gap=gap, per_layer="residual_target")
    row = table[table["dose"] == 1].iloc[0]
    assert row["dose_gap"] == pytest.approx(row["dose_raw"] / 2.0)
    assert row["realised"] == pytest.approx(2.0, rel=1e-3)


@pytest.mark.parametrize("per_layer", ["accumulate", "residual_target"])
def test_a_window_means_the_same_in_any_order(tiny_subject, per_layer):
    """Aimed doses are sorted by block; their norms were taken in the window's own order."""
    own = directions(tiny_subject)
    columns = ["value", "dose_raw", "dose_norm", "realised"]
    found = [
        swept(tiny_subject, own, layers=window, per_layer=per_layer)[columns]
        for window in ([1, 3], [3, 1])
    ]
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ("12", "layers = '12'; give block indices"),
        ([1.5], "give block indices such as"),
        ([[1], [1]], "names a window twice"),
        ([[1], [2], [1]], "names a window twice"),
        ([1, 1], "each once"),
        ([[]], "at least one"),
    ],
)
def test_layers_that_are_no_windows_are_refused(tiny_subject, layers, message):
    with pytest.raises(ConfigError, match=message):
        swept(tiny_subject, directions(tiny_subject), layers=layers)


def test_directions_of_another_site_are_not_added_to_what_a_block_puts_out(tiny_subject):
    own = directions(tiny_subject)
    other = replace(own, site="mlp_out")
    with pytest.raises(MismatchError, match="fitted at site mlp_out, but edits act on resid_post"):
        swept(tiny_subject, other)
    with pytest.raises(MismatchError, match="shuffled labels is of site mlp_out"):
        swept(tiny_subject, own, controls=["shuffled"], shuffled=other)
    with pytest.raises(ConfigError, match="shuffled labels is zero"):
        swept(tiny_subject, own, controls=["shuffled"], shuffled=own * 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"baselines": [{"name": "x", "system": "a"}, {"name": "x", "system": "b"}]}, "'x', 'x'"),
        ({"baselines": [{"name": "", "system": "a"}]}, "a name of its own"),
        ({"baselines": [{"system": "a"}]}, "name .required., system, shots"),
        ({"baselines": [{"name": "x", "sytem": "a"}]}, "name .required., system, shots"),
        ({"readouts": []}, "no readouts"),
        ({"controls": "random:²"}, "the number after the colon"),
    ],
)
def test_what_would_mix_rows_or_measure_nothing_is_refused(tiny_subject, options, message):
    with pytest.raises(ConfigError, match=message):
        swept(tiny_subject, directions(tiny_subject), **options)


def test_no_subject_is_no_sweep(tiny_subject):
    with pytest.raises(ConfigError, match="no subject"):
        wb.sweep([], directions(tiny_subject), readouts=[NextToken()], doses=[1])


def test_the_drift_of_a_baseline_is_what_its_prompt_does(tiny_subject):
    """Against itself the prompted model drifted by exactly 0."""
    prompts = wb.PromptSet.from_records(
        [{"id": str(n), "text": text} for n, text in enumerate(TEXTS)], text="text"
    )
    told = {"name": "told", "system": "a city is not in a city"}
    table = swept(
        tiny_subject, directions(tiny_subject), readouts=[{"name": "drift", "prompts": prompts}],
        doses=[0.5], baselines=[told],
    )  # fmt: skip

    def logprobs(subject):
        ids = [subject.renderer.render(text, render="chat").ids for text in TEXTS]
        with torch.no_grad():
            logits = [subject.model(torch.tensor([one])).logits[0, -1].double() for one in ids]
        return torch.stack(logits).log_softmax(-1).numpy()

    plain, moved = logprobs(tiny_subject), logprobs(prompted(tiny_subject, system=told["system"]))
    expected = (np.exp(plain) * (plain - moved)).sum(-1)
    np.testing.assert_allclose(values(table, control="prompt:told"), expected, atol=1e-5)
    assert expected.min() > 1e-3
    np.testing.assert_allclose(values(table, dose=0.0), 0, atol=1e-6)
