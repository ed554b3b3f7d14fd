"""Derivatives are weakly typed where the arguments are: types only, for each shared call.

The calls are those of `benchmarks.tables`. For strongly typed floats all types match jax; for
weakly typed ones a gradient has the type of its argument, which in jax depends on the function.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from benchmarks.libs import Lib
from tests.values.test_empty import cases
from tests.values.test_same_as_jax import OURS, THEIRS, printed, shared


def types(lib: Lib, name: str, call: str, weak: bool) -> dict[str, Any]:
    """Dtypes and weak types of results and derivatives; None if the library rejects the call."""
    found = {}
    for way, (fun, args) in cases(lib, name, call, "").items():
        struct = lib.root.ShapeDtypeStruct
        given = [
            struct(x.shape, x.dtype, weak_type=weak and x.dtype == np.float32)
            if isinstance(x, np.ndarray)
            else x
            for x in args
        ]
        try:
            types = lib.root.eval_shape(fun, *given)
            leaves = lib.root.tree.leaves(types[1] if way == "jvp" else types)
            found[way] = [(x.shape, str(x.dtype), bool(x.weak_type)) for x in leaves]
        except Exception:
            found[way] = None
    found.pop("value")
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
                if got[way] != expected:
                    kind = "weak" if weak else "strong"
                    yield f"{name}, {way} of {kind} {code}: {got[way]}, expected {expected}"


@pytest.mark.parametrize("weak", [False, True])
@pytest.mark.parametrize(
    "f",
    [
        lambda x: sw.numpy.maximum(x, 0.0),
        lambda x: sw.scipy.special.multigammaln(x, 2),
        lambda x: sw.scipy.special.bessel_jn(x, v=2)[1],
    ],
)
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
    printed(differences, sys.argv[1])
