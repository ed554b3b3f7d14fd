"""A debugging check that processes put equal data if they hold the same part of an array.

Each process puts the parts of its own devices, and nothing compares them: if a part is replicated
over processes that differ (another seed, another order of files), the array has two values. With
`config.check_replicas` on, the processes that share parts exchange a digest of them.
"""

from __future__ import annotations

import numpy as np

from shardwise._src.arrays.array import Array
from shardwise._src.base.config import check_replicas
from shardwise._src.runtime import processes
from shardwise._src.transfers.regions import Bounds, bounds_of


def agreed(x: Array, what: str) -> Array:
    """Returns the array, after each process has put its parts; called in all that have parts.

    Raises:
      ProcessFailureError: with the digests, if processes have put different values.
    """
    gate = processes.gate()
    if not check_replicas.value or gate is None or x.is_fully_addressable or not x.size:
        return x
    shape, owners = x.shape, dict[Bounds, set[int]]()
    for device, index in zip(x.sharding.devices, x.sharding.indices(shape), strict=True):
        owners.setdefault(bounds_of(index, shape), set()).add(device.process_index)
    shared: dict[tuple[int, ...], dict[Bounds, np.ndarray]] = {}
    for shard in x.addressable_shards:
        bounds = bounds_of(shard.index, shape)
        span = tuple(sorted(owners[bounds]))
        if len(span) > 1:
            shared.setdefault(span, {})[bounds] = shard.data._value()
    from hashlib import sha256  # OpenSSL is slow to load

    for span in sorted(shared):  # the same order in all processes
        digest = sha256()
        for _, part in sorted(shared[span].items(), key=lambda item: item[0]):
            digest.update(np.ascontiguousarray(part).tobytes())
        value = digest.hexdigest()[:12]
        t = x.aval.str_short(True)
        gate.meet(f"{what} of {t}, whose replicated parts have the digest {value},", value, span)
    return x
