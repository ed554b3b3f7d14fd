"""Pickling and copying arrays: value, dtype and weak type survive; the sharding only in copies.

A pickle may be loaded without those devices, so the result is uncommitted on the default device,
and an array with shards in other processes cannot be pickled. `copy.copy` and `copy.deepcopy` copy
each shard on its device: sharding, layout and commitment are preserved.
"""

from __future__ import annotations

import copyreg
from typing import Any

import numpy as np

from shardwise._src.arrays.array import Array, wrap
from shardwise._src.base.pickles import read_by, reduced
from shardwise._src.transfers import transfer
from shardwise._src.types.array_type import array_type
from shardwise._src.types.sharding import SingleDeviceSharding


def copied(x: Array) -> Array:
    """The same value in separate memory on the same devices, with the same commitment."""
    return wrap(transfer.copy(x)._live(), x._sig)


def _reduced(x: Array) -> tuple[Any, ...]:
    if not (x.sharding.has_addressable_devices and x.sharding.is_held_here(x.shape)):
        raise TypeError(
            f"cannot pickle an array of type {x.aval.str_short(True)} that spans devices of other "
            "processes: a pickle contains the full value, and this process has only a part. Pickle "
            "the data of its `addressable_shards` in each process, or collect it first with "
            "`shardwise.experimental.multihost_utils.process_allgather(x, tiled=True)`."
        )
    return reduced("array", x._value(), x.dtype, x.shape, x.aval.weak_type)


def _restored(value: np.ndarray, dtype: Any, shape: tuple[int, ...], weak: bool) -> Array:
    there = SingleDeviceSharding(transfer.default_single())
    return transfer.put_host(value, there, False, array_type(shape, dtype, weak))


read_by("array", _restored)
copyreg.pickle(Array, _reduced)  # pyright: ignore[reportArgumentType] (the stub wants a string too)
