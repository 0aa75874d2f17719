"""The verb axis: roles, traits and the Assistant Axis out of rollouts (Lu et al. 2026)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, FiniteFloat

from workbench.config import Config, refuse_twice
from workbench.errors import ConfigError
from workbench.pipelines.parts import paths_of
from workbench.pipelines.verb import Verb, Work, save_frame
from workbench.types import ActivationsLike

if TYPE_CHECKING:
    from workbench.activations import Activations
    from workbench.directions import Directions
    from workbench.directions.persona import CountRule, PersonaSpace
    from workbench.directions.trait_pairs import PairRule, TraitVectors
    from workbench.pipelines.labelled import Labelled

AXIS_FILE = "axis.safetensors"


class AxisConfig(Config):
    """Make role and trait vectors, the Assistant Axis and what a cap needs."""

    roles: str
    """A store of response means of rollouts of roles, the default among them."""
    traits: str | None = None
    """Likewise, of rollouts for and against traits."""
    judged_roles: str | None = None
    """Transcripts of the same rollouts with scores; by default those that the store holds."""
    judged_traits: str | None = None
    rule: Literal["repo", "paper", "all"] = "paper"
    """Which rollouts make a role's vector: score 3, at least 50; score 3 and apart from it score
    2, at least 10; all, whatever their score. Where nobody judged, all do."""
    least: int | None = Field(default=None, ge=1)
    """Rollouts that a role's vector needs, in place of the rule's number."""
    trait_rule: Literal["apart", "effective"] = "apart"
    """Which pairs make a trait's vector: scores 50 or more apart (Lu et al. 2026); or positive
    >= 50 > negative and both coherent (Chen et al. 2025). Where nobody judged, all do."""
    least_pairs: int | None = Field(default=None, ge=1)
    """Pairs that a trait's vector needs, in place of the rule's number."""
    organisms: list[str] = Field(default_factory=list)
    """Stores of other models' own answers to the default's questions, placed on the map."""
    layers: list[int] | None = None
    """By default all that were captured."""
    layer: int | None = Field(default=None, ge=0)
    """The one that a report tells of and a sweep takes; by default the middle block."""
    percentiles: list[FiniteFloat] = Field(default=[1.0, 25.0, 50.0, 75.0], min_length=1)
    """Of all rollouts along role minus default, where a cap's floors lie; 25 is the released
    caps', and is the 75th along the axis."""
    components: int | None = Field(default=None, ge=1)
    draws: int = Field(default=200, ge=100)
    """Of bootstraps."""
    seed: int = Field(default=0, ge=0)


@dataclass(frozen=True)
class Inputs:
    """The opened stores, under the columns of their transcripts, and who judged them."""

    roles: Activations | Labelled
    role_judge: str
    traits: Activations | Labelled | None
    trait_judge: str

    @property
    def every(self) -> ActivationsLike:
        """All rollouts, whatever their score, which floors are percentiles of.

        Their column ``persona`` is the role or trait.

        Raises:
            MismatchError: stores of another model, site or position.
        """
        from workbench.activations.together import Together

        named = [(self.roles, "role")] + ([(self.traits, "trait")] if self.traits else [])
        return Together(tuple(_as_personas(acts, name) for acts, name in named))


def verb() -> Verb:
    """Make the axis."""
    return Verb(AxisConfig, _inputs, _body, _preview, shards=False, artefact=AXIS_FILE)


def _inputs(config: AxisConfig) -> list[Path]:
    judged = paths_of([config.judged_roles, config.judged_traits])
    return [Path(config.roles), *paths_of([config.traits]), *judged, *map(Path, config.organisms)]


def _preview(config: AxisConfig) -> Mapping[str, Any]:
    """Open the stores and count, and take no mean."""
    from workbench.directions.fit import column

    found = open_inputs(config)
    names, counts = np.unique(column(found.roles, "role").astype(str), return_counts=True)
    traits = [] if found.traits is None else np.unique(column(found.traits, "trait")).tolist()
    return {
        "roles": dict(zip(names.tolist(), counts.tolist(), strict=True)),
        "traits": traits,
        "judges": {"role": found.role_judge, "trait": found.trait_judge},
        "layers": len(found.roles.layers),
    }


