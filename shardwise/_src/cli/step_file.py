"""`FILE.py:FUNCTION`: a function that returns what to compile for a machine.

    def step(devices):                                   # the machine's
        mesh = Mesh(np.array(devices).reshape(-1, 2), ("data", "model"))
        return train_step, (state, batch)                # and {"rate": rate}, if it has keywords

The arguments are arrays, of which no values are used, or `ShapeDtypeStruct`s. A function without
parameters returns arguments without devices, or over an `AbstractMesh`.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from shardwise._src.base.errors import did_you_mean
from shardwise._src.messages.formatting import join, pluralize

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
FORM = "`(f, args)` or `(f, args, kwargs)`: a function, a tuple of its arguments, and keywords"


class BadStep(ValueError):
    """What is wrong with `FILE.py:FUNCTION`, for the user of the command."""


class Program(NamedTuple):
    """A function, and the arguments to compile it for."""

    f: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def split(text: str) -> tuple[Path, str]:
    """The file and the function of `FILE.py:FUNCTION`; "" without a function.

    Raises:
      BadStep: if there is no such file, or it is not a Python file.
    """
    file, colon, name = text.rpartition(":")
    if not colon or Path(text).is_file():
        file, name = text, ""
    if not Path(file).is_file():
        what = "a folder" if Path(file).is_dir() else "not there"
        raise BadStep(f"{file!r} is {what}; pass FILE.py:FUNCTION, such as train.py:step.")
    if not file.endswith(".py"):
        raise BadStep(f"{file!r} is not a Python file: its name must end with .py.")
    return Path(file), name


def module_of(path: Path) -> ModuleType:
    """Runs a file as a module, which can import its neighbors; any error is the file's own."""
    name = path.stem
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) != str(path.resolve()):
        name = f"{name}_of_the_command"  # another module has the name
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None and spec.loader is not None  # it ends with .py
    sys.path.insert(0, str(path.resolve().parent))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def function_of(module: ModuleType, path: Path, name: str) -> Callable[..., Any]:
    """The function of this name.

    Raises:
      BadStep: if it is missing, or takes other arguments than devices.
    """
    own = _candidates(module)
    listed = f" It defines {join(own)}." if own else " It defines no function that could be meant."
    if not name:
        ask = f", such as {path}:{own[0]}" if own else ""
        raise BadStep(f"which function of {path}? Pass FILE.py:FUNCTION{ask}.{listed}")
    if not hasattr(module, name):
        near = did_you_mean(name, own)
        raise BadStep(f"{path} has no function {name!r}.{near or listed}")
    found = getattr(module, name)
    if not callable(found) or isinstance(found, type):
        what = "a class" if isinstance(found, type) else f"of type {type(found).__name__}"
        raise BadStep(f"{name!r} of {path} is {what}, not a function.{listed}")
    required = _required(found)
    if len(required) > 1 or any([p.kind not in POSITIONAL for p in required]):
        raise BadStep(
            f"{name} of {path} must take one argument, the list of a machine's devices, or none; "
            f"it requires {join([p.name for p in required])}. It returns what to compile: {FORM}."
        )
    return found


def takes_devices(function: Callable[..., Any]) -> bool:
    """Whether a function has a parameter for the devices."""
    return any([p.kind in (*POSITIONAL, p.VAR_POSITIONAL) for p in _parameters(function)])


def program_of(function: Callable[..., Any], name: str, devices: Sequence[Any]) -> Program:
    """What a function returns for some devices.

    Raises:
      BadStep: if it is neither `(f, args)` nor `(f, args, kwargs)`.
    """
    found = function(list(devices)) if takes_devices(function) else function()
    f, args, kwargs = (*found, None, None, None)[:3] if isinstance(found, tuple) else (found, 0, 0)
    kwargs = {} if kwargs is None else kwargs
    if not isinstance(found, tuple) or len(found) not in (2, 3):
        wrong = f"{type(found).__name__}"
        if isinstance(found, tuple):
            wrong = f"a tuple of {pluralize(len(found), 'item')}"
    elif not callable(f):
        wrong = f"a tuple whose first item is {type(f).__name__}"
    elif not isinstance(args, tuple | list):
        wrong = f"a tuple whose second item is {type(args).__name__}"
    elif not isinstance(kwargs, dict):
        wrong = f"a tuple whose third item is {type(kwargs).__name__}"
    else:
        return Program(f, tuple(args), kwargs)
    raise BadStep(f"{name} must return {FORM}; it returned {wrong}.")


def _candidates(module: ModuleType) -> list[str]:
    """The functions of a module that take devices, by name; else those that could be meant."""
    own = {
        name: _parameters(value)
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    }
    exact = [name for name, all_ in own.items() if all_ and all_[0].name == "devices"]
    could = [n for n in own if not n.startswith("_") and len(_required(getattr(module, n))) <= 1]
    return exact or could


def _required(function: Callable[..., Any]) -> list[inspect.Parameter]:
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    every = _parameters(function)
    return [p for p in every if p.default is p.empty and p.kind not in optional]


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):  # functions in C may have none
        return []
