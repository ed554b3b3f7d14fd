"""Compiled modules, kept by their text: equal programs are compiled once.

A function made again, or another function with the same program, finds what is there.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress

from shardwise.runtime import backend
from shardwise.runtime.program import Compiled, compile_options, compile_text

CACHE_SIZE = 2048

_compiled: OrderedDict[tuple, Compiled] = OrderedDict()


def compiled_for(
    text: str,
    devices: tuple,
    free_outputs: tuple[bool, ...],
    quick: bool = False,
    small: bool = False,
    overrides: tuple = (),
) -> Compiled:
    """The compiled form of a module.

    free_outputs: the results whose sharding the partitioner chooses.
    quick, small: what allows a faster compilation (see `runtime.program.compile_options`).
    overrides:    XLA options as (name, value) pairs.
    """
    key = (text, devices, free_outputs, quick, small, overrides)
    found = _compiled.get(key)
    if found is not None:
        with suppress(KeyError):  # another thread may have made room just now
            _compiled.move_to_end(key)
        return found
    options = compile_options(
        devices, free_outputs=free_outputs, quick=quick, small=small, overrides=dict(overrides)
    )
    new = compile_text(backend.client(devices[0].platform), text, devices, options)
    _compiled[key] = new
    if len(_compiled) > CACHE_SIZE:
        _compiled.popitem(last=False)
    return new