def _body(config: AxisConfig, work: Work) -> Mapping[str, Any]:
    from workbench.activations import open_activations
    from workbench.directions import save_directions
    from workbench.directions.persona_map import persona_axes
    from workbench.directions.persona_pc1 import axis_against_first
    from workbench.pipelines import axis_tables

    found, path = open_inputs(config), work.run.path
    space, traits = spaces(config, found)
    layer = _layer(config, space)
    somewhat = space.somewhat is not None
    axes = persona_axes(space, components=config.components, somewhat=somewhat)
    organisms = [open_activations(store) for store in config.organisms]
    refuse_twice([acts.model.key for acts in organisms], "organisms")
    first = axis_against_first(space, somewhat=somewhat, draws=config.draws, seed=config.seed)
    tables = {
        "counts": space.counts,
        "pc1": first,
        "coordinates": axis_tables.placed(space, axes, organisms),
        "thresholds": axis_tables.floors(
            space, found.every, config.percentiles, draws=config.draws, seed=config.seed
        ),
        "reference": axis_tables.reference(space, found.roles),
    }
    for name, directions in _files(space, traits, axes).items():
        told = replace(directions, info={**directions.info, "layer": layer})
        save_directions(told, path / f"{name}.safetensors")
    if traits is not None:
        tables["trait_counts"] = traits.counts
    for name, frame in tables.items():
        assert frame is not None, "rollouts are counted"
        save_frame(frame, path / f"{name}.parquet")
    row = first[first["layer"] == layer].iloc[0]
    return {
        "model": space.axis.model.key,
        "models": [space.axis.model.key, *(acts.model.key for acts in organisms)],
        "layer": layer,
        "judges": {"role": found.role_judge, "trait": found.trait_judge},
        "rule": space.told["rule"],
        "roles": len(space.roles),
        "traits": 0 if traits is None else len(traits.vectors),
        "cosine_pc1": round(float(row["cosine"]), 4),
    }


def open_inputs(config: AxisConfig) -> Inputs:
    """Open the stores.

    Raises:
        ConfigError: scores of several judges in one store.
        MismatchError: transcripts of other rollouts, or a store of every token.
    """
    roles, role_judge = _opened(config.roles, config.judged_roles)
    if config.traits is None:
        return Inputs(roles, role_judge, None, "none")
    traits, trait_judge = _opened(config.traits, config.judged_traits)
    return Inputs(roles, role_judge, traits, trait_judge)


def _as_personas(acts: Activations | Labelled, name: str) -> Labelled:
    from workbench.directions.fit import column
    from workbench.pipelines.labelled import Labelled

    columns = {"persona": column(acts, name).astype(str)}
    bare = acts.acts if isinstance(acts, Labelled) else acts
    return Labelled(bare, columns)


def _opened(store: str, judged: str | None) -> tuple[Activations | Labelled, str]:
    """Return a store and who gave its scores: those of transcripts, else its own."""
    from workbench.activations import open_activations
    from workbench.directions.rollouts import UNJUDGED
    from workbench.pipelines.labelled import judge_of, labelled
    from workbench.transcripts import read_transcripts

    acts = open_activations(store)
    if judged is not None:
        transcripts = read_transcripts(judged)
        return labelled(acts, transcripts), judge_of(transcripts)
    judges = np.unique(acts.columns.get("score_judge", np.array([UNJUDGED])))
    if len(judges) > 1:
        raise ConfigError(
            f"{store} holds scores of {', '.join(map(str, judges))}; scores of several judges do "
            "not mix, so judge all by one"
        )
    return acts, str(judges[0])


def spaces(config: AxisConfig, found: Inputs) -> tuple[PersonaSpace, TraitVectors | None]:
    """Return role vectors with their axis, and trait vectors where there are traits."""
    from workbench.directions.persona import persona_space
    from workbench.directions.rollouts import UNJUDGED
    from workbench.directions.trait_pairs import trait_vectors

    judge = UNJUDGED if config.rule == "all" else found.role_judge
    space = persona_space(found.roles, judge=judge, rule=_rule(config), layers=config.layers)
    if found.traits is None:
        return space, None
    traits = trait_vectors(
        found.traits, judge=found.trait_judge, rule=_pair_rule(config), layers=config.layers
    )
    return space, traits


def _rule(config: AxisConfig) -> CountRule:
    from workbench.directions.persona import RULES, CountRule

    if config.rule == "all":
        return CountRule("all", config.least or 1, somewhat=False)
    rule = RULES[config.rule]
    return rule if config.least is None else replace(rule, least=config.least)


def _pair_rule(config: AxisConfig) -> PairRule:
    from workbench.directions.trait_pairs import APART, EFFECTIVE

    rule = {"apart": APART, "effective": EFFECTIVE}[config.trait_rule]
    if config.least_pairs is None:
        return rule
    return replace(rule, least=config.least_pairs, name=f"{rule.name} ({config.least_pairs} here)")


def _layer(config: AxisConfig, space: PersonaSpace) -> int:
    """Return the layer to tell of: as given, else the middle block of the model.

    Raises:
        ConfigError: it was not captured.
    """
    layer = space.axis.model.n_layers // 2 if config.layer is None else config.layer
    if layer not in space.axis.layers:
        raise ConfigError(
            f"layer {layer} is not among {', '.join(map(str, space.axis.layers))}; give layer"
        )
    return layer


def _files(
    space: PersonaSpace, traits: TraitVectors | None, axes: Directions
) -> dict[str, Directions]:
    found = {
        "axis": space.axis,
        "default": space.default,
        "roles": space.roles,
        "persona_axes": axes,
    }
    found |= {} if space.somewhat is None else {"somewhat": space.somewhat}
    return found if traits is None else {**found, "traits": traits.vectors}
