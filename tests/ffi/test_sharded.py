"""Foreign functions on sharded arrays: gathered, or not."""

from itertools import product

import numpy as np
import pytest

import shardwise as sw
from shardwise.experimental.custom_partitioning import custom_partitioning
from shardwise.ffi import ffi_call
from shardwise.sharding import AxisType, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.ffi.test_ffi_call import X, add, close, f32, plain_rms, rms
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

pytestmark = pytest.mark.usefixtures("kernels")

KINDS = (AxisType.Auto, AxisType.Explicit)
SPECS = (P("i"), P("i", "j"), P(None, "j"), P(("i", "j")))


def placed(x, spec, kind):
    mesh = sw.make_mesh((4, 2), ("i", "j"), axis_types=(kind,) * 2)
    return sw.device_put(x, NamedSharding(mesh, spec))


def gathers(f, *args):
    return "all-gather" in sw.jit(f).lower(*args).compile().as_text()


@pytest.mark.parametrize(("kind", "spec"), everyday(product(KINDS, SPECS), 1))
def test_values_do_not_depend_on_places(spec, kind):
    x = placed(X, spec, kind)
    for f in (
        rms, lambda x: rms(x, "rms.parts", num_batch_dims=1),
        *[sw.vmap(lambda x, m=m: rms(x, "rms.parts", vmap_method=m))
          for m in ("sequential", "expand_dims", "broadcast_all", "legacy_vectorized")],
    ):  # fmt: skip
        close(sw.jit(f)(x), plain_rms(X))
        close(f(x), plain_rms(X))


@pytest.mark.parametrize("kind", KINDS)
def test_batches_stay_where_they_are(kind):
    x = placed(X, P("i"), kind)
    mapped = sw.vmap(lambda x: rms(x, "rms.parts", vmap_method="broadcast_all"))
    for f in (lambda x: rms(x, "rms.parts", num_batch_dims=1), mapped):
        y, factor = sw.jit(f)(x)
        assert not gathers(f, x)
        assert y.sharding.is_equivalent_to(x.sharding, 2)
        assert factor.sharding.is_equivalent_to(x.sharding, 1)
    for f in (lambda x: rms(x, "rms.parts"), lambda x: rms(x, "rms", num_batch_dims=1)):
        assert gathers(f, x)  # nothing declares that it is a batch, or that it may be sharded


def test_nested_batches():
    stack = np.stack([X + i for i in range(8)])
    x = placed(stack, P("j", "i"), AxisType.Auto)
    f = sw.vmap(sw.vmap(lambda x: rms(x, "rms.parts", vmap_method="broadcast_all")))
    close(sw.jit(f)(x), plain_rms(stack))
    y = sw.jit(f)(x)[0]
    assert y.sharding.is_equivalent_to(x.sharding, 3)


def test_operands_that_are_not_mapped():
    x = placed(X, P("i"), AxisType.Auto)
    for method, whole in (("broadcast_all", False), ("expand_dims", True)):
        f = sw.vmap(add(sw, "add-parts", method), (0, None))
        close([sw.jit(f)(x, X[0])], [X + 2 * X[0]])
        assert gathers(f, x, X[0]) is whole


@pytest.mark.parametrize("rows", [7, 6, 1])
def test_uneven_batches_have_no_padding(rows):
    x = placed(X[:rows], P("i"), AxisType.Auto)
    f = sw.jit(lambda x: ffi_call("root", f32(*x.shape), num_batch_dims=1)(abs(x) + 1))
    np.testing.assert_array_equal(f(x), abs(X[:rows]) + 1)
    close(sw.jit(lambda x: rms(x, "rms.parts", num_batch_dims=1))(x), plain_rms(X[:rows]))


def test_batches_that_do_not_fit():
    call = ffi_call("rms", (f32(8, 6), f32(4)), num_batch_dims=1)
    assert message(ValueError, call, X, eps=np.float32(1)) == (
        "ffi_call of 'rms': num_batch_dims=1 leading dimensions must be the same for all "
        "operands and results; got f32[8,6], f32[8,6], f32[4]."
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axes", [{"i", "j"}, {"i"}])
def test_shard_map(axes, kind):
    x = placed(X, P("i"), kind)
    f = sw.shard_map(rms, mesh=x.sharding.mesh, in_specs=P("i"), out_specs=P("i"),
                     axis_names=axes)  # fmt: skip
    assert not gathers(f, x)
    close(sw.jit(f)(x), plain_rms(X))


@pytest.mark.parametrize(
    ("kind", "spec"),
    [*product([AxisType.Auto], SPECS), (AxisType.Explicit, P("i")),
     (AxisType.Explicit, P(("i", "j")))],
)  # fmt: skip
def test_custom_partitioning(kernels, shapes, spec, kind):
    """A kernel on full rows receives those on its device, by the user's own rules."""

    def along_rows(mesh, args, result):
        axes = args[0].sharding.spec[:1]
        return NamedSharding(mesh, P(*axes, None))

    def partition(mesh, args, result):
        place = along_rows(mesh, args, result)
        return mesh, doubled, place, (place,)

    def doubled(x):
        return add(sw, scale=1)(x, x)

    twice = custom_partitioning(doubled)
    twice.def_partition(
        partition=partition,
        infer_sharding_from_operands=along_rows,
        sharding_rule="i j -> i j",
        need_replication_factors=("j",),
    )
    x = placed(X, spec, kind)
    np.testing.assert_array_equal(sw.jit(twice)(x), 2 * X)
    parts = {P("i"): 4, P("i", "j"): 4, P(None, "j"): 1, P(("i", "j")): 8}[spec]
    assert shapes() == [(8 // parts, 6)] * 2
    assert gathers(twice, x) is ("j" in spec)  # within rows only


def test_each_device_gets_its_part(kernels, shapes):
    mesh = sw.make_mesh((8,), ("i",))
    f = sw.jit(sw.shard_map(lambda x: add(sw)(x, x), mesh=mesh, in_specs=P("i"), out_specs=P("i")))
    before = kernels.Calls()
    np.testing.assert_allclose(f(X), 3 * X, rtol=1e-6)
    assert kernels.Calls() - before == 8
    assert shapes() == [(1, 6), (1, 6)]


def test_an_error_of_one_device():
    f = sw.jit(lambda x: ffi_call("root", f32(8))(x))
    x = placed(np.float32([1, 2, 3, -4, 5, 6, 7, 8]), P(("i", "j")), AxisType.Auto)
    text = message(sw.errors.JaxRuntimeError, lambda: np.asarray(f(x)))
    assert "no root of element 3" in text
