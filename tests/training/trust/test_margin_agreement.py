"""What a training says of held-out pairs is what the readout finds with the matrix in an arm."""

import json

import numpy as np
import pytest
from workbench_training.pair_fit import train_on_pairs
from workbench_training.pair_settings import SCOPES, PairFitConfig

from workbench.interventions import Intervention
from workbench.readouts.ask import ask
from workbench.readouts.reply_margin import ReplyMargin

WORDS = ("city", "send", "answer", "true", "false", "you", "in", "of")


def rows():
    rng = np.random.default_rng(1)

    def words(n):
        return " ".join(rng.permutation(WORDS)[:n])

    turns = [{"role": "user", "content": words(4)}, {"role": "assistant", "content": words(3)}]
    return [
        {
            "id": f"r{n}", "prompt": [*turns, {"role": "user", "content": words(5)}],
            "chosen": words(4), "rejected": words(5), "facet": "ability", "scenario": f"s{n}",
            "split": "train" if n < 4 else "test",
        }
        for n in range(8)
    ]  # fmt: skip


@pytest.mark.parametrize("span", ["last_user", "user", "assistant"])
def test_training_and_readout_give_one_margin_before_and_after(tiny_subject, span, tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    config = PairFitConfig(pairs=str(path), span=span, epochs=2, learning_rate=0.3, batch_size=2)
    done = train_on_pairs(tiny_subject, str(path), config)
    matrix = done.found
    assert matrix.info["scope"] == SCOPES[span]
    arm = Intervention.add(matrix, layers=matrix.layers, dose=1.0, scope=matrix.info["scope"])
    before, after = ask(tiny_subject, [ReplyMargin(path)], [(), arm.arm(tiny_subject.stamp)])
    means = [np.mean([m.value for m in one.measurements]) for one in (before, after)]
    assert means[0] == pytest.approx(done.told["margin_before"], abs=1e-5)
    assert means[1] == pytest.approx(done.told["margin_after"], abs=1e-4)
    assert abs(means[1] - means[0]) > 1e-3
