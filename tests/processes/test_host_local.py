"""Host-local values as shards of global arrays, and back, in several processes."""

import pytest

from tests.helpers.processes import run_processes

CASTS = """
    import re

    import numpy as np

    import shardwise as sw
    import shardwise.numpy as jnp
    from shardwise.experimental.multihost_utils import (
        global_array_to_host_local_array as to_local, host_local_array_to_global_array as to_global,
        process_allgather,
    )
    from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P

    n, me, d = sw.process_count(), sw.process_index(), sw.local_device_count()
    flat = Mesh(sw.devices(), ("x",))
    grid = Mesh(np.array(sw.devices()).reshape(n, d), ("host", "dev"))

    def pointers(x):
        return [s.data.unsafe_buffer_pointer() for s in x.addressable_shards]

    # Each process has its rows, its columns, or the same as all.
    own = np.arange(8.0, dtype="f").reshape(4, 2) + 100 * me
    both = np.concatenate([np.arange(8.0, dtype="f").reshape(4, 2) + 100 * i for i in range(n)])
    for mesh, spec in ((flat, P("x")), (grid, P("host")), (grid, P(("host", "dev"))),
                       (grid, P("host", None))):
        x = to_global(own, mesh, spec)
        assert x.shape == (4 * n, 2) and x.sharding == NamedSharding(mesh, spec) and x.committed
        np.testing.assert_array_equal(process_allgather(x, tiled=True), both)
        y = to_local(x, mesh, spec)
        assert y.sharding == NamedSharding(mesh.local_mesh, spec) and y.is_fully_addressable
        np.testing.assert_array_equal(y, own)
        assert pointers(y) == pointers(x) == pointers(to_global(y, mesh, spec))  # no copy
        np.testing.assert_array_equal(to_local(x * 2, mesh, spec), own * 2)
        assert to_global(x, mesh, spec) is x and to_local(y, mesh, spec) is y
    x = to_global(own, grid, P(None, "host"))
    assert x.shape == (4, 2 * n)
    same = to_global(np.float32(7), grid, P())
    assert same.shape == () and float(same) == 7 and to_local(same, grid, P()).shape == ()
    np.testing.assert_array_equal(to_local(to_global(own * 0, flat, P()), flat, P()), own * 0)

    # Trees, with specs as prefixes; keys; what is resharded first.
    tree = {"a": own, "b": [np.ones(d, "i4") * me, sw.random.split(sw.random.key(me), d)], "c": 3}
    x = to_global(tree, flat, {"a": P("x"), "b": P("x"), "c": P()})
    assert [v.shape for v in sw.tree.leaves(x)] == [(4 * n, 2), (n * d,), (n * d,), ()]
    back = to_local(x, flat, {"a": P("x"), "b": P("x"), "c": P()})
    due = sw.random.key_data(tree["b"][1])
    np.testing.assert_array_equal(sw.random.key_data(back["b"][1]), due)
    np.testing.assert_array_equal(to_local(x["a"], grid, P("host")), own)
    whole = to_local(x["a"], flat, P())
    np.testing.assert_array_equal(whole, both)

    # Under transforms.
    w = np.arange(float(n * 4 * 2), dtype="f").reshape(4 * n, 2)
    place = NamedSharding(flat, P("x"))
    weights = sw.make_array_from_callback(w.shape, place, w.__getitem__)
    double = sw.jit(lambda x: 2 * x * weights, out_shardings=place)

    def loss(local):
        return (to_local(double(to_global(local, flat, P("x"))), flat, P("x")) ** 2).sum()

    mine = w[4 * me : 4 * me + 4]
    start = to_local(to_global(own, flat, P("x")), flat, P("x"))
    np.testing.assert_allclose(loss(start), (4 * own**2 * mine**2).sum(), rtol=1e-5)
    np.testing.assert_allclose(sw.grad(loss)(start), 8 * own * mine**2, rtol=1e-5)
    out, tangent = sw.jvp(lambda v: to_global(v, flat, P("x")), (start,), (start,))
    assert out.shape == tangent.shape == (4 * n, 2)
    pulled, = sw.vjp(lambda v: to_global(v, flat, P("x")), start)[1](2 * out)
    np.testing.assert_array_equal(pulled, 2 * own)
    mapped = sw.vmap(lambda v: to_global(v, flat, P("x")), in_axes=1, out_axes=1)(start)
    np.testing.assert_array_equal(process_allgather(mapped, tiled=True), both)
    t = sw.eval_shape(lambda v: to_global(v, flat, P("x")), start)
    assert t.shape == (4 * n, 2)
    assert "host_local_array_to_global_array" in str(sw.make_jaxpr(
        lambda v: to_global(v, flat, P("x")))(start))

    def show(function, *args):
        try:
            function(*args)
        except Exception as error:
            print(f"{type(error).__name__}: {error}")

    show(to_global, {"w": np.ones((d + 1, 2))}, flat, P("x"))
    show(to_global, [own], flat, None)
    show(to_global, [own], flat, [P("y")])
    show(to_global, own, flat.abstract_mesh, P("x"))
    uneven = sw.make_array_from_callback((n * d + 1,), place, lambda i: np.zeros(n * d + 1)[i], "f")
    show(to_local, {"u": uneven}, flat, P("x"))
    turned = Mesh(np.array(sw.devices()).reshape(n, d).T.ravel(), ("x",))
    if d > 1:
        show(to_global, own, turned, P("x"))
    show(sw.jit(lambda v: to_global(v, flat, P("x"))), own)
"""

TOLD = """\
ValueError: host_local_array_to_global_array: local_inputs['w'] of type f32[3,2]: dimension 0 of \
size 3 is sharded over 2 devices under NamedSharding(mesh=Mesh('x': 2), spec=P('x')), which do not \
divide it, but all shards must have the same size. Pad it, or use \
make_array_from_process_local_data with a global_shape.
ValueError: host_local_array_to_global_array: the spec of local_inputs[0] is None of type \
NoneType. It must be a PartitionSpec; PartitionSpec() is for a value that is the same in all \
processes.
ValueError: host_local_array_to_global_array: local_inputs[0] of type f32[4,2]: P('y') names the \
axis 'y', which Mesh('x': 4) does not have; its axes are 'x'.
TypeError: host_local_array_to_global_array: global_mesh must be a Mesh; got AbstractMesh('x': 4) \
of type AbstractMesh.
ValueError: global_array_to_host_local_array: global_inputs['u'] of type f32[5]: dimension 0 of \
size 5 is sharded over 4 devices under NamedSharding(mesh=Mesh('x': 4), spec=P('x')), which do not \
divide it, but all shards must have the same size. Pad it, or use \
make_array_from_process_local_data with a global_shape.
ValueError: host_local_array_to_global_array: local_inputs of type f32[4,2]: the devices of \
process 0 do not form a contiguous subgrid of Mesh('x': 4): they are at [[0], [2]]. Order the \
devices so that each process has a block of the mesh, as make_mesh does.
NotImplementedError: host_local_array_to_global_array: f32[4,2] would become f32[8,2] in a \
compiled program, but the same program runs in all processes, so it cannot have process-local \
values. Call it outside of jit; compile the code before and after it.
"""


@pytest.mark.sweep
@pytest.mark.parametrize(("count", "devices"), [(2, 2), (4, 1), (1, 4), (3, 2)])
def test_casts(count, devices):
    results = run_processes(CASTS, count, devices=devices)
    assert len({r.out.count("Error: ") for r in results}) == 1
    if (count, devices) == (2, 2):
        assert results[0].out == TOLD
