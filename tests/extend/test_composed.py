"""JAX's primitives that are functions here: `bind` is one equation with JAX's parameters."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import Any

import jax
import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.extend.core import primitives
from tests.helpers.everyday import everyday
from tests.helpers.flags import fusions_by_mlir
from tests.helpers.meshes import mesh_of

A = np.arange(12, dtype=np.float32).reshape(1, 3, 4) - 5
N = np.array([-0.0, 0.0, np.nan, -np.inf, np.inf, 1, -1, -np.nan, 1e-40], np.float32)
PAIR = np.repeat(N, 9), np.tile(N, 9)
I = np.array([-3, 7, 2**31 - 1, -(2**31)], np.int32)  # noqa: E741
TOP = {
    "k": 2,
    "reduction_dimension": 1,
    "recall_target": 0.9,
    "is_max_k": False,
    "reduction_input_size_override": -1,
    "aggregate_to_topk": True,
}
R, W = np.triu(np.ones((3, 3), np.float32)) + np.eye(3, dtype=np.float32), np.ones(3, np.float32)
C = np.eye(3, dtype=np.float32)

# name: operands, parameters, whether derivatives are compared
CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any], bool]] = {
    "squeeze_p": ((A,), {"dimensions": (0,)}, True),
    "stack_p": ((A, A + 1), {"axis": 1}, True),
    "unstack_p": ((A,), {"axis": 1}, True),
    "tile_p": ((A,), {"reps": (2, 1, 3)}, True),
    "mulhi_p": ((I, I[::-1].copy()), {}, False),
    "eq_to_p": (PAIR, {}, False),
    "lt_to_p": (PAIR, {}, False),
    "le_to_p": (PAIR, {}, False),
    "approx_top_k_p": ((A[0],), TOP, True),
    "linalg.cholesky_update_p": ((R, W), {}, False),
    "linalg.symmetric_product_p": ((A[0], C), {"alpha": 2.0, "beta": 0.5}, False),
}


def found(module: Any, name: str) -> Any:
    return attrgetter(name)(module)


@pytest.mark.parametrize("name", everyday(CASES, 7))
def test_values_and_programs_are_those_of_jax(name: str):
    args, params, smooth = CASES[name]
    ours = partial(found(lax, name).bind, **params)
    theirs = partial(found(jax.lax, name).bind, **params)
    eager, wanted = np.asarray(ours(*args)[0]), np.asarray(theirs(*args)[0])
    np.testing.assert_allclose(eager, wanted, rtol=1e-5)
    np.testing.assert_allclose(sw.jit(ours)(*args)[0], wanted, rtol=1e-5)
    (eqn,) = sw.make_jaxpr(ours)(*args).eqns
    (their_eqn,) = jax.make_jaxpr(theirs)(*args).eqns
    assert str(eqn.primitive) == str(their_eqn.primitive)
    assert eqn.params == {n: v for n, v in their_eqn.params.items() if n in params}
    wide = [np.stack([x, x[::-1]]) for x in args]
    leaves = sw.tree.leaves(sw.jit(sw.vmap(ours))(*wide))
    for i in range(2):
        for mapped, alone in zip(leaves, sw.tree.leaves(ours(*[x[i] for x in wide])), strict=True):
            np.testing.assert_allclose(mapped[i], alone, rtol=1e-5)
    if smooth:

        def total(f: Any, np_: Any) -> Any:
            def g(*xs: Any) -> Any:
                out = f(*xs)
                first = out[0] if isinstance(out, list | tuple) else out
                return (np_.cos(first) * first).sum()

            return g

        mine = sw.jit(sw.grad(total(ours, sw.numpy)))(*args)
        np.testing.assert_allclose(
            mine, jax.grad(total(theirs, jax.numpy))(*args), rtol=1e-4, atol=1e-5
        )


def test_linear_ones_are_transposed():
    back = sw.linear_transpose(partial(lax.squeeze_p.bind, dimensions=(0,)), A)
    np.testing.assert_array_equal(back(A[0])[0], A)
    back = sw.linear_transpose(lambda x: lax.unstack_p.bind(x, axis=1)[1], A)
    wanted = np.zeros_like(A)
    wanted[:, 1] = 1
    np.testing.assert_array_equal(back(np.ones((1, 4), np.float32))[0], wanted)


def test_complex_numbers_are_equal_in_both_parts():
    x = np.array([1 + 2j, 0j, complex(-0.0, 0.0)], np.complex64)
    np.testing.assert_array_equal(
        lax.eq_to_p.bind(x, np.array([1 + 2j, 0j, 0j], np.complex64)), [True, True, False]
    )


@pytest.mark.parametrize("padding", [((0, 0), (0, 0)), ((1, 0), (0, 1))])
@pytest.mark.parametrize("fold", ["add", "min"])
def test_select_and_scatter(padding: Any, fold: str):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 6)).astype(np.float32)
    counts = tuple((n + sum(p) - 3) // 2 + 1 for n, p in zip(x.shape, padding, strict=True))
    s = rng.normal(size=counts).astype(np.float32)
    init = np.float32(0.25)

    def run(module: Any, prims: Any) -> Any:
        one = np.float32(1)
        select = module.make_jaxpr(prims.ge)(one, one)
        scatter = module.make_jaxpr(getattr(prims, fold))(one, one)
        return lambda x, s: prims.select_and_scatter_p.bind(
            x,
            s,
            init,
            select_jaxpr=select.jaxpr,
            select_consts=(),
            scatter_jaxpr=scatter.jaxpr,
            scatter_consts=(),
            window_dimensions=(3, 3),
            window_strides=(2, 2),
            padding=padding,
        )

    options = fusions_by_mlir()
    wanted = jax.jit(run(jax, jax.lax), compiler_options=options)(x, s)
    found = sw.jit(run(sw, lax), compiler_options=options)(x, s)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_the_rest_by_jax_names():
    np.testing.assert_array_equal(lax.stage_p.bind(3.0), 3.0)
    assert primitives.empty2_p.bind(dtype=np.float32, memory_space=None).shape == ()
    assert lax.after_all_p.bind(lax.create_token_p.bind()).shape == (0,)
    x = sw.jit(lambda: lax.rng_uniform_p.bind(0.0, 1.0, shape=(3,)))()
    assert x.shape == (3,)
    assert primitives.custom_lin_p.name == "custom_vjp_linear"
    same = "after_all_p approx_top_k_p create_token_p eq_to_p le_to_p lt_to_p ragged_all_to_all_p"
    for name in f"{same} rng_uniform_p select_and_scatter_p squeeze_p".split():
        assert getattr(primitives, name) is getattr(lax, name)


def test_rows_go_to_other_devices():
    mesh = mesh_of(2)
    x = np.arange(8, dtype=np.float32)
    sizes = np.full(4, 1, np.int32)

    def exchange(bind: Any, x: Any) -> Any:
        at = np.array([0, 2], np.int32)
        place = lax.axis_index("x") * np.array([1, 1], np.int32)
        return bind(x, np.zeros(4, np.float32) * x, at, sizes[:2], place, sizes[:2], axis_name="x")

    def run(bind: Any) -> Any:
        f = sw.shard_map(
            partial(exchange, bind), mesh=mesh, in_specs=sw.P("x"), out_specs=sw.P("x")
        )
        return np.asarray(sw.jit(f)(x))

    np.testing.assert_array_equal(run(lax.ragged_all_to_all_p.bind), run(lax.ragged_all_to_all))
    np.testing.assert_array_equal(run(lax.ragged_all_to_all), [0, 4, 0, 0, 2, 6, 0, 0])


def test_rules_of_users_replace_ours():
    from shardwise.interpreters import batching

    held = batching.fancy_primitive_batchers[lax.stage_p]
    batching.primitive_batchers[lax.stage_p] = lambda args, dims: (args[0] * 2, dims[0])
    try:
        np.testing.assert_array_equal(sw.vmap(lax.stage_p.bind)(A), A * 2)
    finally:
        batching.fancy_primitive_batchers[lax.stage_p] = held


def test_arrays_of_processes():
    from shardwise.experimental import multihost_utils as ours

    mesh = mesh_of(8)
    for way in ("host_local_array_to_global_array", "global_array_to_host_local_array"):
        named = getattr(ours, f"{way}_p").bind(A[0], global_mesh=mesh, pspec=sw.P())
        np.testing.assert_array_equal(named, getattr(ours, way)(A[0], mesh, sw.P()))
