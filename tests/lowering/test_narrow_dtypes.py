"""Ops that a compiler lacks for a dtype are computed in a wider one, or rejected."""

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise._src.core.op import every_op
from shardwise._src.runtime.dtype_gaps import CUDA_GAPS, TPU_GAPS
from shardwise._src.runtime.platforms import CPU
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message
from tests.helpers.everyday import everyday
from tests.helpers.meshes import mesh_of
from tests.helpers.targets import CUDA, TPU, compiled, mesh_on, needs_cuda, needs_tpu, on

MESH = mesh_of(4)
GAPS = (*CUDA_GAPS, *TPU_GAPS)


def over_devices(f):
    return sw.shard_map(f, mesh=MESH, in_specs=P("x"), out_specs=P("x"), check_vma=False)


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
SORTED = ("int2", "uint2", "int4", "uint4", "float4_e2m1fn", "float8_e3m4", "float8_e5m2fnuz")
OTHERS = {"extremes": SORTED[:5]}
CASES = [
    *[("sort", dtype) for dtype in SORTED],
    *[(n, d) for n in OPS if n != "sort" for d in OTHERS.get(n, (*SORTED[:2], *SORTED[-2:]))],
]


@pytest.fixture
def lacking() -> Iterator[None]:
    """The CPU with the gaps of CUDA's compiler."""
    object.__setattr__(CPU, "gaps", CUDA_GAPS)
    sw.clear_caches()
    yield
    object.__setattr__(CPU, "gaps", ())
    sw.clear_caches()


def numbers(dtype):
    values = np.random.default_rng(5).integers(-2, 4, (8, 4)).astype(np.float32)
    values[3, 2], values[5, 1] = np.nan, -0.0
    if dtype.startswith(("int", "uint")):
        values = np.abs(np.nan_to_num(values)) if dtype[0] == "u" else np.nan_to_num(values)
    return values.astype(getattr(ml_dtypes, dtype))


@pytest.mark.parametrize(("name", "dtype"), everyday(CASES, 10))
def test_values_are_those_of_the_wide_dtype(name, dtype, lacking):
    x, f = numbers(dtype), OPS[name]
    found = sw.jit(lambda x: f(x))(x)
    object.__setattr__(CPU, "gaps", ())
    sw.clear_caches()
    wide = x.astype(np.float32 if dtype.startswith("float") else np.int8)
    for a, b in zip(sw.tree.leaves(found), sw.tree.leaves(f(jnp.asarray(wide))), strict=True):
        b = np.asarray(b).astype(x.dtype if b.dtype == wide.dtype else b.dtype)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a).astype(np.float32), b.astype(np.float32))


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
