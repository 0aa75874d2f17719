"""Roles and traits are read from what ships, from tables laid out alike and from released files."""

import json

import pytest

from workbench.errors import ConfigError, FormatError
from workbench.personas import (
    read_default,
    read_questions,
    read_roles,
    read_trait_questions,
    read_traits,
)

RUBRIC = "Asked {question}, it said {answer}. Is it a {role}?"
ASKED = "Q: {question} A: {answer}"


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


@pytest.fixture
def checkout(tmp_path):
    """A folder as the assistant-axis project has it, with two roles and one trait."""
    roles, traits = (tmp_path / "data" / kind / "instructions" for kind in ("roles", "traits"))
    for name in ("beekeeper", "ship_captain"):
        told = [{"pos": f"Be a {name}."}, {"pos": f"Now you are a {name}."}]
        write(roles / f"{name}.json", {"instruction": told, "eval_prompt": ASKED})
    write(roles / "default.json", {"instruction": [{"pos": ""}, {"pos": "You are {model_name}."}]})
    pairs = [{"pos": "Be curt.", "neg": "Be chatty."}]
    content = {"instruction": pairs, "eval_prompt": ASKED, "questions": ["Why?"]}
    write(traits / "curt.json", content)
    rows = [{"id": 7, "question": "Who are you?"}, {"id": 9, "question": "What now?"}]
    lines = "\n".join(json.dumps(row) for row in rows)
    write(tmp_path / "data" / "extraction_questions.jsonl", lines)
    return tmp_path


@pytest.mark.parametrize("inside", ["", "data", "data/roles", "data/roles/instructions"])
def test_a_released_folder_gives_its_roles_without_the_default(checkout, inside):
    roles = read_roles(checkout / inside)
    assert list(roles) == ["beekeeper", "ship_captain"]
    captain = roles["ship_captain"]
    assert captain.prompts == ("Be a ship_captain.", "Now you are a ship_captain.")
    assert captain.rubric == ASKED


def test_a_released_default_keeps_its_empty_prompt_and_is_not_judged(checkout):
    default = read_default(checkout)
    assert (default.name, default.prompts) == ("default", ("", "You are {model_name}."))
    assert default.rubric == ""


def test_a_released_trait_keeps_its_pairs_and_questions(checkout):
    (curt,) = read_traits(checkout).values()
    assert (curt.positive, curt.negative) == (("Be curt.",), ("Be chatty.",))
    assert (curt.name, curt.antonym, curt.questions) == ("curt", "", ("Why?",))


def test_a_folder_of_trait_files_alone_is_read(checkout):
    assert list(read_traits(checkout / "data/traits/instructions")) == ["curt"]


@pytest.mark.parametrize("inside", ["", "data", "data/extraction_questions.jsonl"])
def test_released_questions_keep_their_ids(checkout, inside):
    questions = read_questions(checkout / inside)
    assert (questions.ids, questions.items) == (("7", "9"), ("Who are you?", "What now?"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "no JSON file"),
        ("[]", "list found"),
        ({"eval_prompt": ASKED}, "'instruction' is missing"),
        ({"instruction": [], "eval_prompt": ASKED}, r"'instruction' = \[\]"),
        ({"instruction": ["Be."], "eval_prompt": ASKED}, "'instruction' = "),
        ({"instruction": [{"neg": "x"}], "eval_prompt": ASKED}, '"pos": text'),
        ({"instruction": [{"pos": 3}], "eval_prompt": ASKED}, "'pos': 3"),
        ({"instruction": [{"pos": "x"}]}, "'eval_prompt' is missing"),
        ({"instruction": [{"pos": "x"}], "eval_prompt": "{answer}?"}, "slots {question}"),
    ],
)
def test_a_bad_released_role_names_the_file_the_key_and_the_form(checkout, content, said):
    write(checkout / "data/roles/instructions/beekeeper.json", content)
    with pytest.raises(FormatError, match=rf"beekeeper\.json.*{said}"):
        read_roles(checkout)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("instruction", [{"pos": "x"}], "'instruction'"),
        ("questions", [1], r"'questions' = \[1\]; a list of texts"),
    ],
)
def test_a_bad_released_trait_names_the_file_the_key_and_the_form(checkout, key, value, said):
    path = checkout / "data/traits/instructions/curt.json"
    write(path, json.loads(path.read_text()) | {key: value})
    with pytest.raises(FormatError, match=rf"curt\.json: key {said}"):
        read_traits(checkout)


