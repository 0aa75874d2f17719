"""A planted persona space as run folders, made by the real functions where there are some."""

import numpy as np
import pandas as pd

from workbench.directions import Directions, cosines, save_directions
from workbench.directions.persona import PersonaSpace
from workbench.directions.persona_map import coordinates, persona_axes
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
         "default": row.value, "n": 400}
        for row in default.itertuples()
        for percentile, floor in ((25.0, at), (75.0, at - 5.0))
    ]  # fmt: skip
    return pd.DataFrame(rows)


def write_axis(root, stamp=STAMP, model="tiny", organisms=True, floor=FLOOR, reference=True):
    """The run folder of the verb ``axis``."""
    space = space_of(stamp)
    axes = persona_axes(space, components=2)
    cosine, share = axes.info["cosine_axis"][:, 0], axes.info["explained"][:, 0]
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
            "pc1": pd.DataFrame({"layer": axes.layers, "cosine": cosine, "explained": share}),
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
    write_cosines(root, write_axis(root))
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
