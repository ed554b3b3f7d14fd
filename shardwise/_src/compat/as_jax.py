"""`import jax` gives this library: for programs and libraries that are written for JAX.

While the alias is on, a finder at the head of `sys.meta_path` answers for `jax` and everything
below it: with the library's own modules, and with stand-ins for some of JAX's private ones
(`private_names.py`). What was imported from an installed jax before, and what was built on it, is
set aside, and put back when the alias ends; so is, the other way, what was imported under the
alias. Each of the two worlds of modules finds its own again.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from types import FunctionType, ModuleType
from typing import Any

from shardwise._src.base.interrupts import import_module
from shardwise._src.compat.private_names import PLACES, PrivateModule, is_private, no_module
from shardwise._src.numpy import methods
from shardwise._src.runtime.backend import JAXLIB_VERSION

_lock = threading.RLock()
_OURS = "shardwise"
_WITH_STAND_INS = {name.rpartition(".")[0] for name in PLACES if not name.startswith("jax._src")}


class _Package(ModuleType):
    """One of the library's packages, with stand-ins among its modules."""

    def __getattr__(self, name: str) -> Any:
        if (private := f"{self.__name__}.{name}") in PLACES:
            return import_module(private)
        return getattr(self._ours(), name)

    def __dir__(self) -> Iterable[str]:
        return dir(self._ours())

    def _ours(self) -> ModuleType:
        return import_module(_OURS + self.__name__.removeprefix("jax"))


class _Root(_Package):
    """What `import jax` gives: this library's names, and the version of JAX that they follow."""

    __version__ = JAXLIB_VERSION
    __version_info__ = tuple([int(part) for part in JAXLIB_VERSION.split(".")[:3]])


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `jax` and its modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != "jax":
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        if spec.name == "jax":
            return _Root(spec.name)
        if is_private(spec.name):
            return PrivateModule(spec.name)
        return _Package(spec.name) if spec.name in _WITH_STAND_INS else None

    def exec_module(self, module: ModuleType) -> None:
        """A public module is not a new one: the library's own takes the place of that."""
        name = module.__name__
        if isinstance(module, _Package):
            return
        if is_private(name):
            if name not in PLACES:
                raise no_module(name)
            return
        ours = _OURS + name.removeprefix("jax")
        try:
            sys.modules[name] = import_module(ours)
        except ModuleNotFoundError as error:
            if error.name and not ours.startswith(error.name):
                raise
            raise no_module(name) from None


class as_jax:
    """Makes `import jax` give this library, from now on or in a `with` block.

        with shardwise.compat.as_jax():
            import optax, flax.linen as nn

    What is imported under the alias keeps working after it. An installed jax is not touched: it
    is what `import jax` gives before and after, and both may be used in one program. Off by
    default; `python -m shardwise.compat script.py` runs a whole program under it.

    Imports of all threads see the alias. Modules that are being imported, or whose functions are
    running, stay as they are.
    """

    def __init__(self) -> None:
        with _lock:
            _State.depth += 1
            if _State.depth == 1:
                sys.meta_path.insert(0, _FINDER)
                _swap(_State.jax, _State.ours)
                methods.namespace = lambda: _JAX_NUMPY
                for name in _LOOKED_UP:
                    import_module(name)
            self._on = True

    def end(self) -> None:
        """Ends the alias, unless another one that was begun before or after it still holds."""
        with _lock:
            if not self._on:
                return
            self._on = False
            _State.depth -= 1
            if _State.depth == 0:
                sys.meta_path.remove(_FINDER)
                methods.namespace = _NAMESPACE
                _swap(_State.ours, _State.jax)

    def __enter__(self) -> as_jax:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class _State:
    depth = 0
    jax: dict[str, ModuleType] = {}  # noqa: RUF012 (modules of each world, while the other is on)
    ours: dict[str, ModuleType] = {}  # noqa: RUF012


_FINDER = _Finder()
_NAMESPACE = methods.namespace
# Libraries for the array API know JAX's arrays by its classes, if it was imported, and by the name
# of the module that the arrays give.
_LOOKED_UP = ("jax.core", "jax.numpy")
_JAX_NUMPY = _Package("jax.numpy")


def _swap(away: dict[str, ModuleType], back: dict[str, ModuleType]) -> None:
    """Sets modules aside that are built on what `jax` is now, and brings the others back."""
    packages = _built_on_jax()
    for name in [n for n in sys.modules if n.partition(".")[0] in packages]:
        away[name] = sys.modules.pop(name)
    sys.modules.update(back)
    back.clear()


def _built_on_jax() -> set[str]:
    """The packages in use that hold something of `jax`, or of another such package."""
    found, kept = {"jax"}, {_OURS, "__main__", *_running()}
    held = {package: _held_by(modules) for package, modules in _by_package().items()}
    held = {package: others for package, others in held.items() if package not in kept}
    if _State.depth == 0:  # our own modules were called `jax` there
        found = {"jax", *[p for p, others in held.items() if _OURS in others]}
    while new := {p for p, others in held.items() if p not in found and others & found}:
        found |= new
    return found


def _running() -> Iterator[str]:
    """The packages of functions that are running in this thread."""
    frame = sys._getframe()  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        yield str(frame.f_globals.get("__name__", "")).partition(".")[0]
        frame = frame.f_back


def _by_package() -> dict[str, list[ModuleType]]:
    found: dict[str, list[ModuleType]] = {}
    for name, module in list(sys.modules.items()):
        package = name.partition(".")[0]
        if isinstance(module, ModuleType) and package not in sys.stdlib_module_names:
            found.setdefault(package, []).append(module)
    return found


def _held_by(modules: Iterable[ModuleType]) -> set[str]:
    """The packages of the modules, functions and classes that some modules hold."""
    found = set()
    for module in modules:
        for value in list(vars(module).values()):
            if isinstance(value, ModuleType):
                found.add(value.__name__.partition(".")[0])
            elif isinstance(value, type | FunctionType):
                found.add(str(value.__module__).partition(".")[0])
    return found
