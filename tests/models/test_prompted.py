"""The prompting baseline: the same model behind a system text and example turns."""

import pytest

from workbench.errors import ConfigError
from workbench.models.prompted import prompted
from workbench.readouts.claims import Claims

SHOTS = (
    {"role": "user", "content": "the city?"},
    {"role": "assistant", "content": "is true"},
)


def test_a_chat_begins_with_the_system_text_and_the_shots(tiny_subject):
    told = prompted(tiny_subject, system="in a city", shots=SHOTS)
    plain = [{"role": "system", "content": "in a city"}, *SHOTS, {"role": "user", "content": "of"}]
    expected = tiny_subject.renderer.render(plain)
    for item in ("of", [{"role": "user", "content": "of"}]):
        found = told.renderer.render(item, render="chat")
        assert found.ids == expected.ids
        assert found.spans == expected.spans


def test_a_system_message_of_the_chat_stays_behind_the_baselines(tiny_subject):
    told = prompted(tiny_subject, system="in a city")
    chat = [{"role": "system", "content": "of the"}, {"role": "user", "content": "is"}]
    joined = [{"role": "system", "content": "in a city\n\nof the"}, chat[1]]
    assert told.renderer.render(chat).ids == tiny_subject.renderer.render(joined).ids
    found = told.renderer.render(chat[1:], system="of the")
    assert found.ids == tiny_subject.renderer.render(joined).ids


def test_a_bare_text_keeps_its_own_tokens_as_its_content(subject_of):
    for bos in (False, True):
        subject = subject_of("qwen3", bos=bos)
        told = prompted(subject, system="in a city", shots=SHOTS)
        found = told.renderer.render("the city is true", render="bare")
        alone = subject.renderer.render("the city is true", render="bare")
        start, stop = found.spans["content"][0]
        assert found.ids[start:stop] == alone.ids[1:]  # behind the BOS, or behind its first token
        whole = subject.tokenizer.decode(list(found.ids), skip_special_tokens=True)
        assert whole == "in a city\n\nthe city?\n\nis true\n\nthe city is true"
        assert list(found.ids).count(subject.tokenizer.bos_token_id) <= 1


def test_a_claim_is_scored_behind_the_preface_on_its_own_tokens(tiny_subject):
    told = prompted(tiny_subject, system="in a city")
    plain, prefaced = (Claims(["loglik"]).requests(subject)[0] for subject in (tiny_subject, told))
    (own,) = plain.reads[0].candidates
    (behind,) = prefaced.reads[0].candidates
    assert behind == own
    assert len(prefaced.ids) > len(plain.ids)


def test_the_weights_are_shared_and_the_subject_is_left_as_it_was(tiny_subject):
    before = tiny_subject.renderer
    told = prompted(tiny_subject, system="x")
    assert told.model is tiny_subject.model
    assert tiny_subject.renderer is before
    assert told.encode(["of the"]).input_ids.shape[1] > 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "needs a system text or example turns"),
        ({"system": "  "}, "needs a system text or example turns"),
        ({"shots": SHOTS[:1]}, "have the roles user;"),
        ({"shots": SHOTS[::-1]}, "have the roles assistant, user;"),
    ],
)
def test_a_baseline_that_says_nothing_or_breaks_the_turns_is_refused(tiny_subject, options, words):
    with pytest.raises(ConfigError, match=words):
        prompted(tiny_subject, **options)
