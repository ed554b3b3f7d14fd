"""A fused function under an eager `vmap` is one cached program, with the values of its ops."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax, nn
from shardwise._src.runtime import forks
from shardwise._src.transforms import batch

X = np.linspace(-2, 3, 24, dtype=np.float32).reshape(4, 6)
Y = np.linspace(1, 2, 24, dtype=np.float32).reshape(4, 6)


def rows(fun, *args):
    """The results for one example after the other."""
    found = [fun(*[jnp.asarray(a[i]) for a in args]) for i in range(len(args[0]))]
    return sw.tree.map(lambda *xs: np.stack([np.asarray(x) for x in xs]), *found)


def same(found, expected, **limits):
    assert sw.tree.structure(found) == sw.tree.structure(expected)
    for a, b in zip(sw.tree.leaves(found), sw.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(np.asarray(a), b, **({"rtol": 1e-6, "atol": 1e-6} | limits))


FUNCTIONS = {
    "sin": (jnp.sin, X),
    "var": (lambda x: jnp.var(x, ddof=1), X),
    "where": (lambda x, y: jnp.where(x > 0, x, y), X, Y),
    "clip": (lambda x: jnp.clip(x, -1, 0.5), X),
    "divmod": (jnp.divmod, X, Y),
    "frexp": (jnp.frexp, X),
    "softmax": (nn.softmax, X),
    "sort": (lambda x: jnp.sort(x, descending=True), X),
    "scalar": (lambda x: x * 2 + 1, X),
    "host array": (lambda x: x + np.arange(6, dtype=np.float32), X),
    "concatenate": (lambda x, y: jnp.concatenate([x, y, x]), X, Y),
    "index": (lambda x: x[::-1][1:4], X),
    "set": (lambda x: x.at[2].set(7), X),
    "norm": (lambda x: sw.numpy.linalg.norm(x), X),
    "einsum": (lambda x, y: jnp.einsum("i,j->ij", x, y), X, Y),
    "cumsum": (jnp.cumsum, X),
    "method": (lambda x: x.astype("int32").max(keepdims=True), X),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_those_of_the_examples(name):
    fun, *args = FUNCTIONS[name]
    for _ in range(2):  # the second call takes the cached program
        same(sw.vmap(fun)(*args), rows(fun, *args))
    moved = [np.moveaxis(a, 0, -1) for a in args]
    same(sw.vmap(fun, in_axes=-1)(*moved), rows(fun, *args))


def launches(monkeypatch, call):
    """How many programs a call starts, and how many it makes."""
    made, started, run = [], [], batch.BatchedCall.__call__
    init = batch.BatchedCall.__init__

    def counted(self, *args):
        made.append(args)
        init(self, *args)

    def noted(self, *args):
        started.append(args)
        return run(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(batch.BatchedCall, "__init__", counted)
        patch.setattr(batch.BatchedCall, "__call__", noted)
        call()
    return len(started), len(made)


def test_a_function_is_one_program_and_made_once(monkeypatch):
    def run():
        sw.vmap(lambda x: jnp.var(x) * 3)(X)

    sw.clear_caches()
    assert launches(monkeypatch, run) == (2, 2)
    assert launches(monkeypatch, run) == (2, 0)


@pytest.mark.parametrize("numbers", [(0.0, -0.0), (1, 1.0, True, np.float16(1)), (2, 3)])
def test_equal_numbers_have_their_own_results(numbers):
    for n in numbers:
        found = sw.vmap(lambda x: jnp.copysign(x, n) + n)(X)  # noqa: B023
        same(found, rows(lambda x: jnp.copysign(x, n) + n, X))  # noqa: B023


class Raising:
    """An operand that cannot be converted, and a static argument that cannot be hashed."""

    def __jax_array__(self):
        raise KeyError("q")

    def __hash__(self):
        raise KeyError("hash")


def test_errors_of_objects_are_passed_on():
    for _ in range(2):
        with pytest.raises(KeyError, match="q"):
            sw.vmap(lambda x: jnp.add(x, Raising()))(X)
        with pytest.raises(TypeError, match=r"^sum: axis must be an integer; got <"):
            sw.vmap(lambda x: jnp.sum(x, axis=Raising()))(X)


@pytest.mark.parametrize("kind", [float, np.float32, np.float64])
@pytest.mark.parametrize("first", [0.0, -0.0])
def test_zeros_keep_their_signs(kind, first):
    """As a static argument, eagerly and mapped, whichever sign comes first."""
    sw.clear_caches()
    for value in (first, -first):

        def fun(x):
            return jnp.take(x, 99, mode="fill", fill_value=kind(value))  # noqa: B023

        for found in (fun(jnp.ones(3)), *sw.vmap(fun)(X)):
            assert found == 0 and np.signbit(np.asarray(found)) == np.signbit(value)


@pytest.mark.parametrize("first", [0.0, -0.0])
def test_zeros_in_parameters_of_ops_keep_their_signs(first):
    """Also in the gradient, whose rules are cached by the parameters."""
    sw.clear_caches()
    for value in (first, -first):

        def fun(x):
            return x.at[99].get(mode="fill", fill_value=np.float32(value))  # noqa: B023

        def of_op(x):
            numbers = lax.GatherDimensionNumbers(
                offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,)
            )
            return lax.gather(
                x,
                jnp.array([99]),
                numbers,
                (1,),
                mode="fill",
                fill_value=np.float32(value),  # noqa: B023
            )

        for f in (fun, of_op):
            for found in (f(jnp.ones(3)), sw.value_and_grad(f)(jnp.ones(3))[0]):
                assert found == 0 and np.signbit(np.asarray(found)) == np.signbit(value)


def test_numbers_that_differ_at_each_call_make_no_programs(monkeypatch):
    def run():
        for k in range(3):
            sw.vmap(lambda x: jnp.var(x, ddof=k / 7))(X)  # noqa: B023
            sw.vmap(lambda x: jnp.take(x, 9, mode="fill", fill_value=float("nan")))(X)

    run()
    before = len(batch._calls)
    assert launches(monkeypatch, run)[1] == 0 and len(batch._calls) == before


def test_equal_static_arguments_have_their_own_results():
    for decimals in (0, 1, True):
        found = sw.vmap(lambda x: jnp.round(x, decimals))(X)  # noqa: B023
        same(found, rows(lambda x: jnp.round(x, decimals), X))  # noqa: B023


def test_results_that_depend_on_no_mapped_value():
    shared = jnp.arange(3.0)
    seen = []

    def fun(x):
        seen.append(jnp.sin(shared))
        return x + seen[-1].sum()

    same(sw.vmap(fun)(X), rows(fun, X))
    assert isinstance(seen[0], sw.Array) and seen[0].shape == (3,)


def test_a_result_is_not_mapped_if_the_axis_is_reduced():
    fun = sw.vmap(lambda x: lax.psum(jnp.sin(x), "i"), axis_name="i", out_axes=None)
    for _ in range(2):
        np.testing.assert_allclose(np.asarray(fun(X)), np.sin(X).sum(0), rtol=1e-5, atol=1e-5)


def test_named_axes_of_different_sizes_and_nested():
    centred = sw.vmap(lambda x: jnp.square(x - lax.pmean(x, "i")), axis_name="i")
    for x in (X, X[:2], X):
        same(centred(x), np.square(x - x.mean(0)), rtol=1e-5, atol=1e-5)
    inner = sw.vmap(lambda x: jnp.exp(x) * lax.axis_size("i"), axis_name="i")
    same(sw.vmap(inner, axis_name="j")(X), np.exp(X) * 6, rtol=1e-5)
    same(sw.vmap(inner, axis_name="i")(X), np.exp(X) * 6, rtol=1e-5)


def test_with_other_transforms():
    def fun(x):
        return jnp.sum(jnp.sin(x) * nn.softmax(x))

    same(sw.vmap(sw.grad(fun))(X), rows(sw.grad(fun), X), rtol=1e-5)
    total = sw.grad(lambda x: sw.vmap(fun)(x).sum())
    same(total(X), rows(sw.grad(fun), X), rtol=1e-5)
    same(sw.jit(sw.vmap(fun))(X), rows(fun, X), rtol=1e-5)
    same(sw.vmap(sw.vmap(jnp.sin))(X), np.sin(X))


def test_keys():
    keys = sw.random.split(sw.random.key(0), 3)
    found = sw.vmap(lambda key: sw.random.normal(key, (2,)))(keys)
    expected = [np.asarray(sw.random.normal(key, (2,))) for key in keys]
    np.testing.assert_array_equal(np.asarray(found), expected)


def test_arrays_over_devices_keep_their_sharding():
    mesh = sw.make_mesh((4,), ("d",), axis_types=(sw.sharding.AxisType.Auto,))
    place = sw.sharding.NamedSharding(mesh, sw.sharding.PartitionSpec("d"))
    for x in (X, sw.device_put(X, place), X):
        found = sw.vmap(jnp.cos)(x)
        same(found, np.cos(X))
        assert len(found.sharding.device_set) == (1 if x is X else 4)


WRONG = {
    "operands": (
        lambda x: jnp.dot(x, jnp.ones(5)),
        sw.errors.ShapeError,
        "dot: dimension 0 of the first operand, of shape (6,), and dimension 0 of the second, of "
        "shape (5,), are summed over and must be equal: 6 ≠ 5.",
    ),
    "axis": (
        lambda x: jnp.sum(x, axis=3),
        np.exceptions.AxisError,
        "sum: axis 3 is out of bounds for array of dimension 1",
    ),
    "text": (
        lambda x: jnp.sin("a") + x,
        TypeError,
        "sin: expected an array or a Python or NumPy scalar, got a str.",
    ),
    "unhashable": (
        lambda x: jnp.sum(x, axis={}),
        TypeError,
        "sum: axis must be an integer; got {}.",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_those_of_the_function(name):
    """At each call, and without frames of the library."""
    fun, kind, text = WRONG[name]
    for _ in range(2):
        with pytest.raises(kind) as raised:
            sw.vmap(fun)(X)
        assert str(raised.value) == text
        assert raised.traceback[-2].path.name == "test_batched_calls.py"


def test_rank_promotion_is_reported_at_each_call():
    def fun(x):
        return x + jnp.ones((1, 6))

    same(sw.vmap(fun)(X), rows(fun, X))
    with sw.numpy_rank_promotion("raise"):
        for _ in range(2):
            with pytest.raises(ValueError, match="rank"):
                sw.vmap(fun)(X)
    same(sw.vmap(fun)(X), rows(fun, X))


def test_a_value_of_another_call_has_escaped():
    kept = []
    sw.vmap(lambda x: kept.append(x) or x)(X)
    with pytest.raises(sw.errors.UnexpectedTracerError, match="vmap of <lambda>"):
        sw.vmap(lambda x: x + kept[0])(X)


def test_deleted_arrays_are_named():
    x = jnp.asarray(X)
    fun = sw.vmap(lambda x: jnp.tan(x))
    fun(x)
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        fun(x)


def test_no_execution_and_nans():
    fun = sw.vmap(lambda x: jnp.log(x))
    fun(Y)
    with sw.no_execution(), pytest.raises(RuntimeError):
        fun(Y)
    with sw.debug_nans(True), pytest.raises(FloatingPointError):
        fun(X)


def test_forks_are_closed():
    assert (batch.Batch, "call") in forks._closed


def test_stacking_a_mapped_array_of_several():
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    same(lax.stack(jnp.asarray(x), 1), x.swapaxes(0, 1))
    same(sw.vmap(lambda row: lax.stack(row, 1))(x), x.swapaxes(1, 2))
