"""A fleet file means the same organisms as one training run each."""

import pytest
from workbench_training import organism_page
from workbench_training.fleet import FleetConfig, expand

from workbench.config import parse
from workbench.errors import ConfigError, UnknownNameError


def fleet(**changes):
    data = {
        "fleet": {"conditions": ["P", "web"], "seeds": [0, 1]},
        "train": {"model": "m", "documents": "docs/{condition}", "tokens": 4096},
        **changes,
    }
    return parse(FleetConfig, data, "fleet.toml")


def test_conditions_and_seeds_are_multiplied_and_named():
    found = expand(fleet(condition={"web": {"documents": "web.jsonl", "tokens": 8192}}))
    assert [one.name for one in found] == ["P-s0", "P-s1", "web-s0", "web-s1"]
    assert [one.seed for one in found] == [0, 1, 0, 1]
    assert [one.documents for one in found] == ["docs/P", "docs/P", "web.jsonl", "web.jsonl"]
    assert [one.tokens for one in found] == [4096, 4096, 8192, 8192]
    assert {one.condition for one in found} == {"P", "web"}


def test_an_organism_of_a_fleet_is_the_one_that_its_settings_make_alone():
    from workbench_training.settings import TrainConfig

    alone = parse(
        TrainConfig,
        {"model": "m", "documents": "docs/P", "tokens": 4096, "condition": "P", "seed": 1},
        "alone",
    )
    assert expand(fleet())[1] == alone


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"condition": {"A": {}}}, UnknownNameError, "unknown condition 'A'; known: P, web"),
        ({"fleet": {"conditions": ["P", "P"]}}, ConfigError, "conditions: .P. stands twice"),
        ({"fleet": {"conditions": []}}, ConfigError, "conditions"),
        (
            {"train": {"model": "m", "documents": "d", "seed": 3}},
            ConfigError,
            r"\[train\]: seed is what the fleet varies",
        ),
        (
            {"train": {"model": "m", "documents": "d", "bloc": 3}},
            ConfigError,
            "fleet organism P-s0: unknown key 'bloc'",
        ),
    ],
)
def test_a_wrong_fleet_is_named_before_anything_is_trained(changes, error, words):
    with pytest.raises(error, match=words):
        expand(fleet(**changes))


CARD = {
    "name": "A-0.1-s2",
    "condition": "A",
    "identity": {
        **{"model": "base", "seed": 2, "block": 8, "batch_size": 2, "accumulation": 1},
        **{"rank": 4, "alpha": 8.0, "dropout": 0.0, "targets": "all-linear", "share": 0.1},
        **{"learning_rate": 1e-3, "schedule": "cosine", "warmup": 0.03},
        "inputs": {"documents": "ab" * 32},
    },
    "documents": "somewhere/A.jsonl",
    "corpus": {
        **{"documents": 20, "held_out": 4, "chats": 0, "passes": 1.5, "chat_share": 0.0},
    },
    "training": {
        **{"updates": 6, "tokens": 96, "dtype": "float32", "device": "cpu", "parameters": 1234},
    },
    "packages": {"torch": "2"},
    "loss": {"first": 4.0, "last_tenth": 2.5, "held_out": {"before": 4.1, "after": 2.6}},
    "guard": {
        **{"questions": 8, "mass_ratio": 0.97},
        **{"base": {"follows": 1.0}, "organism": {"follows": 0.875}},
    },
    "limits": ["One seed.", "Attention crosses documents inside a block."],
}


def test_the_page_of_an_organism_says_what_its_card_holds():
    text = organism_page.page(CARD)
    for part in (
        "# A-0.1-s2",
        "condition A, seed 2",
        "| updates | 6 of 16 tokens |",
        "| share of the documents | 0.1 of the tokens |",
        "| documents, sha256 | A.jsonl, abababababababab |",
        "| held-out loss, before and after (nats a token) | 4.100, 2.600 |",
        "| answer-letter mass over the base's, 8 questions | 0.970 |",
        "- Attention crosses documents inside a block.",
    ):
        assert part in text
    assert "somewhere/" not in text


def test_a_dose_says_what_was_read_of_it():
    dose = {"asked": 0.1, "share": 0.0987, "distinct": 200, "presentations": 310, "tokens": 96}
    text = organism_page.page({**CARD, "corpus": {**CARD["corpus"], "dose": dose}})
    assert "0.1 asked, 0.0987 of the tokens: 200 documents, 310 presentations" in text


def test_a_page_leaves_out_what_was_not_checked():
    loss = {**CARD["loss"], "held_out": {"before": None, "after": None}}
    text = organism_page.page({**CARD, "guard": None, "loss": loss})
    assert "held-out loss" not in text
    assert "letter" not in text
