"""Comparison of functions with jax's: by expressions, or for many types in one compilation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

import shardwise as sw
from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.running.eager import EAGER
from shardwise._src.transforms.stage import stage

# Relative tolerance by dtype; XLA fuses the two programs differently.
TOLERANCES = {
    "float32": 2e-5,
    "complex64": 2e-5,
    "float16": 5e-3,
    "bfloat16": 4e-2,
    "float64": 1e-12,
    "complex128": 1e-12,
}
HALVES = {"float16": 5e-3, "bfloat16": 2e-2}


def cases(text: str) -> list[str]:
    """Expressions, separated by semicolons or newlines."""
    return [c.strip() for line in text.strip().splitlines() for c in line.split(";") if c.strip()]


def names(lib: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """The names in an expression: `m`, a library's numpy, `lax`, and values.

    Arrays with names in lower case are the library's; functions make a value from `m`.
    """
    own = {
        k: v(lib.numpy) if callable(v) else lib.numpy.asarray(v) if k.islower() else v
        for k, v in values.items()
    }
    return {"m": lib.numpy, "lax": lib.lax, "np": np, "jax": jax, **own}


def as_jax(expression: str, values: Mapping[str, Any], tolerance: float = 0.0) -> None:
    """An expression has the same value in both libraries: dtypes and weak types, too."""
    came, wanted = [lib.tree.leaves(eval(expression, names(lib, values))) for lib in (sw, jax)]
    assert len(came) == len(wanted), expression
    for x, y in zip(came, map(jax.numpy.asarray, wanted), strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype), expression
        assert x.weak_type == (y.weak_type and y.dtype != bool), expression
        near = max(tolerance, HALVES.get(x.dtype.name, 0) if tolerance else 0)
        np.testing.assert_allclose(
            np.asarray(x, complex), np.asarray(y, complex), near, near, err_msg=expression
        )


def gradient_as_jax(expression: str, values: Mapping[str, Any], by: str) -> None:
    """The gradient of the sum of squares of an expression, with respect to one of the values."""

    def gradient(lib: Any) -> Any:
        given = names(lib, values)
        return lib.grad(lambda x: lib.numpy.sum(eval(expression, given | {by: x}) ** 2))(given[by])

    np.testing.assert_allclose(gradient(sw), gradient(jax), 2e-4, 2e-5, err_msg=expression)


def ours(fun: Callable, cases: Sequence[tuple]) -> list[Any]:
    """Results of `fun(*case)` for every case, in one program, as NumPy arrays."""
    flat = [a for case in cases for a in case]
    lengths = [len(case) for case in cases]

    def run(*xs: Any) -> list[Any]:
        rest = iter(xs)
        return [fun(*[next(rest) for _ in range(n)]) for n in lengths]

    run.__name__ = getattr(fun, "__name__", "f")
    return fused(run, arrays=len(flat))(*flat)


def theirs(fun: Callable, cases: Sequence[tuple]) -> list[Any]:
    def run(cases: Any) -> list[Any]:
        return [fun(*case) for case in cases]

    return jax.jit(run)(list(cases))


def our_error(fun: Callable, case: tuple) -> Exception | None:
    try:
        stage(lambda *xs: _flat(fun(*xs)), [type_of(a) for a in case], parent=EAGER)
    except (TypeError, ValueError, NotImplementedError) as error:
        return error
    return None


def their_error(fun: Callable, case: tuple) -> Exception | None:
    try:
        jax.eval_shape(fun, *case)
    except Exception as error:
        return error
    return None


def _flat(out: Any) -> list[Any]:
    return list(out) if isinstance(out, list | tuple) else [out]


def compare(
    our_fun: Callable,
    their_fun: Callable,
    cases: Sequence[tuple],
    tolerance: float = 1.0,
    weak: bool = True,
) -> None:
    """Compares values, dtypes and weak types; we must reject each case that jax rejects."""
    legal, faults = [], []
    for case in cases:
        refused, wanted = our_error(our_fun, case), their_error(their_fun, case)
        if (refused is None) != (wanted is None):
            faults.append(f"{_shown(case)}: {refused!r}, jax: {wanted!r}")
        elif refused is None:
            legal.append(case)
    faults += _differences(our_fun, their_fun, legal, tolerance, weak) if legal else []
    assert not faults, "\n".join(faults)


def _shown(case: tuple) -> str:
    return ", ".join(type_of(a).str_short(True) for a in case)


def _differences(
    our_fun: Callable, their_fun: Callable, legal: list[tuple], tolerance: float, weak: bool
) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = theirs(their_fun, legal)
    faults = []
    for case, a, b in zip(legal, ours(our_fun, legal), expected, strict=True):
        for x, y in zip(_flat(a), _flat(b), strict=True):
            try:
                same(x, y, _shown(case), tolerance, weak)
            except AssertionError as error:
                faults.append(str(error))
    return faults


def same(x: Any, y: Any, about: str = "", tolerance: float = 1.0, weak: bool = True) -> None:
    """Compares an array of ours with one of jax's."""
    assert x.shape == y.shape, f"{about}: shape {x.shape}, jax: {y.shape}"
    assert x.dtype == y.dtype, f"{about}: dtype {x.dtype}, jax: {y.dtype}"
    if weak and x.dtype != bool:  # booleans are never weakly typed here
        assert x.aval.weak_type == y.weak_type, f"{about}: weak {x.aval.weak_type}"
    a, b = np.asarray(x), np.asarray(y)
    rtol = TOLERANCES.get(x.dtype.name, 0) * tolerance
    if rtol:
        kind = np.complex128 if a.dtype.kind == "c" else np.float64
        a, b = a.astype(kind), b.astype(kind)
    np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol / 10, err_msg=about)
