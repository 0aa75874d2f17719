"""The verb sift: written stories and dialogues to bare texts that may be read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from workbench.pipelines.parts import model_inputs
from workbench.pipelines.settings import ModelConfig
from workbench.pipelines.verb import Verb, Work, save_frame
from workbench.plain import no_value, plain

if TYPE_CHECKING:
    import pandas as pd

    from workbench.emotions import Sifted
    from workbench.prompts import PromptSet
    from workbench.transcripts import Transcripts

TEXTS, COUNTS = "texts.jsonl", "counts.parquet"


class SiftConfig(ModelConfig):
    """Keep texts that are long enough and do not name their emotion."""

    transcripts: str
    """Of a rollout of kind stories or dialogues."""
    min_tokens: int = Field(default=100, ge=1)
    """In tokens of the model that will read them."""
    emotions: str | None = None
    """A file of emotions with their forms; those that ship by default."""


def verb() -> Verb:
    """Sift written texts."""
    return Verb(SiftConfig, _inputs, _body, _preview, shards=False, artefact=TEXTS)


def _inputs(config: SiftConfig) -> list[Path]:
    named = [config.transcripts, *([config.emotions] if config.emotions else [])]
    return [*model_inputs(config), *map(Path, named)]


def _body(config: SiftConfig, work: Work) -> Mapping[str, Any]:
    from workbench import api
    from workbench.data.rows import write_rows
    from workbench.emotions import read_emotions, sift
    from workbench.transcripts import read_transcripts

    written, known = read_transcripts(config.transcripts), read_emotions(config.emotions)
    tokenizer = api.load(config.model, check=False, **config.options()).tokenizer

    def count(text: str) -> int:
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])

    found = sift(written, count, known, least=config.min_tokens)
    write_rows(work.run.path / TEXTS, plain(_rows(found.texts), nonfinite=no_value))
    save_frame(_counts(written, found), work.run.path / COUNTS)
    return {"n": len(found.texts), "of": len(written), "outcomes": dict(found.counts)}


def _rows(texts: PromptSet) -> list[dict[str, object]]:
    columns = {name: values.tolist() for name, values in texts.columns.items()}
    return [
        {"id": name, "text": text, **{key: values[row] for key, values in columns.items()}}
        for row, (name, text) in enumerate(zip(texts.ids, texts.items, strict=True))
    ]


def _counts(written: Transcripts, found: Sifted) -> pd.DataFrame:
    """Return rows kind, emotion, topic, outcome, n; "kept" is an outcome."""
    import pandas as pd

    keys = [name for name in ("kind", "emotion", "topic") if name in written.columns]
    table = pd.DataFrame({name: written.columns[name] for name in keys})
    table["outcome"] = [outcome or "kept" for outcome in found.outcomes]
    return table.groupby([*keys, "outcome"], sort=False).size().rename("n").reset_index()


def _preview(config: SiftConfig) -> Mapping[str, Any]:
    from workbench.emotions import read_emotions
    from workbench.transcripts import read_transcripts

    written, known = read_transcripts(config.transcripts), read_emotions(config.emotions)
    return {"texts": len(written), "written": int(written.written.sum()), "emotions": len(known)}
