"""Pickled and copied arrays: value, dtype and weak type survive, the place does not.

A pickle may be read where those devices are not, so the result is uncommitted on the default
device. `copy.copy` and `copy.deepcopy` give the same, by way of the devices. An array with parts in
other processes is copied in place, and cannot be pickled.
"""

from __future__ import annotations

import copyreg
from typing import Any

import numpy as np

from shardwise._src.arrays.array import Array, wrap
from shardwise._src.arrays.signature import signature
from shardwise._src.base.pickles import read_by, reduced
from shardwise._src.moving import transfer
from shardwise._src.runtime import buffers
from shardwise._src.types.array_type import array_type
from shardwise._src.types.layout import Format
from shardwise._src.types.sharding import SingleDeviceSharding


def copied(x: Array) -> Array:
    """The same value in memory of its own, uncommitted on the default device.

    An array that spans processes stays where it is.
    """
    if not x.is_fully_addressable:
        return transfer.copy(x)
    there = SingleDeviceSharding(transfer.default_single())
    y = transfer.move(x, Format(None, there))
    if x._sig.devices == there.devices:  # then `move` shares the memory
        y = transfer.copy(y)
    plain = array_type(x.shape, x.dtype, x.aval.weak_type)
    sig = signature(plain, there, False)
    return wrap(buffers.rewrap(y._live(), sig.physical, sig.placement), sig)


def _reduced(x: Array) -> tuple[Any, ...]:
    if not (x.sharding.has_addressable_devices and x.sharding.is_held_here(x.shape)):
        raise TypeError(
            f"cannot pickle an array of type {x.aval.str_short(True)} that spans devices of other "
            "processes: a pickle holds a value, and this process has a part. Pickle the data of "
            "its `addressable_shards` in each process, or collect it first with `shardwise."
            "experimental.multihost_utils.process_allgather(x, tiled=True)`."
        )
    return reduced("array", x._value(), x.dtype, x.shape, x.aval.weak_type)


def _restored(value: np.ndarray, dtype: Any, shape: tuple[int, ...], weak: bool) -> Array:
    there = SingleDeviceSharding(transfer.default_single())
    return transfer.put_host(value, there, False, array_type(shape, dtype, weak))


read_by("array", _restored)
copyreg.pickle(Array, _reduced)  # pyright: ignore[reportArgumentType] (the stub wants a string too)
