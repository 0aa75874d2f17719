"""Checks the notes of every function of the packages while tests run, as jaxtyping's own hook does.

That hook binds the arguments of every call by ``inspect`` and builds its checks anew each time an
inner function is defined, which cost a third of the fast round. Here a function is checked by two
guards that beartype makes once for its code, when it is first called.
"""

import ast
import functools
import importlib.machinery
import inspect
import sys
import types
import typing
from dataclasses import dataclass, is_dataclass

import beartype
import jaxtyping
import torch

_beartype = beartype.beartype(conf=beartype.BeartypeConf(violation_type=TypeError))
MARK = "__checked__"
"""The name that the decorator has inside a checked module."""


def check(*packages):
    """From now on, check what is imported of ``packages``; the returned finder holds them."""
    early = [name for name in packages if name in sys.modules]
    if early:
        raise RuntimeError(f"imported before it could be checked: {', '.join(early)}")
    finder = _Finder(packages)
    sys.meta_path.insert(0, finder)
    return finder


class _Finder:
    def __init__(self, packages):
        self.packages = packages

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.packages:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, name):
        """Compiled here each time: a cached file would be read by processes that do not check."""
        path = self.get_filename(name)
        tree = _Marker().visit(ast.parse(self.get_data(path), path))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    def exec_module(self, module):
        vars(module)[MARK] = checked
        super().exec_module(module)


class _Marker(ast.NodeTransformer):
    def visit_FunctionDef(self, node):
        node.decorator_list.append(_mark(node))  # innermost: what is written is what is checked
        return self.generic_visit(node)

    def visit_ClassDef(self, node):
        node.decorator_list.insert(0, _mark(node))  # outermost: after ``@dataclass``
        return self.generic_visit(node)


def _mark(node):
    return ast.copy_location(ast.Name(MARK, ast.Load()), node)


def checked(thing):
    """The function with its notes checked at each call; of a class, a dataclass's ``__init__``."""
    if isinstance(thing, type):
        if is_dataclass(thing) and "__init__" in vars(thing):
            made = vars(thing)["__init__"]
            thing.__init__ = made if hasattr(made, MARK) else checked(made)
        return thing
    return _guarded(thing)


def _guarded(function):
    guards = None

    @functools.wraps(function)
    def call(*args, **kwargs):
        __tracebackhide__ = True
        nonlocal guards
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        if guards is None:
            guards = _guards(function)
        if guards.shaped:
            with jaxtyping.jaxtyped("context"):
                return guards.run(function, args, kwargs)
        return guards.run(function, args, kwargs)

    setattr(call, MARK, True)
    return call


@dataclass(frozen=True)
class _Guards:
    arguments: object
    """Raises where an argument is not as its note says; None where there are no notes."""
    result: object
    shaped: bool
    """Whether axes have to be the same in several notes."""

    def run(self, function, args, kwargs):
        __tracebackhide__ = True
        if self.arguments is not None:
            self.arguments(*args, **kwargs)
        result = function(*args, **kwargs)
        if self.result is not None:
            self.result(result)
        return result


_kept = {}
"""By the identity of the code: equal code may be that of two dataclasses with fields alike."""


def _guards(function):
    """The guards of a function, made once for its code as long as its notes stay the same."""
    written = inspect.get_annotations(function)
    code = function.__code__
    _, known, guards = _kept.get(id(code), (code, None, None))
    if known != written:
        guards = _made(function, {name: _meant(note, function) for name, note in written.items()})
        _kept[id(code)] = code, written, guards
    return guards


def _made(function, notes):
    told = {name: note for name, note in notes.items() if note is not typing.Any}
    result = {"return": told.pop("return")} if "return" in told else {}
    return _Guards(
        arguments=_guard(function, _bare(function), told) if told else None,
        result=_guard(function, lambda result: result, result) if result else None,
        shaped=any(_has_shape(note) for note in notes.values()),
    )


def _meant(note, function):
    """A quoted note as the object it names; what only a type checker can see may be anything."""
    if not isinstance(note, str):
        return note
    holder = types.SimpleNamespace(__annotations__={"note": note})
    try:
        return typing.get_type_hints(holder, function.__globals__, include_extras=True)["note"]
    except (NameError, TypeError):  # imported for type checkers alone; a stub's generic class
        return typing.Any


def _bare(function):
    """A function with the same parameters that does nothing."""
    empty = inspect.Parameter.empty
    parameters = [
        p.replace(annotation=empty, default=p.default if p.default is empty else None)
        for p in inspect.signature(function).parameters.values()
    ]
    space = {}
    exec(f"def bare{inspect.Signature(parameters)}: pass", space)
    bare = space["bare"]
    bare.__defaults__, bare.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return bare


def _guard(function, bare, notes):
    bare.__annotations__ = notes
    bare.__name__, bare.__qualname__ = function.__name__, function.__qualname__
    bare.__module__ = function.__module__
    return _beartype(bare)


def _has_shape(note):
    if isinstance(note, type) and issubclass(note, jaxtyping.AbstractArray):
        return True
    return any(_has_shape(part) for part in typing.get_args(note))
