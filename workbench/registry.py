"""The four registries: names, and the factories whose files are imported when first asked for."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from workbench.errors import ConfigError, UnknownNameError, meant, unknown

T = TypeVar("T")
Factory = TypeVar("Factory", bound=Callable[..., Any])


class Registry(Generic[T]):
    """Factories by name; a module ``<package>.<name>`` is imported on the first use of ``name``.

    Args:
        kind: the word used in messages, such as "method".
        package: the package whose modules register themselves when imported.
        further: modules of other packages that do so too, each called after its one name.
    """

    def __init__(self, kind: str, package: str, further: Sequence[str] = ()) -> None:
        self.kind = kind
        self.package = package
        self.further = further
        self._factories: dict[str, Callable[..., T]] = {}

    def register(self, name: str) -> Callable[[Factory], Factory]:
        """Decorate a class or function so that ``name`` makes one; a second owner is refused."""

        def keep(factory: Factory) -> Factory:
            owner = self._factories.get(name)
            if owner is not None and (owner.__module__, owner.__qualname__) != (
                factory.__module__,
                factory.__qualname__,
            ):
                raise ConfigError(
                    f"{self.kind} {name!r} is registered by {owner.__module__} and again by "
                    f"{factory.__module__}; rename one of them"
                )
            self._factories[name] = factory
            return factory

        return keep

    def factory(self, name: str) -> Callable[..., T]:
        """Return what makes ``name``.

        Raises:
            UnknownNameError: nothing is registered under ``name``; the nearest names are listed.
        """
        if name not in self._factories:
            self._import(name)
        if name not in self._factories:
            load_entry_points()
        if name not in self._factories:
            raise self._unknown(name)
        return self._factories[name]

    def create(self, name: str, **params: Any) -> T:
        """Make one ``name`` with the given parameters.

        Raises:
            UnknownNameError: nothing is registered under ``name``.
            ConfigError: a parameter that it does not take, or one that it lacks.
        """
        factory = self.factory(name)
        check_parameters(f"{self.kind} {name!r}", factory, params)
        return factory(**params)

    def names(self) -> list[str]:
        """Return every registered name, after importing the whole package and the plug-ins."""
        for module in pkgutil.iter_modules(importlib.import_module(self.package).__path__):
            importlib.import_module(f"{self.package}.{module.name}")
        for target in self.further:
            importlib.import_module(target)
        load_entry_points()
        return sorted(self._factories)

    def __contains__(self, name: str) -> bool:
        try:
            self.factory(name)
        except UnknownNameError:
            return False
        return True

    def _import(self, name: str) -> None:
        own = {target.rpartition(".")[2]: target for target in self.further}
        target = own.get(name, f"{self.package}.{name}")
        if name.isidentifier() and importlib.util.find_spec(target) is not None:
            importlib.import_module(target)

    def _unknown(self, name: str) -> UnknownNameError:
        return unknown(
            self.kind, name, self.names(), f"`workbench list {self.kind}s` shows them all."
        )


def check_parameters(what: str, factory: Callable[..., Any], params: Mapping[str, Any]) -> None:
    """Compare parameters with those that a factory takes.

    Raises:
        ConfigError: one that it does not take, with all that it does, or one that it lacks.
    """
    known = inspect.signature(factory).parameters
    if any(one.kind is one.VAR_KEYWORD for one in known.values()):
        return
    for name in params:
        if name not in known:
            listed = f"it has {', '.join(known) or 'none'}.{meant(name, known)}"
            raise ConfigError(f"{what} has no parameter {name!r}; {listed}")
    for name, one in known.items():
        if one.default is one.empty and one.kind is not one.VAR_POSITIONAL and name not in params:
            raise ConfigError(f"{what} needs its parameter {name!r}; it has {', '.join(known)}")


TRAINED = tuple(f"workbench_training.{name}" for name in ("bipo", "loreft", "reps"))
"""Methods that a model trains; they stand with the rest of training."""
METHODS: Registry[Any] = Registry("method", "workbench.directions", TRAINED)
EDITS: Registry[Any] = Registry("edit", "workbench.interventions")
READOUTS: Registry[Any] = Registry("readout", "workbench.readouts")
ENGINES: Registry[Any] = Registry("engine", "workbench.engine")

_loaded: set[str] = set()


def needs_model(method: Callable[..., Any]) -> bool:
    """Whether a method is trained by a model's own gradients, not fitted to activations."""
    needs = getattr(method, "needs", ())
    return isinstance(needs, tuple) and "model" in needs


def load_entry_points() -> None:
    """Import every installed plug-in once (entry-point group ``workbench.plugins``)."""
    for point in entry_points(group="workbench.plugins"):
        if point.value not in _loaded:
            _loaded.add(point.value)
            point.load()


def load_plugin(path: Path) -> None:
    """Import a user's own file, whose decorators fill the registries.

    Raises:
        ConfigError: there is no such file.
    """
    if not path.is_file():
        raise ConfigError(
            f"no plug-in file {str(path)!r}; --plugin takes the path of a Python file"
        )
    name = f"workbench_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def plugins() -> tuple[Path, ...]:
    """Return the user's own files that were loaded, for worker processes to load too."""
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    return tuple(
        Path(file) for name, file in files.items() if name.startswith("workbench_plugin_") and file
    )
