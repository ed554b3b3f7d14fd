"""Ops that a compiler lacks for a dtype are computed in a wider one, or rejected."""

import dataclasses
import functools

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise._src.core.op import every_op
from shardwise._src.runtime.dtype_gaps import CUDA_GAPS, TPU_GAPS
from shardwise._src.runtime.platforms import CPU
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.bare import devices_of
from tests.helpers.errors import message
from tests.helpers.everyday import everyday
from tests.helpers.targets import CUDA, TPU, compiled, mesh_on, needs_cuda, needs_tpu, on

GAPS = (*CUDA_GAPS, *TPU_GAPS)


@functools.cache
def lacking():
    """Four devices of the CPU, with the gaps of CUDA's compiler."""
    return devices_of(dataclasses.replace(CPU, name="lacking", gaps=CUDA_GAPS))


def devices(lacks):
    return lacking() if lacks else sw.devices("cpu")[:4]


def bits(values):
    return [np.asarray(a).view(np.uint8) for a in sw.tree.leaves(values)]


def over_devices(f):
    def g(x):
        mesh = sw.typeof(x).sharding.mesh
        return sw.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)(x)

    return g


OPS = {
    "sort": lambda x: (jnp.sort(x), jnp.argsort(x)),
    "extremes": lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0), jnp.max(x, 0)),
    "gather": lambda x: x[np.array([2, 0, 0])],
    "product": lambda x: x.T @ x,
    "psum": over_devices(lambda x: lax.psum(x, "x")),
    "psum_scatter": over_devices(
        lambda x: lax.psum_scatter(x, "x", scatter_dimension=1, tiled=True)
    ),
    "all_gather": over_devices(lambda x: lax.all_gather(x, "x")),
    "ppermute": over_devices(lambda x: lax.ppermute(x, "x", [(0, 1), (1, 2)])),
}
ALONG_DEVICES = ("psum", "psum_scatter", "all_gather", "ppermute")
SORTED = ("int2", "uint2", "int4", "uint4", "float4_e2m1fn", "float8_e3m4", "float8_e5m2fnuz")
OTHERS = {"extremes": SORTED[:5]}
CASES = [
    *[("sort", dtype) for dtype in SORTED],
    *[(n, d) for n in OPS if n != "sort" for d in OTHERS.get(n, (*SORTED[:2], *SORTED[-2:]))],
]


def numbers(dtype):
    values = np.random.default_rng(5).integers(-2, 4, (8, 4)).astype(np.float32)
    values[3, 2], values[5, 1] = np.nan, -0.0
    if dtype.startswith(("int", "uint")):
        values = np.abs(np.nan_to_num(values)) if dtype[0] == "u" else np.nan_to_num(values)
    return values.astype(getattr(ml_dtypes, dtype))


@pytest.mark.parametrize(("name", "dtype"), everyday(CASES, 10))
def test_values_are_those_of_the_wide_dtype(name, dtype):
    x, f = numbers(dtype), OPS[name]
    wide = x.astype(np.float32 if dtype.startswith("float") else np.int8)
    rows = sw.sharding.AxisType.Explicit
    mesh, other = [Mesh(np.array(devices(n), object), "x", axis_types=(rows,)) for n in (1, 0)]
    every = name in ALONG_DEVICES
    found = sw.jit(f)(sw.device_put(x, NamedSharding(mesh, P("x")) if every else lacking()[0]))
    known = f(sw.device_put(wide, NamedSharding(other, P("x"))) if every else jnp.asarray(wide))
    for a, b in zip(sw.tree.leaves(found), sw.tree.leaves(known), strict=True):
        b = np.asarray(b).astype(x.dtype if b.dtype == wide.dtype else b.dtype)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a).astype(np.float32), b.astype(np.float32))


def on_both(f, x):
    """The results of a program on devices with gaps, and without, which must be of equal bits."""
    found, known = [sw.jit(f)(sw.device_put(x, devices(lacks)[0])) for lacks in (True, False)]
    for a, b in zip(sw.tree.leaves(found), sw.tree.leaves(known), strict=True):
        assert a.dtype == b.dtype
    for a, b in zip(bits(found), bits(known), strict=True):
        np.testing.assert_array_equal(a, b)
    return found


GATHERED = ("int2", "uint2", "float8_e3m4", "float8_e4m3", "float8_e8m0fnu", "float8_e5m2fnuz",
            "float8_e4m3fnuz")  # fmt: skip
OUTSIDE = np.array([0, -9, 2, 7, 5, 3, 8])


def taken(x):
    return {
        "clip": x.at[OUTSIDE].get(mode="clip"),
        "fill": x.at[OUTSIDE].get(mode="fill"),
        "zero": x.at[OUTSIDE, 1].get(mode="fill", fill_value=0),
        "value": x.at[OUTSIDE].get(mode="fill", fill_value=1 if "int" in x.dtype.name else 1.5),
        "inside": x.at[OUTSIDE[[0, 2, 4]]].get(mode="promise_in_bounds"),
        "empty": x.at[OUTSIDE[:0]].get(mode="fill"),
    }


