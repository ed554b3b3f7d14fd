"""Makes `import jax` return this library, for programs and libraries written for JAX.

While the alias is active, a finder at the head of `sys.meta_path` resolves `jax` and its
submodules to the library's own modules, and to stand-ins for some of JAX's private modules
(`private_names.py`). Modules previously imported from an installed jax, and packages built on
them, are set aside and restored when the alias ends; likewise, modules imported under the alias
are set aside when it ends, and restored when it starts again.
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
from shardwise._src.runtime.backend import JAXLIB_VERSION
from shardwise._src.values import methods

_lock = threading.RLock()
_OURS = "shardwise"
_WITH_STAND_INS = {name.rpartition(".")[0] for name in PLACES if not name.startswith("jax._src")}


class _Package(ModuleType):
    """One of the library's packages, with stand-ins among its submodules."""

    def __getattr__(self, name: str) -> Any:
        if (private := f"{self.__name__}.{name}") in PLACES:
            return import_module(private)
        return getattr(self._ours(), name)

    def __dir__(self) -> Iterable[str]:
        return dir(self._ours())

    def _ours(self) -> ModuleType:
        return import_module(_OURS + self.__name__.removeprefix("jax"))


class _Root(_Package):
    """The result of `import jax`: this library's names, and the JAX version that it follows."""

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
        """Replaces a public module by the library's own module instead of creating a new one."""
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
    """Makes `import jax` return this library, from now on or within a `with` block.

        with shardwise.compat.as_jax():
            import optax, flax.linen as nn

    Modules imported under the alias keep working after it ends. An installed jax is unaffected:
    `import jax` returns it before and after, and a program may use both. Off by default;
    `python -m shardwise.compat script.py` runs an entire program under the alias.

    The alias applies to imports in all threads. Modules that are being imported, or whose
    functions are running, are not swapped.
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
        """Ends the alias, unless another alias is still active."""
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
    jax: dict[str, ModuleType] = {}  # noqa: RUF012 (each side's modules while the other is active)
    ours: dict[str, ModuleType] = {}  # noqa: RUF012


_FINDER = _Finder()
_NAMESPACE = methods.namespace
# Array API libraries identify JAX's arrays by JAX's classes, if it was imported, and by the name
# of the module in the arrays' type.
_LOOKED_UP = ("jax.core", "jax.numpy")
_JAX_NUMPY = _Package("jax.numpy")


def _swap(away: dict[str, ModuleType], back: dict[str, ModuleType]) -> None:
    """Sets aside modules that are built on the current `jax`, and restores the other ones."""
    packages = _built_on_jax()
    for name in [n for n in sys.modules if n.partition(".")[0] in packages]:
        away[name] = sys.modules.pop(name)
    sys.modules.update(back)
    back.clear()


def _built_on_jax() -> set[str]:
    """The imported packages that reference objects of `jax`, or of another such package."""
    found, kept = {"jax"}, {_OURS, "__main__", *_running()}
    held = {package: _held_by(modules) for package, modules in _by_package().items()}
    held = {package: others for package, others in held.items() if package not in kept}
    if _State.depth == 0:  # our own modules had the name `jax` there
        found = {"jax", *[p for p, others in held.items() if _OURS in others]}
    while new := {p for p, others in held.items() if p not in found and others & found}:
        found |= new
    return found


def _running() -> Iterator[str]:
    """The packages of functions on this thread's call stack."""
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
    """The packages of the modules, functions and classes that some modules reference."""
    found = set()
    for module in modules:
        for value in list(vars(module).values()):
            if isinstance(value, ModuleType):
                found.add(value.__name__.partition(".")[0])
            elif isinstance(value, type | FunctionType):
                found.add(str(value.__module__).partition(".")[0])
    return found
