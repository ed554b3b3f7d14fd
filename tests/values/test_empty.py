"""Calls with empty dimensions, and their derivatives and maps, return the same as in jax.

The calls are those of `benchmarks.tables`. The dimensions of their operands have labels; one label
after another gets size 0 in all operands, as is the size of the batch of `vmap`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from benchmarks.arguments import ARRAYS, Call, arrays_in, find
from benchmarks.libs import Lib
from tests.helpers.errors import message
from tests.values.test_same_as_jax import OURS, THEIRS, printed, shared

N = 16
BATCH = "batch of "
LABELS = {
    **dict.fromkeys(("x", "y", "z", "i", "j", "b"), "n"),
    "matrix": "rc",
    "turned": "cr",
    "square": "ss",
    "row": "c",
    "column": "r",
    "pairs": "p2",
    "u": "q3",
    "v": "q3",
    "cube": "knn",
    "matrices": "mtt",
    "positive": "mtt",
    "heads": "hgde",
    "few": "f",
    "sorted": "o",
}
MEANT = {  # deviations from jax: globs of `name way`
    "jax fails while compiling": ["numpy.fft.*rfft* grad"],
    "the value is NaN already": [
        f"numpy.{name} jvp" for name in ("nanmean", "nanstd", "nanvar", "var", "cov")
    ],
    "jax's is NaN, though nothing moves": [
        "nn.logsumexp jvp",
        "scipy.special.logsumexp jvp",
        "nn.logmeanexp jvp",
        "numpy.linalg.lstsq jvp",
    ],
    "there is no derivative of factors that are not unique": ["scipy.linalg.hessenberg *"],
    "an error says that there are no elements, as in SciPy": [
        "scipy.signal.fftconvolve *",
        "scipy.ndimage.map_coordinates *",
        "image.scale_and_translate *",
    ],
    "jax's results are weakly typed in some places": ["lax.linalg.qdwh *", "lax.scan *"],
}
GLOBS = [glob for globs in MEANT.values() for glob in globs]


def label_sizes(names: list[str], empty: str) -> dict[str, tuple[int, ...]]:
    """The shapes of operands, in which a label is of size 0."""
    shapes = {name: ARRAYS[name][0](N).shape for name in names}
    return {
        name: tuple([0 if d == empty else n for d, n in zip(LABELS[name], shape, strict=True)])
        for name, shape in shapes.items()
    }


def operand(name: str, shape: tuple[int, ...]) -> np.ndarray:
    value = ARRAYS[name][0](N)
    return value[tuple([slice(n) for n in shape])]


def bound(lib: Lib, name: str, call: str, empty: str) -> tuple[Callable, list[str], list[Any]]:
    """The call as a function of its arrays, their names, and these."""
    names = arrays_in(call)
    shapes = label_sizes([n for n in names if n != "key"], empty)
    sizes = {
        d: size for n, shape in shapes.items() for d, size in zip(LABELS[n], shape, strict=True)
    }
    rows, columns = ARRAYS["matrix"][0](N).shape
    static = {
        "lib": lib,
        "numpy": np,
        "n": sizes.get("n", N),
        "rows": sizes.get("r", rows),
        "columns": sizes.get("c", columns),
        "f": find(lib, name),
    }
    run = eval(compile(f"lambda {', '.join(names)}: {call}", "<call>", "eval"), static)
    return run, names, [lib.random.key(0) if n == "key" else operand(n, shapes[n]) for n in names]


def cases(lib: Lib, name: str, call: str, empty: str) -> dict[str, tuple[Callable, list[Any]]]:
    """Functions and their arguments, by the name of the transform."""
    run, names, args = bound(lib, name, call, "" if empty == "batch" else empty)
    moving = tuple(k for k, x in enumerate(args) if getattr(x, "dtype", None) == np.float32)

    def loss(*a: Any) -> Any:
        found = [x for x in lib.root.tree.leaves(run(*a)) if x.dtype.kind in "fc"]
        return sum([lib.np.abs(x).sum() for x in found], lib.np.float32(0))

    def along(*a: Any) -> Any:
        def inner(*given: Any) -> Any:
            every = dict(enumerate(a)) | dict(zip(moving, given, strict=True))
            return [x for x in lib.root.tree.leaves(run(*every.values())) if x.dtype.kind in "fc"]

        primals = tuple(a[i] for i in moving)
        return lib.root.jvp(inner, primals, primals)

    found: dict[str, Callable] = {"value": run}
    if moving:
        found |= {"jvp": along, "grad": lib.root.grad(loss, moving)}
    if empty != "batch":
        return {way: (fun, args) for way, fun in found.items()}
    axes = [None if n == "key" else 0 for n in names]
    wide = [
        x if d is None else np.zeros((0, *x.shape), x.dtype)
        for x, d in zip(args, axes, strict=True)
    ]
    if all(d is None for d in axes):
        return {}
    return {way: (lib.root.vmap(fun, axes), wide) for way, fun in found.items()}


def of_types(lib: Lib, fun: Callable, args: list[Any]) -> list[Any]:
    leaves = lib.root.tree.leaves(lib.root.eval_shape(fun, *args))
    return [(x.shape, str(x.dtype), bool(x.weak_type)) for x in leaves if hasattr(x, "dtype")]


def numbers(lib: Lib, leaf: Any) -> np.ndarray:
    is_key = "key<" in str(getattr(leaf, "dtype", ""))
    return np.asarray(lib.random.key_data(leaf) if is_key else leaf)


def values(lib: Lib, fun: Callable, args: list[Any], eager: bool) -> list[np.ndarray]:
    fun = fun if eager else lib.root.jit(fun)
    return [numbers(lib, x) for x in lib.root.tree.leaves(fun(*args))]


def difference(name: str, call: Call, empty: str, way: str) -> str | None:
    code = call.cached or call.eager
    fun, args = cases(THEIRS, name, code, empty)[way]
    try:
        wanted = of_types(THEIRS, fun, args)
        expected = values(THEIRS, fun, args, False) if any(np.prod(t[0]) for t in wanted) else None
    except Exception:
        return None  # jax rejects it
    fun, args = cases(OURS, name, code, empty)[way]
    try:
        got = of_types(OURS, fun, args)
        if got != wanted:
            return f"{got}, jax: {wanted}"
        for eager in {way == "value", False}:
            found = values(OURS, fun, args, eager)
            if expected is not None:
                for a, b in zip(found, expected, strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def differences(name: str) -> Iterator[str]:
    call = shared()[name]
    code = call.cached or call.eager
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = {d for n in arrays_in(code) if n != "key" for d in LABELS[n]}
        for empty in [*sorted(labels), "batch"]:
            for way in cases(OURS, name, code, empty):
                meant = any(fnmatch(f"{name} {way}", glob) for glob in GLOBS)
                if not meant and (said := difference(name, call, empty, way)):
                    yield f"{name}, {way} with empty {empty}: {code}: {said}"


X = np.ones((0, 3), np.float32)
AT = np.zeros((0,), np.int32)
ROWS = {
    "sort": lambda m, lax, x: m.sort(x),
    "top_k": lambda m, lax, x: lax.top_k(x, 2)[0],
    "median": lambda m, lax, x: m.median(x, axis=-1),
    "quantile": lambda m, lax, x: m.quantile(x, 0.3, axis=-1),
    "approx_max_k": lambda m, lax, x: lax.approx_max_k(x, 2)[0],
    "take_along_axis": lambda m, lax, x: m.take_along_axis(x, AT[:, None], -1),
    "gather": lambda m, lax, x: x[AT],
    "scatter": lambda m, lax, x: x.at[AT].add(1.0),
    "fft2": lambda m, lax, x: m.abs(m.fft.fft2(x)),
}


@pytest.mark.parametrize("name", ROWS)
def test_derivatives_of_no_rows(name: str):
    def f(x: Any) -> Any:
        return ROWS[name](sw.numpy, sw.lax, x)

    out = sw.eval_shape(f, X)
    assert sw.grad(lambda x: f(x).sum())(X).shape == X.shape
    assert [y.shape for y in sw.jvp(f, (X,), (X,))] == [out.shape] * 2
    assert sw.jacrev(f)(X).shape == sw.jacfwd(f)(X).shape == (*out.shape, *X.shape)


def test_maps_over_an_empty_batch():
    def window(x: Any, i: Any) -> Any:
        return sw.lax.dynamic_slice(x, (i,), (2,))

    def replaced(x: Any, i: Any) -> Any:
        return sw.lax.dynamic_update_slice(x, x[:2], (i,))

    for f, shape in ((window, (0, 2)), (lambda x, i: x[i], (0,)), (replaced, (0, 3))):
        assert sw.vmap(f)(X, AT).shape == shape
        slopes = sw.vmap(sw.grad(lambda x, i, f=f: f(x, i).sum()))(X, AT)
        assert slopes.shape == (0, 3)
    assert sw.vmap(lambda x, i: x[i], (None, 0))(sw.numpy.ones(3), AT).shape == (0,)


def test_transforms_of_empty_signals():
    for shape in ((0, 0), (0, 3), (3, 0)):
        for name in ("fft2", "ifft2", "fftn"):
            found = getattr(sw.numpy.fft, name)(np.ones(shape, np.float32))
            assert found.shape == shape and found.dtype == np.complex64
    assert sw.numpy.fft.irfft(np.ones((2, 1), np.complex64)).shape == (2, 0)
    assert sw.numpy.fft.fft(np.ones((2, 0)), norm="ortho").shape == (2, 0)
    for length in ((0,), (2,)):  # terms are empty sums
        x = np.ones(0, np.float32) if length == (0,) else np.ones((0, 2), np.float32)
        np.testing.assert_array_equal(
            sw.lax.fft(x, "rfft", length), np.zeros((*x.shape[:-1], length[0] // 2 + 1))
        )
    assert message(ValueError, sw.numpy.fft.rfft, np.ones((2, 0))) == (
        "rfft: signals must have at least one element; got lengths (0,) along axes (1,)."
    )


def test_values_of_empty_operands():
    m, none, ones = sw.numpy, np.ones(0, np.float32), np.ones(3, np.float32)
    np.testing.assert_array_equal(m.polymul(none, ones), [0, 0, 0])
    assert m.poly(none).shape == () and m.poly(none) == 1
    assert m.unwrap(none).shape == (0,)
    np.testing.assert_array_equal(m.intersect1d(none, ones, size=2), [0, 0])
    np.testing.assert_array_equal(m.cov(np.ones((2, 0), np.float32)), [[np.nan] * 2] * 2)
    keys = sw.random.split(sw.random.key(0), 4)[AT]
    assert keys.shape == (0,) and sw.random.key_data(keys).shape == (0, 2)


@pytest.mark.sweep
@pytest.mark.parametrize("name", shared())
def test_all(name: str):
    assert list(differences(name)) == []


if __name__ == "__main__":
    printed(differences, sys.argv[1])