@pytest.mark.parametrize("dtype", GATHERED)
def test_gathers_out_of_bounds(dtype):
    x = numbers(dtype)
    found = {n: np.asarray(v).astype(np.float32) for n, v in on_both(taken, x).items()}
    default = {"int2": -2, "uint2": 3}.get(dtype, np.nan)
    value = x.dtype.type(1 if dtype in ("int2", "uint2") else 1.5).astype(np.float32)
    for name, outside in (("fill", default), ("value", value)):
        np.testing.assert_array_equal(found[name][[1, 6]], np.full((2, 4), outside))


@pytest.mark.parametrize("dtype", GATHERED[:2])
def test_reductions_of_no_elements(dtype):
    def reduced(x):
        none = x[:0]
        ops = lax.reduce_max, lax.reduce_min, lax.reduce_prod
        return [f(y, (0,)) for y in (none, x) for f in ops]

    highest, lowest, *_ = on_both(reduced, numbers(dtype))
    assert (int(highest[0]), int(lowest[0])) == {"int2": (-2, 1), "uint2": (0, 3)}[dtype]


@pytest.mark.parametrize("dtype", GATHERED[2:])
def test_convolutions(dtype):
    def convolved(x):
        x = x.reshape(1, 2, 4, 4)
        return [lax.conv(x[:, :n], x[:, :n, :2, :2], (1, 1), "SAME") for n in (2, 0)]

    on_both(convolved, numbers(dtype))


@pytest.mark.parametrize("dtype", GATHERED[2:])
def test_nan_and_the_sign_of_zeros_are_kept(dtype):
    x = np.array([1, -0.0, np.nan, 0.0, 2, -np.nan, 4, 0.5], np.float32)
    x = x.astype(getattr(ml_dtypes, dtype)).reshape(4, 2)
    on_both(lambda x: [jnp.sort(x, 0), jnp.argsort(x.ravel()), x[::-1][np.array([1, 0, 3])]], x)


def test_gaps_name_ops_and_dtypes():
    ops = every_op()
    for gap in GAPS:
        assert {*gap.ops} <= {*ops}
        for name in (*gap.wide, *gap.wide.values(), *gap.dtypes):
            np.dtype(getattr(ml_dtypes, name, name))
        assert bool(gap.dtypes) == bool(gap.why) == bool(gap.instead)


@needs_tpu
def test_products_of_64_bits_on_a_tpu():
    with sw.enable_x64(True):
        found = message(NotImplementedError, compiled, lambda x: x @ x, TPU, np.eye(3, dtype=int))
    assert found.startswith("[dot_general] of i64[3,3] and i64[3,3] at ")
    assert found.endswith(
        "cannot be compiled for tpu with int64: TPUs compute with 32 bits, and the compiler does "
        "not emulate products of 64 bits. Convert the operands with `x.astype('int32')`, or run "
        "this part on a CPU device."
    )


@needs_tpu
def test_arguments_that_a_tpu_does_not_have():
    x = np.ones((3, 4), ml_dtypes.int2)
    assert message(NotImplementedError, compiled, lambda x: x, TPU, x) == (
        "<lambda> has an argument or a result of type i2[3,4], and cannot be compiled for tpu with "
        "int2: the compiler has few ops of integers with two bits, and others end the process. "
        "Convert the operands with `x.astype('int8')`, or run this part on a CPU device."
    )


@needs_cuda
def test_integer_convolutions_on_a_gpu():
    x = np.ones((1, 1, 4, 4), np.int32)
    found = message(
        NotImplementedError, compiled, lambda x: lax.conv(x, x, (1, 1), "SAME"), CUDA, x
    )
    assert found.endswith(
        "cannot be compiled for cuda with int32: cuDNN convolves integers only from int8 to int8 "
        "or float32. Convert the operands with `x.astype('float32')`, or run this part on a CPU "
        "device."
    )


@needs_cuda
def test_resharding_that_a_network_library_does_not_have():
    mesh = mesh_on("h100:8", (8,), ("x",))
    x = on(mesh, np.zeros((8, 8), ml_dtypes.float8_e3m4), "x")
    f = sw.jit(lambda x: lax.with_sharding_constraint(x, sw.NamedSharding(mesh, P())))
    assert message(NotImplementedError, f.lower(x).compile) == (
        "an all-gather of float8_e3m4 cannot be compiled for cuda: NCCL, which connects the "
        "devices, does not have this dtype. Convert values that are resharded to a wider one, such "
        "as `x.astype('float32')`, and the results back."
    )
