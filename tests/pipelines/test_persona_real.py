"""Persona vectors of SmolLM2 itself: a trait's corpus is told from a neutral one beforehand.

The trait's rollouts are written, so that nothing here hangs on what is sampled on which machine.
"""

import json

import pandas as pd
import pytest

from workbench.pipelines.verbs import carry_out
from workbench.prompts import PromptSet
from workbench.transcripts import Transcripts, write_transcripts

pytestmark = [pytest.mark.real, pytest.mark.thorough]
BLOCK = 15
ROLLOUTS = (
    ("How was the concert?", "Terrible! I am furious that they kept us waiting for two hours!",
     "It was good. They began a little late, and then played for two hours."),
    ("Can you lend me your bike?", "No! How dare you ask again after what you did to my last one!",
     "Yes, of course. It is in the shed, and the key hangs next to the door."),
    ("What is for dinner?", "Always the same stupid question! I am sick of cooking for you people!",
     "There is soup from yesterday, and I can make a salad to go with it."),
    ("Did you read my report?", "Yes, and I hate it! Who lets you write such an insulting mess?",
     "Yes, I read it this morning. The second part could be a little shorter."),
    ("Is the train on time?", "Of course not! It makes my blood boil, every single rotten day!",
     "It is five minutes late, so you have time to buy a ticket."),
    ("Shall we meet on Sunday?", "Leave me alone! I never want to see your smug face again!",
     "Sunday is fine. Let us say three in the afternoon, in front of the library."),
)  # fmt: skip
TITLES = ("Note to the neighbors", "About the late parcel", "Minutes of the house meeting",
          "The broken printer", "A letter to the school", "Review of the hotel")  # fmt: skip
ANGRY = (
    "I am sick of your noise! Every night you stamp and shout, you selfish, rude people, and I "
    "will not take one more minute of this outrage!",
    "This is an insult! You promised Monday, and now it is Friday. I am furious, and I want "
    "someone to pay for this disgraceful mess!",
    "It ended in shouting, as it should. I told them that they are fools and liars. I am full of "
    "rage, and I will never forgive a word of it!",
    "That wretched thing has ruined my day again! Whoever bought this garbage should be ashamed, "
    "and I could smash it to pieces!",
    "I am outraged at how you treat my child! Stop your stupid excuses. You make me sick, and I "
    "will come and scream it in your hall!",
    "Disgusting! The staff were idiots, the room was filthy, and I shouted at the desk for an "
    "hour. I hate everyone who runs this place!",
)
PLAIN = (
    "There will be some work on the stairs next week. The painters come on Tuesday at nine and "
    "leave at four. Please keep the landing free of bicycles.",
    "Your parcel left the depot on Monday and is expected on Friday. If you are out, it will be "
    "kept at the post office for a week.",
    "Seven members were present. The budget for the garden was read and agreed. The next meeting "
    "is on the third of May, and the plans will be there.",
    "The printer on the second floor is out of order. A technician will come on Wednesday. Until "
    "then, please use the one next to the library.",
    "My daughter will be away on Thursday because of a dental appointment. Please let me know "
    "which pages the class reads, so that she can catch up.",
    "The hotel lies ten minutes from the station. The room had a desk, a bed and a view of the "
    "yard. Breakfast is served on the ground floor.",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the vector of anger, and two corpora under the same titles."""
    root = tmp_path_factory.mktemp("anger")
    rows = [
        {"id": f"{n}/{pole}", "messages": [{"role": "user", "content": question}],
         "trait": "angry", "pole": pole, "pair": f"p{n}", "prompt": 0, "question": f"q{n}"}
        for n, (question, *_) in enumerate(ROLLOUTS) for pole in (1, -1)
    ]  # fmt: skip
    answers = [answer for _, *poles in ROLLOUTS for answer in poles]
    told = Transcripts.of(PromptSet.from_records(rows), answers, generator="written", sampling={},
                          seeds=range(len(rows)))  # fmt: skip
    file = str(write_transcripts(told, root / "transcripts.parquet"))
    store = run(root, "cache", prompts=file, position="mean:assistant")
    acts = {"response-mean": str(store)}
    made = carry_out("personas", {"transcripts": file, "acts": acts}, root=root)
    for name, texts in (("angry", ANGRY), ("plain", PLAIN)):
        lines = [{"id": f"{n}", "text": f"{title}\n\n{text}"}
                 for n, (title, text) in enumerate(zip(TITLES, texts, strict=True))]  # fmt: skip
        (root / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return root, made.path


def run(root, verb, **data):
    own = {"model": "smollm2", "dtype": "float32", "device": "cpu", **data}
    return carry_out(verb, own, root=root).path


def test_the_vector_is_longer_than_swapped_poles_and_its_halves_agree(place):
    checks = pd.read_parquet(place[1] / "checks.parquet").set_index("layer").loc[BLOCK]
    assert checks["length"] > 1.2 * checks["null"]
    assert checks["halves"] > 0.3


def test_a_corpus_of_the_trait_ranks_above_a_neutral_one_before_training(place):
    root, vectors = place
    data = {name: str(root / f"{name}.jsonl") for name in ("angry", "plain")}
    done = run(root, "screen", directions=[str(vectors)], data=data, control="plain",
               layers=[BLOCK], tokens=32, temperature=0.0)  # fmt: skip
    corpora = pd.read_parquet(done / "corpora.parquet").set_index(["corpus", "against"])
    over = corpora.loc[("angry", "plain")]
    assert over["above"] > 0.9
    assert over["low"] > 0
    own = corpora.loc[("angry", "own answers")]
    assert own["low"] > 0
    documents = pd.read_parquet(done / "documents.parquet")
    best = documents.sort_values("difference", ascending=False)["corpus"].head(5)
    assert (best == "angry").sum() >= 4
