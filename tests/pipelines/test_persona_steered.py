"""A persona vector where training is steered: the file of the verb personas, added or taken out."""

import pytest
import torch
from workbench_training.steered import applied
from workbench_training.steered_settings import SteerConfig

from workbench.directions import open_directions
from workbench.engine.blocks import hidden_of
from workbench.pipelines.verbs import carry_out
from workbench.prompts import PromptSet
from workbench.transcripts import Transcripts, write_transcripts

BLOCK, TEXTS = 2, ["the city of the answer is true to you"] * 2


@pytest.fixture(scope="module")
def made(make_subject, tiny_folder, tmp_path_factory):
    """A model in training mode, and the run folder of its trait vectors."""
    root = tmp_path_factory.mktemp("steered")
    rows = [
        {"id": f"{n}/{pole}", "messages": [{"role": "user", "content": f"Is it {n}?"}],
         "trait": "loud", "pole": pole, "pair": f"p{n}", "prompt": 0, "question": f"q{n}"}
        for n in range(4) for pole in (1, -1)
    ]  # fmt: skip
    answers = ["TRUE! THE CITY!" if row["pole"] > 0 else "in the city" for row in rows]
    told = Transcripts.of(PromptSet.from_records(rows), answers, generator="written", sampling={},
                          seeds=range(len(rows)))  # fmt: skip
    file = str(write_transcripts(told, root / "transcripts.parquet"))
    model = tiny_folder(root / "qwen3")
    store = {"model": str(model), "prompts": file, "position": "mean:assistant", "device": "cpu",
             "dtype": "float32"}  # fmt: skip
    acts = {"response-mean": str(carry_out("cache", store, root=root).path)}
    done = carry_out("personas", {"transcripts": file, "acts": acts, "draws": 100}, root=root)
    subject = make_subject("qwen3")
    subject.model.train()
    return subject, done.path


def states(subject):
    kept = []
    handle = subject.blocks[BLOCK].register_forward_hook(
        lambda _module, _args, output: kept.append(hidden_of(output).detach())
    )
    try:
        subject.model(subject.encode(TEXTS).input_ids, use_cache=False)
    finally:
        handle.remove()
    return kept[0]


def test_the_vector_is_added_while_training_as_often_as_its_coefficient_says(made):
    subject, folder = made
    vector = torch.tensor(open_directions(folder / "directions.safetensors")["loud"].at(BLOCK)[0])
    plain = states(subject)
    config = SteerConfig(
        directions=str(folder), names=["loud"], layers=[BLOCK], coefficient=5.0
    )  # fmt: skip
    with applied(config, subject):
        moved = states(subject)
    torch.testing.assert_close(
        moved - plain, (5.0 * vector).expand_as(plain), atol=1e-4, rtol=1e-4
    )  # fmt: skip
    torch.testing.assert_close(states(subject), plain)  # and is gone afterwards


def test_taken_out_while_training_nothing_of_the_vector_is_left(made):
    subject, folder = made
    unit = open_directions(folder / "directions.safetensors")["loud"].select([BLOCK])
    unit = torch.tensor(unit.unit_vectors()[0, 0])
    config = SteerConfig(directions=str(folder), names=["loud"], layers=[BLOCK], mode="ablate")
    with applied(config, subject):
        left = states(subject)
    assert (left @ unit).abs().max() < 1e-4 < (states(subject) @ unit).abs().max()
