"""Writers by name; ``@WRITERS.register("mine")`` in a plug-in file adds one."""

from __future__ import annotations

from workbench_training.corpora.plan import Writer

from workbench.registry import Registry

WRITERS: Registry[Writer] = Registry("writer", "workbench_training.corpora")
