"""`create_token`, `after_all`, and `rng_uniform`, whose numbers depend on XLA's hidden state."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.extend.core import Token
from tests.helpers.meshes import mesh_of


def test_tokens_are_empty_values_that_programs_pass_on():
    token = lax.after_all(lax.create_token(), lax.create_token(np.ones(3)))
    returned = sw.jit(lambda t: (t, lax.create_token()))(token)
    assert all(isinstance(t, Token) for t in (token, *returned))
    assert not isinstance(np.ones(3), Token) and not isinstance(sw.numpy.ones(3), Token)
    assert (token.shape, token.dtype) == ((0,), np.dtype(bool))
    assert lax.after_all().shape == (0,)

    def f(x: Any) -> tuple[Any, Any]:
        return lax.after_all(lax.create_token(), lax.create_token()), x + 1

    merged, y = sw.jit(f)(np.ones(3, np.float32))
    assert merged.shape == (0,)
    np.testing.assert_array_equal(y, 2)
    assert "optimization_barrier" in sw.jit(f).lower(np.ones(3, np.float32)).as_text()
    with pytest.raises(
        TypeError, match=re.escape("after_all takes tokens from `create_token`; got 3 of type int.")
    ):
        lax.after_all(3)


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32", "bfloat16", "float16"])
def test_uniform_numbers_are_between_their_bounds(dtype: str):
    low, high = np.array(3, sw.numpy.dtype(dtype))[()], np.array(9, sw.numpy.dtype(dtype))[()]
    x = lax.rng_uniform(low, high, (40, 50))
    assert (x.shape, x.dtype) == ((40, 50), np.asarray(low).dtype)
    values = np.asarray(x).astype(np.float64)
    assert (values >= 3).all() and (values <= 9).all() and abs(values.mean() - 5.75) < 0.5
    assert not np.array_equal(values, np.asarray(lax.rng_uniform(low, high, (40, 50))))


def test_uniform_numbers_over_devices():
    mesh = mesh_of(8)
    for spec, n in [(sw.P("x"), 64), (sw.P("x"), 61), (sw.P(), 64)]:
        make = sw.jit(
            lambda n=n: lax.rng_uniform(0.0, 1.0, (n,)), out_shardings=sw.NamedSharding(mesh, spec)
        )
        x = np.asarray(make())
        assert (x >= 0).all() and (x < 1).all() and len({*x.tolist()}) > n - 3
        if spec == sw.P():
            parts = [np.asarray(s.data) for s in make().addressable_shards]
            assert all(np.array_equal(part, parts[0]) for part in parts)


def test_mistakes_of_uniform_numbers():
    def message(types: str) -> str:
        return (
            "^"
            + re.escape(
                "rng_uniform: takes two scalars of the same dtype, floating-point or a 32-bit or "
                f"64-bit integer type; got {types}."
            )
            + "$"
        )

    with pytest.raises(TypeError, match=message("f32[2] and f32[]")):
        lax.rng_uniform(np.ones(2, np.float32), np.float32(1), (3,))
    with pytest.raises(TypeError, match=message("u8[] and u8[]")):
        lax.rng_uniform(np.uint8(3), np.uint8(9), (3,))
    with pytest.raises(NotImplementedError, match=r"^rng_uniform: cannot be used under vmap"):
        sw.vmap(lambda a: lax.rng_uniform(a, np.float32(9), (3,)))(np.ones(2, np.float32))
