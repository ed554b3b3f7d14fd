"""Stand-ins for names that libraries import from JAX's private modules.

`PLACES` maps each name to its location here. Any other name raises an error with the name and the
importing library.
"""

from __future__ import annotations

import dis
import importlib.metadata
import sys
from types import FrameType, ModuleType
from typing import Any

from shardwise._src.base.interrupts import import_module
from shardwise._version import __version__

_IMPORT_FROM = dis.opmap["IMPORT_FROM"]
_VALUES, _UNSUPPORTED = "shardwise._src.compat.private_values", "shardwise._src.compat.unsupported"
_FALLBACK = "*"  # the modules that have all other names

# JAX private module → its names, each with the module that has it here (under the same name, or
# another one after a colon). A module with an empty table can be imported, but has no names.
PLACES: dict[str, dict[str, str]] = {
    "jax._src": {},
    "jax._src.ad_util": {
        "Zero": "shardwise.interpreters.ad",
        "instantiate": "shardwise.interpreters.ad:instantiate_zeros",
        "stop_gradient_p": _VALUES,
    },
    "jax._src.api": {_FALLBACK: "shardwise"},
    "jax._src.api_util": {_FALLBACK: "shardwise.api_util"},
    "jax._src.checkify": {_FALLBACK: "shardwise.experimental.checkify"},
    "jax._src.compiler": {},
    "jax._src.config": {_FALLBACK: "shardwise"},
    "jax._src.core": {
        "trace_state_clean": _VALUES,
        _FALLBACK: "shardwise.extend.core shardwise.core",
    },
    "jax._src.dispatch": {
        "apply_primitive": "shardwise.interpreters.xla",
        "wait_for_tokens": "shardwise:effects_barrier",
    },
    "jax._src.distributed": {"global_state": _VALUES},
    "jax._src.dtypes": {
        "DType": "shardwise.typing:DTypeLike",
        "ExtendedDType": _VALUES,
        "TypePromotionError": "shardwise.errors",
        _FALLBACK: "shardwise.dtypes shardwise.numpy",
    },
    "jax._src.flatten_util": {_FALLBACK: "shardwise.flatten_util"},
    "jax._src.lax": {},
    "jax._src.lax.lax": {_FALLBACK: "shardwise.lax"},
    "jax._src.literals": {},
    "jax._src.mesh": {"thread_resources": _VALUES, _FALLBACK: "shardwise.sharding"},
    "jax._src.numpy": {_FALLBACK: "shardwise.numpy"},
    "jax._src.numpy.lax_numpy": {_FALLBACK: "shardwise.numpy"},
    "jax._src.numpy.util": {_FALLBACK: _VALUES},
    "jax._src.random": {_FALLBACK: "shardwise.random"},
    "jax._src.state": {},
    "jax._src.state.types": {_FALLBACK: "shardwise.ref"},
    "jax._src.traceback_util": {_FALLBACK: _VALUES},
    "jax._src.tree_util": {_FALLBACK: f"shardwise.tree_util {_VALUES}"},
    "jax._src.typing": {_FALLBACK: "shardwise.typing"},
    "jax._src.xla_bridge": {_FALLBACK: _VALUES},
    "jax.experimental.colocated_python": {_FALLBACK: _UNSUPPORTED},
    "jax.experimental.colocated_python.func": {},
    "jax.experimental.colocated_python.serialization": {_FALLBACK: _UNSUPPORTED},
    "jax.experimental.hijax": {_FALLBACK: _UNSUPPORTED},
    "jax.extend.ifrt_programs": {_FALLBACK: _UNSUPPORTED},
}


def is_private(name: str) -> bool:
    """Whether this is one of JAX's private modules, or one without its own module here."""
    return name == "jax._src" or name.startswith("jax._src.") or name in PLACES


class PrivateModule(ModuleType):
    """Stand-in for one of JAX's private modules."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        if full in PLACES:
            return import_module(full)
        table = PLACES[self.__name__]
        for place in table.get(name, table.get(_FALLBACK, "")).split():
            home, _, own = place.partition(":")
            try:
                value = getattr(import_module(home), own or name)
            except AttributeError:
                continue
            setattr(self, name, value)
            return value
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        kind = ImportError if _imports_from(frame) else AttributeError
        raise kind(_not_there(full, frame))


def _imports_from(frame: FrameType) -> bool:
    """Whether a frame is at a `from ... import`, which hides the message of AttributeErrors."""
    return frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM


def no_module(name: str) -> ModuleNotFoundError:
    """The error for importing a JAX module that is missing here."""
    frame: Any = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    own = ("importlib", "shardwise", "_frozen_importlib")
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith(own):
        frame = frame.f_back
    return ModuleNotFoundError(_not_there(name, frame), name=name)


def _not_there(full: str, frame: FrameType) -> str:
    package = str(frame.f_globals.get("__name__", "__main__")).partition(".")[0]
    asks = "the program" if package == "__main__" else _library(package)
    kind = "a private name" if "._src" in full else "a name"
    return (
        f"{asks} uses {full}, {kind} of JAX's that shardwise {__version__} does not have "
        f"({frame.f_code.co_filename}:{frame.f_lineno}). To request it, report this line."
    )


def _library(package: str) -> str:
    """The distribution of a package, with its version: `dm-haiku 0.0.17` for `haiku`."""
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        names = set(importlib.metadata.packages_distributions().get(package, ()))
    if len(names) != 1:
        return package
    (name,) = names
    return f"{name} {importlib.metadata.version(name)}"
