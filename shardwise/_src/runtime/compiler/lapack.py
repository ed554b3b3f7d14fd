"""LAPACK kernels for CPU, shipped with jaxlib: registered with XLA once a program names one."""

from __future__ import annotations

import functools

from jaxlib import _jax
from jaxlib import xla_client as xc

from shardwise._src.base.interrupts import uninterrupted

PREFIX = "lapack_"


@functools.cache
def register() -> frozenset[str]:
    """Registers the kernels, which call SciPy's LAPACK; returns the batch partitionable ones."""
    with uninterrupted():
        from jaxlib import lapack
        from jaxlib.cpu import _lapack

        for name, kernel, version in lapack.registrations()["cpu"]:
            xc.register_custom_call_target(name, kernel, platform="cpu", api_version=version)
        batched = frozenset(lapack.batch_partitionable_targets())
        for name in batched:
            _jax.register_custom_call_as_batch_partitionable(name)
        _lapack.initialize()
        return batched
