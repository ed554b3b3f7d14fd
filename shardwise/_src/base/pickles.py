"""Pickles: all of them name one function, at a place that stays, and say in which form they are.

A class writes `__reduce__` with `reduced(kind, *fields)`, and names what reads the fields again:

    read_by("Mesh", _mesh)

Modules of the machine may move, and fields may change: then `FORM` goes up, and pickles in another
form are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any

from shardwise._src.base.interrupts import import_module

FORM = 1
_readers: dict[str, Callable[..., Any]] = {}
_LATER = {  # public names whose modules, which many programs do not load, state their readers
    "PmapSharding": "shardwise.sharding", "PositionalSharding": "shardwise.sharding",
    "Ref": "shardwise", "jit": "shardwise", "thread_resources": "shardwise.experimental.maps",
}
_ADVICE = (
    "Read it with the version that wrote it, and write the values with shardwise.numpy.save, whose "
    "files every version reads."
)


def read_by(kind: str, reader: Callable[..., Any]) -> None:
    """States which function makes an object of the fields in its pickle."""
    _readers[kind] = reader


def reduced(kind: str, *fields: Any) -> tuple[Any, ...]:
    """What `__reduce__` of an object of this kind returns."""
    import_module(_PLACE)  # cloudpickle writes functions down whose module is not imported
    return restored, (FORM, kind, *fields)


def restored(form: int, kind: str, *fields: Any) -> Any:
    """The object that a pickle holds.

    Raises pickle.UnpicklingError for forms and kinds of other versions of the library.
    """
    if form != FORM:
        raise UnpicklingError(
            f"the pickle of a shardwise {kind} is in form {form}, of another version of shardwise; "
            f"this one reads form {FORM}. {_ADVICE}"
        )
    if kind not in _readers and kind in _LATER:
        getattr(import_module(_LATER[kind]), kind)
    if kind not in _readers:
        raise UnpicklingError(
            f"the pickle of a shardwise {kind}: this version has no such thing. {_ADVICE}"
        )
    return _readers[kind](*fields)


_PLACE = restored.__module__ = "shardwise._pickles"
