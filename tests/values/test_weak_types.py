"""Derivatives are weakly typed where those of jax are: types alone, of every call of both.

The calls are those of `benchmarks.tables`; floats are strongly or weakly typed.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Iterator
from fnmatch import fnmatch
from typing import Any

import jax
import numpy as np
import pytest

import shardwise as sw
from benchmarks.libs import Lib
from tests.values.test_empty import bound
from tests.values.test_same_as_jax import shared

OURS, THEIRS = (Lib(name, itertools.count()) for name in ("shardwise", "jax"))


def types(lib: Lib, name: str, call: str, weak: bool) -> dict[str, Any]:
    """Of results and derivatives: dtypes and weakness; None for what the library rejects."""
    run, names, args = bound(lib, name, call, "")
    given = [x if n == "key" else lib.root.ShapeDtypeStruct(
        x.shape, x.dtype, weak_type=weak and x.dtype == np.float32)
        for n, x in zip(names, args, strict=True)]
    moving = tuple(k for k, x in enumerate(args) if getattr(x, "dtype", None) == np.float32)

    def smooth(*a: Any) -> Any:
        return [x for x in lib.root.tree.leaves(run(*a)) if x.dtype.kind in "fc"]

    def loss(*a: Any) -> Any:
        return sum([lib.np.abs(x).sum() for x in smooth(*a)], lib.np.float32(0))

    def along(*a: Any) -> Any:
        def inner(*given: Any) -> Any:
            every = dict(enumerate(a)) | dict(zip(moving, given, strict=True))
            return smooth(*every.values())

        primals = tuple(a[i] for i in moving)
        return lib.root.jvp(inner, primals, tuple(map(lib.np.ones_like, primals)))[1]

    found = {}
    for way, fun in (("jvp", along), ("grad", lib.root.grad(loss, moving))) if moving else ():
        try:
            leaves = lib.root.tree.leaves(lib.root.eval_shape(fun, *given))
            found[way] = [(x.shape, str(x.dtype), bool(x.weak_type)) for x in leaves]
        except Exception:
            found[way] = None
    return found


def differences(name: str) -> Iterator[str]:
    call = shared()[name]
    code = call.cached or call.eager
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for weak in (False, True):
            wanted, got = [types(lib, name, code, weak) for lib in (THEIRS, OURS)]
            for way, expected in wanted.items():
                if expected is not None and got[way] != expected:
                    kind = "weak" if weak else "strong"
                    yield f"{name}, {way} of {kind} {code}: {got[way]}, jax: {expected}"


@pytest.mark.sweep
@pytest.mark.parametrize("name", shared())
def test_all(name: str):
    assert list(differences(name)) == []


if __name__ == "__main__":
    for name in shared():
        if fnmatch(name, sys.argv[1]):
            for line in differences(name):
                print(line[:400], flush=True)
            jax.clear_caches()
            sw.clear_caches()
    print("done")
