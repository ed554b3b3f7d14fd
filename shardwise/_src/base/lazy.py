"""Packages whose names are imported lazily.

A package declares its names once, as explicit re-exports for readers and type checkers:

    if TYPE_CHECKING:
        from shardwise._src.numpy.unary import exp as exp

    lazy_names(__name__)

At run time the same lines are parsed to a table, and a name's module is imported when the name is
first accessed. `import shardwise` then does not import functions that a program never uses; the
first access imports the common dependencies: NumPy, jaxlib, and the modules that run programs. From
then on, `__module__` and `__qualname__` of functions and classes are their public location, which
pickles contain and `help` shows. The source has no `__getattr__`, so type checkers detect
misspelled names.
"""

from __future__ import annotations

import functools
import re
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, TypeVar, get_overloads, overload

from shardwise._src.base.interrupts import import_module, uninterrupted
from shardwise._src.base.other_names import NAMESPACES, suggestion

_EXPORT = re.compile(r"^(?:    )?from (\S+) import (?:\(\s+)?(\w+) as (\w+)", re.MULTILINE)
# Python locks a module before its package: two threads that import them in different orders, one of
# them through a third module, would deadlock, which Python reports as an error.
_IMPORTING = threading.RLock()
_GROUND = "shardwise._src.running.eager"  # eager execution, which must be imported first
_homes: dict[Any, str] = {}
_T = TypeVar("_T", bound=type)


def defining_module(x: Any) -> str:
    """The module that defines a function or class, even if it has a public name."""
    return _homes.get(x, str(x.__module__))


def public(package: str) -> Callable[[_T], _T]:
    """Declares the public package of a class whose objects users get without the class itself."""

    def published(x: _T) -> _T:
        _publish(x, package, x.__qualname__)
        return x

    return published


def _publish(x: Any, package: str, name: str) -> None:
    """Sets the module and qualified name of a function or class to its public ones."""
    if x.__module__.startswith("shardwise._src."):
        _homes[x] = x.__module__
        overloads = get_overloads(x)  # Python finds them by these names
        for y in (x, *overloads):
            y.__module__, y.__qualname__ = package, name
        for y in overloads:
            overload(y)


def _read(module: Any) -> str:
    """The source of a module, from its file."""
    with open(module.__file__, encoding="utf-8") as file:
        return file.read()


@functools.cache
def _table(package: str) -> dict[str, tuple[str, str]]:
    """Public name → (module, name there), from the package's own source."""
    module = sys.modules[package]
    loader: Any = module.__loader__
    # pytest has its own loader for files named test_*.py, including those of other packages.
    has_source = hasattr(loader, "get_source")
    source: str = loader.get_source(package) if has_source else _read(module)
    return {public: (home, name) for home, name, public in _EXPORT.findall(source)}


def _names_in(package: str) -> dict[str, tuple[str, str]]:
    import_module(package)
    return _table(package)


def public_name(module: str, name: str) -> str:
    """The full name of a function of a public namespace: `shardwise.numpy.matmul`; '' if none.

    module: the defining module; or any module of that package, if the public name is the same.
    """
    for space in NAMESPACES:
        for public, place in _names_in(space).items():
            if place == (module, name):
                return f"{space}.{public}"
    package = module.split(".")[2]
    space = f"shardwise.{'numpy' if package == 'values' else package}"  # methods have NumPy's names
    return f"{space}.{name}" if space in NAMESPACES and name in _names_in(space) else ""


class CalledModule(ModuleType):
    """A module that can be called like its function of the same name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **kwargs)


def _check_installed(package: str, needs: Sequence[str], extra: str) -> None:
    """Raises ImportError if a third-party package is missing. Imports none of them."""
    find_spec = import_module("importlib.util").find_spec
    missing = [name for name in needs if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"{package} needs {' and '.join(needs)}; {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not installed: "
            f"pip install 'shardwise[{extra}]'.", name=package,
        )  # fmt: skip


def lazy_names(package: str, needs: Sequence[str] = (), extra: str = "") -> None:
    """Adds `__getattr__` and `__dir__` to a package that declares its names under TYPE_CHECKING.

    A package that declares a function with its own name can be called like that function. A name
    imported from a `callable_module` is the package's module of that name; type checkers see the
    class there.

    needs: third-party packages that it requires; if one is missing, importing the package fails.
    extra: the extra of this distribution that installs them.
    """
    if needs:
        _check_installed(package, needs, extra)

    def find(name: str) -> Any:
        table = _table(package)
        if name == "__all__":  # of `from package import *`
            return sorted(table)
        if name not in table:
            hint = suggestion(package, name, _names_in)
            # Without `obj`, so that Python does not add its own suggestion.
            raise AttributeError(f"module {package!r} has no attribute {name!r}.{hint}", name=name)
        home, inner = table[name]
        with uninterrupted(), _IMPORTING:
            if home == package or home.endswith(".callable_module"):  # a submodule
                return import_module(f"{package}.{inner}")
            import_module(_GROUND)
            module = import_module(home)
            is_name = hasattr(module, inner)
            value = getattr(module, inner) if is_name else import_module(f"{home}.{inner}")
            own = getattr(value, "__qualname__", None)
            if own is not None:  # a function or class, of which `name` may be an alias
                if _table("shardwise").get(own) == (home, own):  # prefer the top-level name
                    _publish(value, "shardwise", own)
                else:
                    _publish(value, package, own if table.get(own) == (home, own) else name)
            setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        own = [n for n in vars(sys.modules[package]) if n.startswith("__")]
        return sorted({*own, *_table(package)})

    module: Any = sys.modules[package]
    module.__getattr__, module.__dir__ = find, names
    if package.rpartition(".")[2] in _table(package):
        module.__class__ = CalledModule
    for name in _table(package):
        value = module.__dict__.get(name)  # imported eagerly
        if hasattr(value, "__qualname__"):
            _publish(value, package, name)