def test_a_released_folder_without_a_default_says_so(checkout):
    (checkout / "data/roles/instructions/default.json").unlink()
    with pytest.raises(FormatError, match=r"no default\.json"):
        read_default(checkout)


def test_a_folder_without_questions_says_which_file_is_missing(tmp_path):
    with pytest.raises(ConfigError, match=r"no extraction_questions\.jsonl"):
        read_questions(tmp_path)


@pytest.mark.parametrize("text", ["{", '{"topic": "self"}'])
def test_a_bad_question_file_is_named(tmp_path, text):
    with pytest.raises(ConfigError, match=r"asked\.jsonl"):
        read_questions(write(tmp_path / "asked.jsonl", text))


@pytest.mark.parametrize("read", [read_roles, read_traits, read_default])
def test_a_missing_folder_is_named(tmp_path, read):
    with pytest.raises(ConfigError, match=r"no folder .*absent"):
        read(tmp_path / "absent")


def own_roles(folder, table):
    write(folder / "default.toml", f"prompts = ['']\nrubric = '{RUBRIC}'")
    return write(folder / "mine.toml", table).parent


def test_a_folder_of_tables_gives_roles_whose_rubric_names_them(tmp_path):
    table = "[tax_clerk]\nis = 'A clerk.'\nprompts = '''\nYou count.\n\n  You file.\n'''"
    roles = read_roles(own_roles(tmp_path, table))
    assert roles["tax_clerk"].prompts == ("You count.", "You file.")
    assert roles["tax_clerk"].rubric == RUBRIC.replace("{role}", "tax clerk")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("clerk = 3", "clerk = 3; a table"),
        ("[clerk]\nis = 'A clerk.'", r"\[clerk\]: key 'prompts' is missing"),
        ("[clerk]\nis = 'A clerk.'\nprompt = 'x'", "did you mean 'prompts'"),
        ("[clerk]\nis = ''\nprompts = 'x'", r"\[clerk\]: is = ''"),
        ("[clerk]\nis = 'A clerk.'\nprompts = ' '", "no line of text"),
    ],
)
def test_a_bad_table_of_a_role_is_named(tmp_path, table, said):
    with pytest.raises(ConfigError, match=rf"mine\.toml.*{said}"):
        read_roles(own_roles(tmp_path, table))


def test_a_role_in_two_files_is_refused(tmp_path):
    table = "[clerk]\nis = 'A clerk.'\nprompts = 'You count.'"
    write(own_roles(tmp_path, table) / "more.toml", table)
    with pytest.raises(ConfigError, match=r"more\.toml: \[clerk\] stands in another file"):
        read_roles(tmp_path)


def test_a_rubric_that_hides_the_answer_is_refused(tmp_path):
    write(tmp_path / "default.toml", "prompts = ['']\nrubric = 'About {question}'")
    with pytest.raises(ConfigError, match=r"default\.toml: key 'rubric' lacks \{answer\}"):
        read_roles(tmp_path)


def test_a_folder_with_a_rubric_alone_has_no_tables(tmp_path):
    write(tmp_path / "rubric.toml", f"rubric = '{ASKED}'")
    with pytest.raises(ConfigError, match="no TOML tables"):
        read_traits(tmp_path)


@pytest.mark.parametrize("line", ["Be curt.", "Be curt. |", "a | b | c"])
def test_a_line_that_is_no_pair_is_named(tmp_path, line):
    write(tmp_path / "rubric.toml", f"rubric = '{ASKED}'")
    pairs = f"'''\nBe brief. | Be long.\n{line}\n'''"
    write(tmp_path / "mine.toml", f"[curt]\nis = 'cuts'\nantonym = 'chatty'\npairs = {pairs}")
    with pytest.raises(ConfigError, match=r"mine\.toml, \[curt\], pairs, line 2: .*positive \|"):
        read_traits(tmp_path)


def test_a_description_with_braces_stays_as_it_is(tmp_path):
    own_roles(tmp_path, "[clerk]\nis = 'A {role} of {answer}.'\nprompts = 'You count.'")
    rubric = "{description} | {question}{answer}"
    write(tmp_path / "default.toml", f"prompts = ['']\nrubric = '{rubric}'")
    assert read_roles(tmp_path)["clerk"].rubric == "A {role} of {answer}. | {question}{answer}"


def test_a_trait_without_questions_of_its_own_gets_the_general_ones():
    general, own = read_trait_questions("fair"), read_trait_questions("sycophantic")
    assert general.ids == read_trait_questions().ids
    assert set(own.column("trait")) == {"sycophantic"}
    with pytest.raises(ValueError, match="extraction, evaluation"):
        read_trait_questions(part="test")
