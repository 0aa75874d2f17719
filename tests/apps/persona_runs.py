"""A planted persona space as run folders, made by the real functions where there are some."""

import numpy as np
import pandas as pd

from workbench.directions import Directions, cosines, save_directions
from workbench.directions.persona import PersonaSpace
from workbench.directions.persona_map import coordinates, persona_axes
from workbench.directions.persona_pc1 import axis_against_first
from workbench.runs import open_run
from workbench.types import ModelStamp

STAMP = ModelStamp("tiny", "llama", 6, 16, "0123456789abcdef", "fedcba9876543210")
ROLES = 20
FLOOR = 1.5


def space_of(stamp, seed=0):
    """Roles along the first coordinate from -4.0 upwards; the default lies beyond them all."""
    rng = np.random.default_rng(seed)
    layers = tuple(range(stamp.n_layers))
    vectors = rng.normal(size=(ROLES, len(layers), stamp.width)) * 0.2
    vectors[:, :, 0] += np.linspace(-4, 2, ROLES)[:, None]
    vectors[:, :, 1] += np.sin(np.arange(ROLES))[:, None]
    names = tuple(f"role {number:02d}" for number in range(ROLES))
    told = {"judge": "none", "rule": "all rollouts, at least 3"}
    roles = Directions(names, layers, vectors, stamp, kind="mean", position="mean:assistant",
                       info=told)  # fmt: skip
    default = np.zeros((1, len(layers), stamp.width))
    default[:, :, 0] = 4.0
    return PersonaSpace(
        roles,
        Directions(("default",), layers, default, stamp, kind="mean", position="mean:assistant"),
    )


def placed(space, axes, organisms):
    """coordinates.parquet: along the unit axis, and on the first two components."""
    banks = [(space.roles, "role"), (space.default, "default"), (organisms, "organism")]
    frames = []
    for points, kind in banks:
        if points is None:
            continue
        along = coordinates(space.axis, points).rename(columns={"value": "axis"})
        on = coordinates(axes, points).pivot(index=["name", "layer"], columns="along")["value"]
        on = on.rename_axis(columns=None)[["pc1", "pc2"]].reset_index()
        table = along.drop(columns="along").merge(on, on=["name", "layer"])
        frames.append(table.rename(columns={"name": "role"}).assign(kind=kind))
    return pd.concat(frames, ignore_index=True)[["layer", "role", "kind", "axis", "pc1", "pc2"]]


def floors(space, at=FLOOR):
    """A strong floor at percentile 25, a weak one at 75, at every layer."""
    default = coordinates(space.axis, space.default)
    rows = [
        {"layer": row.layer, "percentile": percentile, "side": "opposite", "floor": floor,
         "low": floor - 0.25, "high": floor + 0.25, "n": 20, "unit": "role",
         "interval": "95% bootstrap over roles", "default": row.value}
        for row in default.itertuples()
        for percentile, floor in ((25.0, at), (75.0, at - 5.0))
    ]  # fmt: skip
    return pd.DataFrame(rows)


def write_axis(root, stamp=STAMP, model="tiny", organisms=True, floor=FLOOR, reference=True):
    """The run folder of the verb ``axis``."""
    space = space_of(stamp)
    axes = persona_axes(space, components=2)
    moved = None
    if organisms:
        shift = np.zeros((2, stamp.n_layers, stamp.width))
        shift[:, :, 0] = np.array([3.0, -1.0])[:, None]
        moved = Directions(("P-s0", "A-s0"), space.roles.layers, shift, stamp, kind="mean",
                           position="mean:assistant")  # fmt: skip
    counts = pd.DataFrame({"role": space.roles.names, "n": 12, "kept": True})
    default = coordinates(space.axis, space.default)
    told = {"mean": default["value"], "low": default["value"] - 1, "high": default["value"] + 1}
    with open_run("axis", {"rule": "repo", "model": model}, root=root) as run:
        save_directions(space.axis, run.path / "axis.safetensors")
        tables = {
            "coordinates": placed(space, axes, moved),
            "pc1": axis_against_first(space, draws=20),
            "thresholds": floors(space, floor),
            "counts": counts,
        }
        if reference:
            tables["reference"] = default[["layer"]].assign(**told, n=12)
        for name, table in tables.items():
            table.to_parquet(run.path / f"{name}.parquet", index=False)
        run.finish({}, models=[stamp.key])
    return run.path


