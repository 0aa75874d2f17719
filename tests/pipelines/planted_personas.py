"""Stores of a planted persona space, as runs on disk, for the tests of axis and cosines."""

from dataclasses import replace

import numpy as np

from workbench.activations import Activations
from workbench.activations.store import Store
from workbench.prompts import PromptSet
from workbench.runs import open_run
from workbench.transcripts import Scores, Transcripts, write_transcripts
from workbench.types import ModelStamp

D = 24
STAMP = ModelStamp("tiny", "llama", 2, D, "0123456789abcdef", "fedcba9876543210")
ROLES = tuple("abcdefghij")
TRAITS = ("calm", "rude")
ASSISTANT, SIDE, CALM, SOCIAL = 0, 1, 3, 4
"""Axes of the space: roles spread along the first two, traits along the third."""
POISON = 1e3


def write_store(root, name, columns, values, stamp=STAMP):
    """Write values (layers, n, D) as a finished cache run; ids are made where there are none."""
    n = values.shape[1]
    columns = {"id": np.array([f"{name}-{row}" for row in range(n)]), **columns}
    acts = Activations.from_values(
        values.astype(np.float32), columns, model=stamp, position="mean:assistant"
    )
    with open_run("cache", {"name": name, "model": stamp.key}, root=root) as run:
        store = Store.create(run.path / "acts", acts.manifest)
        store.write(acts._parts[0])
        store.finish()
        run.finish({}, models=[stamp.key])
    return str(run.path)


def organism(condition, seed):
    return replace(STAMP, key=f"tiny+{condition}-s{seed}", fingerprint=f"{seed:016d}")


def layered(values):
    """Two layers, the second twice as long."""
    return np.stack([values, 2 * values])


def role_place(role):
    place = np.zeros(D)
    place[ASSISTANT] = 30 - 1.0 * ROLES.index(role)
    place[SIDE] = (-1) ** ROLES.index(role)
    place[5] = 40
    return place


def default_place():
    place = np.zeros(D)
    place[ASSISTANT], place[5] = 36, 40
    return place


def role_rollouts(score=3, per=12, bad=3, noise=0.2, seed=0):
    """``per`` rollouts a role of one score, ``bad`` of score 0 that lie far away, 20 default."""
    rng = np.random.default_rng(seed)
    rows = [(role, score, role_place(role)) for role in ROLES for _ in range(per)]
    rows += [(role, 0, np.full(D, POISON)) for role in ROLES for _ in range(bad)]
    rows += [("default", np.nan, default_place())] * 20
    role, scores, place = (np.array(part) for part in zip(*rows, strict=True))
    values = place + noise * rng.standard_normal((len(rows), D))
    return {"role": role, "score": scores.astype(float)}, layered(values)


def trait_rollouts(pairs=12, strength=3.0, noise=0.2, seed=1):
    rng = np.random.default_rng(seed)
    rows = [
        (trait, pole, f"p{pair}", 100.0 if pole > 0 else 0.0)
        for trait in TRAITS
        for pair in range(pairs)
        for pole in (1, -1)
    ]
    trait, pole, pair, score = (np.array(part) for part in zip(*rows, strict=True))
    values = default_place() + noise * rng.standard_normal((len(rows), D))
    values[:, CALM] += strength / 2 * pole * np.where(trait == "calm", 1, -1)
    return {"trait": trait, "pole": pole, "pair": pair, "score": score}, layered(values)


def organism_answers(shift, n=16, noise=0.3, seed=2):
    """Answers of one organism to ``n`` prompts that all organisms share."""
    rng = np.random.default_rng(seed)
    values = default_place() + noise * rng.standard_normal((n, D))
    for axis, size in shift.items():
        values[:, axis] += size
    return {"id": np.array([f"q{row}" for row in range(n)])}, layered(values)


def write_judged(path, columns, judge="grader"):
    """Write transcripts of the rollouts whose scores are a store's column ``score``."""
    score = columns["score"]
    rows = [
        {"id": str(name), "text": "What?", "role": str(role)}
        for name, role in zip(columns["id"], columns["role"], strict=True)
    ]
    found = Transcripts.of(
        PromptSet.from_records(rows), ["Words."] * len(rows),
        generator="tiny", sampling={}, seeds=range(len(rows)),
    )  # fmt: skip
    reasons = tuple("not judged" if value != value else "" for value in score)
    scores = Scores(judge, score, reasons, reasons)
    return str(write_transcripts(found.with_scores("score", scores), path))
