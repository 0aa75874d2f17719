"""What a store says of its shards once they were looked through, so that opening is quick."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path

from workbench.activations.layout import Manifest
from workbench.activations.shard import Known, Shard
from workbench.files import write_bytes
from workbench.plain import as_json

logger = logging.getLogger(__name__)

INDEX = "shards.index"


def write_index(folder: Path, manifest: Manifest, shards: Sequence[Shard]) -> None:
    """Note what was looked through, so that opening need not do it again."""
    found = {shard.path.name: shard.recognise() for shard in shards}
    content = {"plan": manifest.digest, "shards": {k: v for k, v in found.items() if v is not None}}
    write_bytes(folder / INDEX, as_json(content, indent=1).encode())


def read_index(folder: Path, manifest: Manifest) -> dict[str, Known]:
    """Return what the index says of shards of this plan; none where it is absent or damaged."""
    try:
        found = json.loads((folder / INDEX).read_bytes())
        listed = found["shards"] if found["plan"] == manifest.digest else {}
        return {name: Known(str(one), int(n)) for name, (one, n) in listed.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        logger.warning("%s is damaged (%s); every shard is looked through", folder / INDEX, error)
        return {}
