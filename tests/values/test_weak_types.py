"""Derivatives are weakly typed where the arguments are: types only, for each shared call.

The calls are those of `benchmarks.tables`. For strongly typed floats all types match jax; for
weakly typed ones a gradient has the type of its argument, which in jax depends on the function.
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

MEANT = {"scipy.linalg.rsf2csf jvp", "scipy.linalg.rsf2csf grad"}  # of factors; not unique
OURS, THEIRS = (Lib(name, itertools.count()) for name in ("shardwise", "jax"))


def types(lib: Lib, name: str, call: str, weak: bool) -> dict[str, Any]:
    """Dtypes and weak types of results and derivatives; None if the library rejects the call."""
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
                if expected is None or (weak and way == "jvp"):
                    continue
                if weak:
                    expected = [(shape, dtype, True) for shape, dtype, _ in expected]
                if got[way] != expected and f"{name} {way}" not in MEANT:
                    kind = "weak" if weak else "strong"
                    yield f"{name}, {way} of {kind} {code}: {got[way]}, expected {expected}"


@pytest.mark.parametrize("weak", [False, True])
@pytest.mark.parametrize("f", [
    lambda x: sw.numpy.maximum(x, 0.0), lambda x: sw.scipy.special.multigammaln(x, 2),
    lambda x: sw.scipy.special.bessel_jn(x, v=2)[1],
])
def test_some(f: Any, weak: bool):
    x = sw.ShapeDtypeStruct((), np.float32, weak_type=weak)
    for way in (sw.grad(f), sw.jacfwd(f), sw.grad(sw.grad(f)), lambda x: sw.vjp(f, x)[1](1.0)[0]):
        found = sw.eval_shape(way, x)
        assert (found.dtype, found.weak_type) == (np.float32, weak)


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
