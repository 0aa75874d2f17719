"""The laws that the true and false statements keep."""

from collections import Counter, defaultdict

import pytest

from workbench.data import data_path
from workbench.data.rows import dump_rows, read_rows
from workbench.data.statements.draw import spell
from workbench.data.statements.generate import TOPICS, statement_rows, topic_facts, topic_kinds

ROWS = read_rows(data_path("statements"))
NUMBERS = {spell(number): number for number in range(100)}
COLUMNS = ["id", "text", "label", "topic", "polarity", "fact", "source"]


def rows_of(topic, **where):
    rows = [row for row in ROWS if row["topic"] == topic]
    return [row for row in rows if all(row[key] == value for key, value in where.items())]


def last_word(row):
    return row["text"].rstrip(".").split()[-1]


def test_the_committed_file_is_what_the_generator_writes():
    assert data_path("statements").read_text(encoding="utf-8") == dump_rows(statement_rows())


def test_every_row_has_the_columns_of_a_statement_in_order():
    assert all(list(row) == COLUMNS for row in ROWS)
    assert len({row["id"] for row in ROWS}) == len(ROWS)
    assert len({row["text"] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_has_at_least_150_affirmed_statements_and_as_many_negated(topic):
    affirmed = rows_of(topic, polarity=1)
    assert len(affirmed) >= 150
    assert len(rows_of(topic, polarity=-1)) == len(affirmed)


def test_geography_has_facts_enough_to_be_split():
    assert len({row["fact"] for row in rows_of("geography")}) >= 200


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("polarity", [1, -1])
def test_labels_are_balanced_within_topic_and_polarity(topic, polarity):
    labels = Counter(row["label"] for row in rows_of(topic, polarity=polarity))
    assert labels[0] == labels[1]


def test_a_fact_is_one_true_and_one_false_statement_in_each_polarity():
    facts = defaultdict(list)
    for row in ROWS:
        facts[row["fact"]].append((row["polarity"], row["label"]))
    assert {tuple(sorted(group)) for group in facts.values()} == {
        ((-1, 0), (-1, 1), (1, 0), (1, 1))
    }


def test_a_negation_turns_the_truth_of_the_same_words():
    for topic in TOPICS:
        for fact in topic_facts(topic):
            true, false, denied_true, denied_false = fact.rows()
            assert [true["label"], false["label"]] == [1, 0]
            assert [denied_true["label"], denied_false["label"]] == [0, 1]
            assert last_word(true) == last_word(denied_true)
            assert last_word(false) == last_word(denied_false)


def test_a_negated_sentence_says_so_and_an_affirmed_one_does_not():
    for row in ROWS:
        words = row["text"].lower().split()
        assert (("not" in words) or words[0] == "no") == (row["polarity"] == -1), row["text"]


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("polarity", [1, -1])
def test_the_last_word_does_not_predict_the_label(topic, polarity):
    true, false = (
        Counter(last_word(row) for row in rows_of(topic, polarity=polarity, label=label))
        for label in (1, 0)
    )
    assert true == false


@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic != "arithmetic"])
def test_false_values_have_the_margins_of_true_ones_under_each_sentence(topic):
    margins = defaultdict(Counter)
    for fact in topic_facts(topic):
        margins[fact.affirm][fact.true["value"]] += 1
        margins[fact.affirm][fact.false["value"]] -= 1
    assert all(not any(counts.values()) for counts in margins.values())


@pytest.mark.parametrize("topic", TOPICS)
def test_no_word_of_a_topic_is_much_more_common_in_true_statements(topic):
    counts = {1: Counter(), 0: Counter()}
    for row in rows_of(topic, polarity=1):
        counts[row["label"]].update(set(row["text"].rstrip(".").lower().split()))
    for word in counts[1] | counts[0]:
        true, false = counts[1][word], counts[0][word]
        assert abs(true - false) <= 3 * (true + false) ** 0.5, (word, true, false)


def test_no_false_value_is_one_that_its_subject_may_share():
    for topic in TOPICS:
        allowed = {
            (subject, value): kind.forbidden(subject, value)
            for kind in topic_kinds(topic)
            for subject, value in kind.facts()
        }
        for fact in topic_facts(topic):
            pair = (fact.true["subject"], fact.true["value"])
            assert fact.false["value"] not in allowed.get(pair, set())


def test_a_family_or_exception_in_a_table_names_values_that_exist():
    for topic in TOPICS:
        for kind in topic_kinds(topic):
            values = {value for _, value in kind.facts()}
            assert {value for family in kind.families for value in family} <= values
            assert set(kind.never) <= {subject for subject, _ in kind.facts()}


def test_a_subject_has_one_fact_in_a_table():
    for topic in TOPICS:
        listed = [subject for kind in topic_kinds(topic) for subject, _ in kind.facts()]
        assert [name for name, count in Counter(listed).items() if count > 1] == []


def test_no_city_of_a_country_is_a_capital_too():
    kinds = {kind.name: kind for kind in topic_kinds("geography")}
    cities = {subject for subject, _ in kinds["city"].facts()}
    capitals = {value for name in ("capital", "state_capital") for _, value in kinds[name].facts()}
    assert not cities & capitals


def test_a_translation_is_used_once_in_all_languages():
    values = [value for kind in topic_kinds("translation") for _, value in kind.facts()]
    assert len(values) == len(set(values))


def test_comparisons_are_right_and_use_no_pair_of_numbers_twice():
    pairs = Counter()
    for fact in topic_facts("arithmetic"):
        above = "larger" in fact.affirm or "greater" in fact.affirm
        second = NUMBERS[fact.true["value"]]
        for filled, holds in ((fact.true, True), (fact.false, False)):
            first = NUMBERS[filled["subject"]]
            assert (first > second if above else first < second) == holds
            pairs[frozenset((first, second))] += 1
    assert max(pairs.values()) == 1


def test_numbers_are_spelled_in_words():
    spelled = " ".join(map(spell, (0, 9, 12, 19, 20, 21, 40, 99)))
    assert spelled == "zero nine twelve nineteen twenty twenty-one forty ninety-nine"
    assert len(set(map(spell, range(100)))) == 100


def test_the_first_number_of_a_comparison_does_not_predict_the_label():
    facts = topic_facts("arithmetic")
    true = sum(NUMBERS[fact.true["subject"]] for fact in facts) / len(facts)
    false = sum(NUMBERS[fact.false["subject"]] for fact in facts) / len(facts)
    assert abs(true - false) < 3


def test_every_statement_ends_in_a_letter_and_a_period():
    assert all(row["text"][-1] == "." and row["text"][-2].isalpha() for row in ROWS)


def test_no_double_article_or_space_is_left_by_a_template():
    for row in ROWS:
        assert "  " not in row["text"]
        assert "the The" not in row["text"]
        assert "{" not in row["text"]


def test_no_statement_begins_with_its_subject():
    for topic in TOPICS:
        for fact in topic_facts(topic):
            assert not fact.affirm.startswith("{subject}")
            assert not fact.deny.startswith("{subject}")


def test_the_readme_counts_the_facts_of_every_topic():
    readme = (data_path("statements").parent / "README.md").read_text(encoding="utf-8")
    for topic in TOPICS:
        facts = len({row["fact"] for row in rows_of(topic)})
        assert f"| {topic} | {facts} |" in readme
