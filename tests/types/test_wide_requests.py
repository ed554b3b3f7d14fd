"""`explicit_x64_dtypes`: requests of 64-bit dtypes while `enable_x64` is off."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.config import explicit_x64_dtypes as jax_mode

import shardwise as sw
import shardwise.numpy as snp
from shardwise._src.base.config import explicit_x64_dtypes

VALUES = np.array([1.5, 2.1])
ALLOWED = {
    "array": lambda np_, lib: np_.array(VALUES, dtype="float64"),
    "of a NumPy array": lambda np_, lib: np_.array(VALUES),
    "literal": lambda np_, lib: np_.array(VALUES, dtype="float64") * 2.5,
    "NumPy scalar": lambda np_, lib: np_.float32(1) + np.float64(0.1),
    "mixed": lambda np_, lib: np_.arange(2, dtype="int64") + np_.ones(2),
    "mean": lambda np_, lib: np_.arange(2, dtype="int64").mean(),
    "like": lambda np_, lib: np_.ones_like(np_.array(VALUES, dtype="float64")),
    "jit": lambda np_, lib: lib.jit(lambda x: np_.sin(x) / 3)(np_.array(VALUES, "float64")),
    "grad": lambda np_, lib: lib.grad(lambda x: (x**2).sum())(np_.array(VALUES, "float64")),
    "randint": lambda np_, lib: lib.random.randint(lib.random.key(1), (2,), 0, 9, "int64"),
    "float": lambda np_, lib: np_.zeros(2, float),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed_dtypes_are_kept(name):
    with explicit_x64_dtypes("allow"):
        got = ALLOWED[name](snp, sw)
    with jax_mode("allow"):  # its values may have been rounded to 32 bits
        assert got.dtype == ALLOWED[name](jnp, jax).dtype
    with sw.enable_x64(True), jax.enable_x64(True):
        wanted = ALLOWED[name](jnp, jax)
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-15 if got.itemsize == 8 else 1e-7)


def test_values_of_allowed_dtypes_are_exact():
    with explicit_x64_dtypes("allow"):
        for made in (
            snp.full(2, 2**40, "int64"),
            snp.full_like(snp.zeros(2, "int64"), 2**40),
            snp.full(2, np.int64(2**40), "int64"),
        ):
            np.testing.assert_array_equal(made, [2**40] * 2, strict=True)
        np.testing.assert_array_equal(snp.full(2, 1 / 3, "float64"), [1 / 3] * 2, strict=True)


def test_requests_can_be_errors():
    with explicit_x64_dtypes("allow"):
        wide = snp.zeros(2, "float64")
    with explicit_x64_dtypes("error"):
        for request in (
            lambda: snp.zeros(2, "int64"),
            lambda: snp.float64(1),
            lambda: snp.float32(1).astype("float64"),
            lambda: wide * 2,
        ):
            with pytest.raises(ValueError, match="enable_x64"):
                request()
        with pytest.raises(ValueError) as caught:
            snp.ones(2, snp.float64)
        assert str(caught.value) == (
            "Explicitly requested dtype float64 in ones is not available while enable_x64 is off. "
            "To keep 64 bits, call shardwise.config.update('enable_x64', True) or set "
            "SHARDWISE_ENABLE_X64=1 first. To accept 32 bits, request float32. The option "
            "explicit_x64_dtypes decides this: 'warn' narrows it with a warning, 'allow' keeps "
            "64 bits."
        )
        assert snp.zeros(2, int).dtype == snp.asarray(VALUES.astype(int)).dtype == np.int32
    assert sw.config.jax_explicit_x64_dtypes == "warn"
