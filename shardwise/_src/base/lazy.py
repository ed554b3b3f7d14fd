"""Packages whose names are imported on first use.

A package states its names once, as explicit re-exports for people and type checkers:

    if TYPE_CHECKING:
        from shardwise._src.numpy.binary import add as add

    lazy_names(__name__)

At run time the same lines are read as a table, and a name's module is imported when the name is
first asked for. `import shardwise` then does not pay for the functions that a program never uses.
Nobody sees a `__getattr__` in the source, so that type checkers know misspelt names.
"""

from __future__ import annotations

import functools
import re
import sys
import threading
from importlib import import_module
from typing import Any

from shardwise._src.base.other_names import suggestion

_EXPORT = re.compile(r"^(?:    )?from (\S+) import (?:\(\s+)?(\w+) as (\w+)", re.MULTILINE)
# Python locks a module before its package: two threads that import them in either order, one of
# them through a third module, would end in a deadlock, which it reports as an error.
_IMPORTING = threading.RLock()


@functools.cache
def _table(package: str) -> dict[str, tuple[str, str]]:
    """Public name → (module, name there), from the package's own source."""
    loader: Any = sys.modules[package].__loader__
    source: str = loader.get_source(package)
    return {public: (home, name) for home, name, public in _EXPORT.findall(source)}


def _names_in(package: str) -> dict[str, tuple[str, str]]:
    import_module(package)
    return _table(package)


def lazy_names(package: str) -> None:
    """Gives `__getattr__` and `__dir__` to a package that states its names under TYPE_CHECKING."""

    def find(name: str) -> Any:
        table = _table(package)
        if name == "__all__":  # of `from package import *`
            return sorted(table)
        if name not in table:
            hint = suggestion(package, name, _names_in)
            # Without `obj`, for which Python would add a suggestion of its own to this one.
            raise AttributeError(f"module {package!r} has no attribute {name!r}.{hint}", name=name)
        home, inner = table[name]
        with _IMPORTING:
            if home == package:  # a module of the package itself
                return import_module(f"{package}.{inner}")
            value = getattr(import_module(home), inner)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        own = [n for n in vars(sys.modules[package]) if n.startswith("__")]
        return sorted({*own, *_table(package)})

    module: Any = sys.modules[package]
    module.__getattr__, module.__dir__ = find, names
