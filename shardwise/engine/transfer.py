"""Moving values: host to devices, and arrays from one sharding to another.

Sharded arrays are resharded on the devices, by a compiled identity program. Host values are cut
into shards and put in one call.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from shardwise.base.config import default_device
from shardwise.base.context import current
from shardwise.core.infer import type_of
from shardwise.core.program import Program, Var
from shardwise.engine.array import Array, wrap
from shardwise.engine.compiled import compiled_for
from shardwise.engine.module import module_text
from shardwise.engine.signature import Signature, signature
from shardwise.runtime import backend
from shardwise.runtime.program import Compiled
from shardwise.types.array_type import ArrayType, array_type
from shardwise.types.dtypes import canonicalize
from shardwise.types.sharding import NamedSharding, SingleDeviceSharding

_SCALAR_CACHE_SIZE = 4096
_scalars: dict[tuple, Array] = {}


def default_single() -> Any:
    """The device of values that nobody placed."""
    chosen = default_device.value
    return chosen if chosen is not None else backend.local_devices()[0]


def put_host(value: Any, sharding: Any, committed: bool, t: ArrayType | None = None) -> Array:
    """A NumPy array or scalar on devices. Each addressable device gets its own slice."""
    if t is None and value.__class__ is np.ndarray:
        sig, indices = _plan(value.shape, value.dtype, sharding, committed, current().key)
    else:
        sig, indices = _plan_of(t or type_of(value), sharding, committed)
    host = np.asarray(value, dtype=sig.physical.dtype, order="C")
    if indices is None:
        return wrap(backend.put(sig.physical, sig.placement, (host,), sig.devices), sig)
    shards = [host[index] for index in indices.values()]
    return wrap(backend.put(sig.physical, sig.placement, shards, list(indices)), sig)


@functools.lru_cache(8192)
def _plan(shape: tuple, dtype: Any, sharding: Any, committed: bool, key: Any) -> tuple:
    """`_plan_of` a NumPy array's type, which flags in the context's key decide."""
    return _plan_of(array_type(shape, canonicalize(dtype)), sharding, committed)


def _plan_of(t: ArrayType, sharding: Any, committed: bool) -> tuple[Signature, Any]:
    """The signature of a value on its devices, and what each of them gets (None: all of it)."""
    if isinstance(sharding, NamedSharding):
        sharding.check_divisible(t.shape)
    sig = signature(t, sharding, committed)
    if len(sig.devices) == 1:
        return sig, None
    return sig, sharding.addressable_devices_indices_map(t.shape)


def scalar(value: Any) -> Array:
    """A Python or NumPy scalar as an uncommitted array; equal ones share one buffer."""
    zero = value == 0 and str(value)  # -0.0 equals 0.0, and must not be taken for it
    key = (value.__class__, value, zero, current().key)
    found = _scalars.get(key)
    if found is not None:
        return found
    new = put_host(value, SingleDeviceSharding(default_single()), False)
    if len(_scalars) > _SCALAR_CACHE_SIZE:
        _scalars.clear()
    _scalars[key] = new
    return new


def move(x: Any, target: Any) -> Array:
    """`x` under another sharding, committed to it."""
    if not isinstance(x, Array):
        return put_host(x, target, True)
    sig = x._sig
    if sig.sharding is target:
        return x if sig.committed else _committed(x)
    if isinstance(target, NamedSharding):
        target.check_divisible(x.shape)
    if sig.devices == target.devices and len(sig.devices) > 1:
        return _reshard(x, target)
    if len(sig.devices) == 1 and len(target.devices) == 1:
        return _copy(x, target)
    if len(sig.devices) == 1:
        return put_host(x._value(), target, True, x.aval)
    return _between(x, target)


def _committed(x: Array) -> Array:
    """The same buffer, committed to where it is."""
    sig = signature(x.aval, x.sharding, True)
    return wrap(backend.rewrap(x._live(), sig.physical, sig.placement), sig)


@functools.lru_cache(1024)
def _resharder(sig: Signature, target: Signature) -> Compiled:
    """A compiled identity between two shardings over the same devices."""
    var = Var(sig.type)
    program = Program([var], [var], [], name="reshard")
    text = module_text(program, sig.devices, [], [sig.sharding], [target.sharding])
    return compiled_for(text, sig.devices, (False,))


def _reshard(x: Array, target: Any) -> Array:
    sig = signature(x.aval, target, True)
    (raw,) = _resharder(x._sig, sig).launch([x._live()], [sig.handler])
    return wrap(raw, sig)


def copy(x: Array) -> Array:
    """The same value in new memory, on the same devices."""
    return _copy(x, x.sharding)


def _copy(x: Array, target: Any) -> Array:
    sig = signature(x.aval, target, True)
    impl = backend.copy_to_devices(x._live(), backend.device_list(target.devices), sig.placement)
    return wrap(backend.rewrap(impl, sig.physical, sig.placement), sig)


def _between(x: Array, target: Any) -> Array:
    """Between different sets of devices: gather where the source is, then copy out."""
    mesh = x.sharding.mesh if isinstance(x.sharding, NamedSharding) else None
    if mesh is None or not set(target.devices) <= set(x._sig.devices):
        return put_host(x._value(), target, True, x.aval)
    whole = move(x, NamedSharding(mesh, ()))
    part = whole.addressable_shards[x.sharding.devices.index(target.devices[0])].data
    return move(part, target)