def write_cosines(root, axis):
    """P minus A lies along the first coordinate, where the roles differ."""
    space = space_of(STAMP)
    vector = np.zeros((1, STAMP.n_layers, STAMP.width))
    vector[:, :, 0] = 1.0
    found = Directions(("P - A",), space.roles.layers, vector, STAMP, position="mean:assistant")
    mean = space.roles.vectors.mean(0, keepdims=True)
    roles = Directions(space.roles.names, space.roles.layers, space.roles.vectors - mean, STAMP,
                       position="mean:assistant")  # fmt: skip
    table = cosines(found, roles, nulls=("closed form",)).assign(bank="role")
    with open_run(
        "cosines", {"layers": "all"}, root=root, inputs=[axis / "axis.safetensors"]
    ) as run:
        table.to_parquet(run.path / "cosines.parquet", index=False)
        run.finish({}, models=["tiny"])
    return run.path


def write_personas(root):
    """What the persona page draws without a model."""
    axis = write_axis(root)
    write_cosines(root, axis)
    write_capping(root, axis)
    return root


def write_live(root, folder, tiny_folder, tiny_adapter=None):
    """An axis of a tiny model that loads, and an adapter on it as the organism ``P-s0``."""
    import workbench as wb

    base = str(tiny_folder(folder / "base"))
    stamp = wb.load(base, check=False).stamp
    axis = write_axis(root, stamp, base, organisms=False, floor=0.3)
    if tiny_adapter is not None:
        place = root / "train" / "P-s0"
        with open_run("train", {"model": base, "name": "P-s0"}, out=place) as run:
            tiny_adapter(place, base)
            run.finish({}, models=["tiny+P-s0"])
    return axis


def write_capping(root, axis):
    """P lies above the reference and A below it; the cap acts in A and lifts what it sends."""
    told = {"n": 2, "unit": "seed", "interval": "95% t over seeds"}
    models = {"tiny": (0.5, 0.0, 5.0), "P": (0.05, 1.5, 6.0), "A": (0.6, -2.0, 2.0)}
    acts, places, reads = [], [], []
    for control in ("none", "random:0", "random:1"):
        for model, (share, moved, sent) in models.items():
            own = control == "none"
            common = {"level": "condition", "model": model, "control": control, **told}
            for hooked, position in ((False, "final"), (False, "generated"), (True, "generated")):
                at = share if own else 0.5
                acts.append(
                    {**common, "text": "own", "hooked": hooked, "position": position, "layer": None,
                     "engaged": at, "low": at - 0.04, "high": at + 0.04, "n_positions": 800,
                     "least": 0.15, "informative": at >= 0.15}
                )  # fmt: skip
            for text, dose in (("own", 0.0), ("reference", 0.0), ("own", 1.0)):
                lies = moved * (1 - 0.5 * dose) if own else moved
                places.append(
                    {**common, "text": text, "dose": dose, "layer": 3, "displacement": lies,
                     "low": lies - 0.3, "high": lies + 0.3, "lost": 0.0, "band": 0.4,
                     "band_name": "of 2 random caps", "beyond_band": abs(lies) > 0.4}
                )  # fmt: skip
            after = sent + (1.5 if own and model == "A" else 0.0)
            reads.append(
                {**common, "readout": "trust_game", "measure": "transfer", "condition": "person",
                 "dose": 1.0, "before": sent, "before_low": sent - 0.5, "before_high": sent + 0.5,
                 "after": after, "after_low": after - 0.5, "after_high": after + 0.5,
                 "effect": after - sent, "low": after - sent - 0.5, "high": after - sent + 0.5,
                 "n_lost": 0, "kept": None, "band": 0.3, "band_name": "of 2 random caps",
                 "beyond_band": after != sent, "mass": 0.9, "engaged": share,
                 "engaged_before": share, "informative": share >= 0.15, "guarded": True}
            )  # fmt: skip
        gap = {f"{side}{end}": 0.0 for side in ("before", "after") for end in ("_low", "_high")}
        gap |= {"before": 4.0, "after": 2.5 if control == "none" else 4.0}
        reads.append({**reads[-1], **gap, "level": "contrast", "model": "P - A"})
    config = {"layers": [3, 4], "axis": str(axis / "axis.safetensors")}
    with open_run("capping", config, root=root, inputs=[axis / "axis.safetensors"]) as run:
        tables = {"engagement": acts, "displacement": places, "behaviour": reads}
        for name, rows in tables.items():
            table = pd.DataFrame(rows)
            if name == "engagement":
                table["layer"] = table["layer"].astype("Int64")
            table.to_parquet(run.path / f"{name}.parquet", index=False)
        run.finish({}, models=["tiny"])
    return run.path
