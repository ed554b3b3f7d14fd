"""Pickles: all of them reference one function at a stable location, and contain a format number.

A class implements `__reduce__` with `reduced(kind, *fields)`, and registers a reader of the fields:

    read_by("Mesh", _mesh)

Internal modules may move. When fields change, `FORM` is incremented, and pickles in another format
are rejected with an error that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any

from shardwise._src.base.interrupts import import_module

FORM = 1
_readers: dict[str, Callable[..., Any]] = {}
_LATER = {  # public names of rarely imported modules that register their readers on import
    "PmapSharding": ("shardwise.sharding", "PmapSharding"),
    "PositionalSharding": ("shardwise.sharding", "PositionalSharding"),
    "Ref": ("shardwise", "Ref"),
    "error of a traced value": ("shardwise.core", "Tracer"),
    "described device": ("shardwise.targets", "devices"),
    "kernels.Block": ("shardwise.kernels", "Block"),
    "kernels.Space": ("shardwise.kernels", "VMEM"),
    "kernels.Squeezed": ("shardwise.kernels", "Squeezed"),
    "jit": ("shardwise", "jit"),
    "pmap": ("shardwise", "pmap"),
    "pjit": ("shardwise.experimental.pjit", "pjit"),
    "thread_resources": ("shardwise.experimental.maps", "thread_resources"),
}
_ADVICE = (
    "Read it with the version that wrote it, and save the values with shardwise.numpy.save, whose "
    "files all versions can read."
)


def read_by(kind: str, reader: Callable[..., Any]) -> None:
    """Registers the function that creates an object from the fields in its pickle."""
    _readers[kind] = reader


def reduced(kind: str, *fields: Any) -> tuple[Any, ...]:
    """The return value of `__reduce__` for an object of this kind."""
    import_module(_PLACE)  # cloudpickle pickles functions by value if their module is not imported
    return restored, (FORM, kind, *fields)


def restored(form: int, kind: str, *fields: Any) -> Any:
    """The object in a pickle.

    Raises pickle.UnpicklingError for forms and kinds of other versions of the library.
    """
    if form != FORM:
        raise UnpicklingError(
            f"the pickle of a shardwise {kind} has format {form}, from another version of "
            f"shardwise; this version reads format {FORM}. {_ADVICE}"
        )
    if kind not in _readers and kind in _LATER:
        module, name = _LATER[kind]
        getattr(import_module(module), name)
    if kind not in _readers:
        raise UnpicklingError(
            f"the pickle contains a shardwise {kind}, which does not exist in this version. "
            f"{_ADVICE}"
        )
    return _readers[kind](*fields)


_PLACE = restored.__module__ = "shardwise._pickles"
