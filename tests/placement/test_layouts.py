"""Layouts and memory kinds: every way into and out of an array with a non-default one."""

import copy
import gc
import pickle
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.experimental.layout import Format as JaxFormat
from jax.experimental.layout import Layout as JaxLayout

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.types.layout import layout_from_text
from shardwise.experimental.layout import Format, Layout
from shardwise.memory import Space
from shardwise.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.beside_jax import MESH, jax_sharding, ours, sharding
from tests.helpers.errors import message as error_of
from tests.helpers.errors import messages
from tests.helpers.everyday import everyday

X = np.arange(32, dtype=np.float32).reshape(8, 4)
COLUMNS = Layout((1, 0))
ROWS = Layout((0, 1))
ONE = SingleDeviceSharding(sw.devices()[0])
PLACES = {
    "one": ONE,
    "other": SingleDeviceSharding(sw.devices()[3]),
    "rows": sharding("x"),
    "both": sharding("x", "y"),
    "replicated": sharding(),
    "host": sharding("x").with_memory_kind("pinned_host"),
}


def columns(value, place: Any = ONE):
    return sw.device_put(value, Format(COLUMNS, place))


def stored(x):
    """The memory order that the runtime reports."""
    return str(x._impl._pjrt_layout)


# --------------------------------------------------------------------------------- the values


def test_layouts_are_interned_and_say_what_they_are():
    assert Layout([1, 0]) is COLUMNS and Layout((1, 0), ()) is COLUMNS is not ROWS
    assert repr(COLUMNS) == "Layout(major_to_minor=(1, 0))"
    tiled = Layout((0, 1), [(8, 128), (2, 1)])
    assert repr(tiled) == "Layout(major_to_minor=(0, 1), tiling=((8, 128), (2, 1)))"
    assert tiled.as_text() == "{1,0:T(8,128)(2,1)}"
    assert layout_from_text("{1,0:T(8,128)(2,1)}") is tiled
    assert layout_from_text("{}") is Layout(()) and layout_from_text("{0,1:S(5)}") is COLUMNS
    assert repr(Layout.AUTO) == "AUTO"
    assert repr(Format(COLUMNS, ONE)) == f"Format(layout={COLUMNS}, sharding={ONE})"
    assert repr(Format()) == "Format(layout=None, sharding=None)"
    for value in (COLUMNS, tiled, Layout.AUTO, Format(COLUMNS, ONE), Format(Layout.AUTO)):
        assert pickle.loads(pickle.dumps(value)) == value
        assert copy.deepcopy(value) == value and hash(value) == hash(copy.copy(value))
    assert pickle.loads(pickle.dumps(Layout.AUTO)) is Layout.AUTO
    assert Format(COLUMNS, ONE) != Format(ROWS, ONE) != Format(None, ONE)


@pytest.mark.parametrize("order", [(0,), (1, 0), (2, 0, 1)])
def test_text_of_layouts_is_that_of_the_runtime(order):
    there = JaxFormat(JaxLayout(order), jax.sharding.SingleDeviceSharding(jax.devices()[0]))
    x = jax.device_put(np.ones((2, 3, 4)[: len(order)], np.float32), there)
    assert Layout(order).as_text() == str(x._pjrt_layout)
    assert layout_from_text(str(x._pjrt_layout)) is Layout(order)


test_errors = messages(
    """
Layout((1, 1))
    ValueError: Layout: major_to_minor=(1, 1) must name each of the dimensions 0 to 1 once.
Layout((0,), [(0,)])
    ValueError: Layout: tiling=((0,),) must be of positive sizes.
Format(COLUMNS)
    ValueError: Format: Layout(major_to_minor=(1, 0)) needs a sharding, got None: it specifies how
    each shard is laid out in memory. Pass a NamedSharding or a SingleDeviceSharding.
Format((1, 0), ONE)
    TypeError: Format: layout must be a Layout, Layout.AUTO or None; got (1, 0) of type tuple.
Format(COLUMNS, "x")
    TypeError: Format: sharding must be a Sharding or None; got 'x' of type str.
setattr(COLUMNS, "tiling", None)
    AttributeError: cannot assign to 'tiling': a Layout is immutable; make a new one.
columns(np.ones(3))
    ValueError: device_put: x: Layout(major_to_minor=(1, 0)) is for 2 dimensions, but the array has
    1.
sw.device_put({"a": X, "b": X[0]}, Format(COLUMNS, ONE))
    ValueError: device_put: x['b']: Layout(major_to_minor=(1, 0)) is for 2 dimensions, but the
    array has 1.
sw.device_put(X, COLUMNS)
    ValueError: device_put does not accept a bare layout; got Layout(major_to_minor=(1, 0)). Combine
    it with a sharding: Format(Layout(major_to_minor=(1, 0)), sharding).
sw.jit(jnp.sin, out_shardings=Layout.AUTO)(X)
    ValueError: jit of sin: out_shardings does not accept a bare layout; got AUTO. Combine it with a
    sharding: Format(Layout.AUTO, sharding).
sw.device_put(X, Format(Layout.AUTO, ONE))
    ValueError: device_put: Layout.AUTO lets the compiler choose the layout for a program, and
    there is no program here. Compile a program with it, and use its input_formats.
sw.make_array_from_callback((8, 4), Format(Layout.AUTO, ONE), lambda i: X[i])
    ValueError: make_array_from_callback: Layout.AUTO lets the compiler choose the layout for a
    program, and there is no program here. Compile a program with it, and use its input_formats.
sw.jit(lambda a: a[0], out_shardings=Format(COLUMNS, ONE))(X)
    ValueError: jit of <lambda>: out_shardings: result of type f32[4]: Layout(major_to_minor=(1,
    0)) is for 2 dimensions, but the array has 1.
sw.device_put(sw.random.split(sw.random.key(0)), Format(Layout((0,)), ONE))
    TypeError: device_put: x: Layout(major_to_minor=(0,)) is for arrays of numbers, not of dtype
    key<fry>.
sw.jit(lambda a: a, in_shardings=Format(COLUMNS, ONE))(sw.device_put(X, ONE))
    ValueError: jit of <lambda>: a of type f32[8,4] is in the default layout, but in_shardings
    requires the layout Layout(major_to_minor=(1, 0)). Use `device_put` with a Format to change it,
    or None in in_shardings to accept it unchanged.
""",
    globals(),
)


# ------------------------------------------------------------------------------------- arrays


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool"])
@pytest.mark.parametrize("place", everyday(PLACES, 1))
def test_arrays_of_another_layout_are_like_all_others(place, dtype):
    value = (X % 3).astype(jnp.dtype(dtype))
    x = columns(value, PLACES[place])
    assert stored(x) == "{0,1}" and x.format == Format(COLUMNS, PLACES[place])
    for y in (x, x.copy(), sw.device_put(x, may_alias=False), sw.device_put(x, x.sharding)):
        np.testing.assert_array_equal(np.asarray(y), value)
    for shard in x.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), value[shard.index])
    for y in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x)):
        np.testing.assert_array_equal(np.asarray(y), value)
    assert y.format == x.format and stored(y) == "{0,1}"
    back = pickle.loads(pickle.dumps(x))
    assert back.format.layout is ROWS and stored(back) == "{1,0}"
    np.testing.assert_array_equal([np.asarray(row) for row in x], value)
    np.testing.assert_array_equal(np.asarray(x[2:5, 1]), value[2:5, 1])
    np.testing.assert_array_equal(np.asarray(jnp.where(x == 1, x, x)), value)


@pytest.mark.parametrize("target", PLACES)
@pytest.mark.parametrize("place", PLACES)
def test_moving(place, target):
    x, there = columns(X, PLACES[place]), PLACES[target]
    y = sw.device_put(x, there)
    layout = COLUMNS if there is x.sharding else ROWS  # kept if the sharding is
    z = sw.device_put(x, Format(COLUMNS, there))
    for got, order in ((y, layout), (z, COLUMNS), (sw.device_put(x, Format(None, there)), ROWS)):
        assert got.format == Format(order, there) and stored(got) == order.as_text()
        np.testing.assert_array_equal(np.asarray(got), X)
    assert not x.is_deleted()


def test_a_copy_has_memory_of_its_own():
    x = columns(X)
    y = sw.device_put(x, x.format, may_alias=False)
    assert y.format == x.format and y.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
    assert sw.device_put(x, x.format) is x and sw.device_put(x, Format()) is x
    np.testing.assert_array_equal(np.asarray(sw.jit(lambda a: a * 2)(y)), X * 2)


@pytest.mark.sweep
@settings(deadline=None, max_examples=12)
@given(st.permutations(range(3)), st.permutations(range(3)), st.sampled_from(["x", None]))
def test_any_order_of_three_dimensions(first, second, axis):
    value = np.arange(5 * 3 * 2, dtype=np.int32).reshape(5, 3, 2)  # 5 over 4: padded
    place = sharding(axis)
    x = sw.device_put(value, Format(Layout(first), place))
    y = sw.device_put(x, Format(Layout(second), place))
    for got in (x, y, x + y - x, sw.jit(lambda a, b: a.sum() - a.sum() + b)(x, y)):
        np.testing.assert_array_equal(np.asarray(got), value)
    assert y.format.layout is Layout(second)


def test_interchange_tells_strides():
    x = columns(X)
    view = np.from_dlpack(x)
    assert view.strides == (4, 32)
    np.testing.assert_array_equal(view, X)
    np.testing.assert_array_equal(np.asarray(jnp.from_dlpack(x)), X)
    assert np.asarray(x).__array_interface__["data"][0] == x.unsafe_buffer_pointer()


def test_made_of_parts():
    x = sw.make_array_from_callback((8, 4), Format(COLUMNS, sharding("x")), lambda i: X[i])
    assert x.format == Format(COLUMNS, sharding("x")) and stored(x) == "{0,1}"
    parts = [columns(X[s.index], SingleDeviceSharding(s.device)) for s in x.addressable_shards]
    y = sw.make_array_from_single_device_arrays((8, 4), sharding("x"), parts)
    for got in (x, y, y * 1):
        np.testing.assert_array_equal(np.asarray(got), X)


def test_uncommitted_stays_uncommitted():
    f = sw.jit(lambda a: a * 1, out_shardings=Format(Layout.AUTO))
    assert not f(jnp.asarray(X)).committed


def test_arrays_of_the_usual_layout_are_as_before():
    x = sw.device_put(X, sharding("x"))
    assert x._sig.layout is None and x.format == Format(ROWS, sharding("x"))
    assert sw.device_put(X, Format(ROWS, sharding("x")))._sig is x._sig
    assert jnp.ones(()).format.layout is Layout(())


# ---------------------------------------------------------------------------------------- jit


def test_a_program_takes_arguments_as_they_are():
    x = columns(X, sharding("x"))
    f = sw.jit(lambda a, b: a + b)
    text = f.lower(x, X).as_text()
    assert text.count('mhlo.layout_mode = "{0,1}"') == 1
    other = jax.device_put(X, JaxFormat(JaxLayout((1, 0)), jax_sharding("x")))
    assert 'mhlo.layout_mode = "{0,1}"' in jax.jit(lambda a, b: a + b).lower(other, X).as_text()
    y = f(x, X)
    assert y.format == Format(ROWS, sharding("x"))
    np.testing.assert_array_equal(np.asarray(y), X * 2)
    np.testing.assert_array_equal(np.asarray(f(sw.device_put(X, sharding("x")), X)), X * 2)
    assert f._cache_size() == 1  # the layout is not part of the types


def test_asked_for_results():
    f = sw.jit(
        lambda a: {"t": a.T, "n": a * 2},
        out_shardings={"t": Format(COLUMNS, sharding(None, "x")), "n": Format(ROWS, sharding("x"))},
    )
    got = f(ours(X, "x"))
    assert got["t"].format == Format(COLUMNS, sharding(None, "x")) and stored(got["t"]) == "{0,1}"
    assert got["n"]._sig.layout is None
    np.testing.assert_array_equal(np.asarray(got["t"]), X.T)
    np.testing.assert_array_equal(np.asarray(got["n"]), X * 2)
    assert f.lower(ours(X, "x")).compile().output_formats["t"] == got["t"].format


def test_auto_is_the_compilers_choice_and_that_of_jax():
    f = sw.jit(lambda a: (a.T, a @ a.T), out_shardings=Format(Layout.AUTO))
    compiled = f.lower(ours(X, "x")).compile()
    theirs = jax.jit(lambda a: (a.T, a @ a.T), out_shardings=JaxFormat(JaxLayout.AUTO))
    expected = theirs.lower(jax.device_put(X, jax_sharding("x"))).compile().output_formats
    for mine, other in zip(compiled.output_formats, expected, strict=True):
        assert mine.layout.major_to_minor == other.layout.major_to_minor
    transposed, _ = compiled(ours(X, "x"))
    assert transposed.format == compiled.output_formats[0]
    np.testing.assert_array_equal(np.asarray(transposed), X.T)


def test_auto_arguments_are_brought_to_what_was_chosen():
    f = sw.jit(lambda a, b: a.T @ b, in_shardings=(Format(Layout.AUTO, sharding("x")), None))
    compiled = f.lower(sw.ShapeDtypeStruct((8, 4), np.float32), X).compile()
    (chosen, second), named = compiled.input_formats
    assert named == {} and chosen.sharding is sharding("x") and second.layout is ROWS
    x = sw.device_put(X, chosen)
    assert x.format == chosen
    for given_x in (x, X, columns(X, sharding("x"))):
        np.testing.assert_array_equal(np.asarray(compiled(given_x, X)), X.T @ X)
        np.testing.assert_array_equal(np.asarray(f(given_x, X)), X.T @ X)


def test_in_shardings_place_what_is_free():
    f = sw.jit(lambda a: a * 2, in_shardings=Format(COLUMNS, sharding("x")))
    assert 'mhlo.layout_mode = "{0,1}"' in f.lower(X).as_text()
    for value in (X, jnp.asarray(X), columns(X, sharding("x"))):
        np.testing.assert_array_equal(np.asarray(f(value)), X * 2)
    assert f.lower(X).compile().input_formats == ((Format(COLUMNS, sharding("x")),), {})


def test_compiled_programs_relayout_what_they_get():
    there = Format(COLUMNS, sharding("x"))
    compiled = (
        sw.jit(lambda a: a * 2)
        .lower(sw.ShapeDtypeStruct((8, 4), np.float32, sharding=there))
        .compile()
    )
    assert compiled.input_formats == ((there,), {})
    for value in (X, ours(X, "x"), columns(X, sharding("x"))):
        np.testing.assert_array_equal(np.asarray(compiled(value)), X * 2)


def test_types_tell_formats():
    there = Format(COLUMNS, sharding("x"))
    t = sw.ShapeDtypeStruct((8, 4), np.float32, sharding=there)
    assert t.sharding is sharding("x") and t.format == there
    assert t != sw.ShapeDtypeStruct((8, 4), np.float32, sharding=sharding("x"))
    assert t == sw.ShapeDtypeStruct((8, 4), np.float32, sharding=there) and len({t, t}) == 1
    assert repr(t) == (
        f"ShapeDtypeStruct(shape=(8, 4), dtype=float32, sharding={sharding('x')}, layout={COLUMNS})"
    )


@pytest.mark.parametrize("place", ["one", "rows"])
def test_donation(place):
    def run(out):
        x = columns(X, PLACES[place])
        f = sw.jit(lambda a: a * 2, donate_argnums=0, out_shardings=out)
        gc.collect()
        y = f(x)
        assert x.is_deleted()
        np.testing.assert_array_equal(np.asarray(y), X * 2)
        return f.lower(columns(X, PLACES[place])).compile().memory_analysis()

    same = run(Format(COLUMNS, PLACES[place]))
    assert same.alias_size_in_bytes == same.output_size_in_bytes
    run(None)  # another order of elements: right, whether or not memory is shared


def test_closed_over_arrays_keep_their_layout():
    x = columns(X, sharding("x"))
    f = sw.jit(lambda a: a + x)
    np.testing.assert_array_equal(np.asarray(f(ours(X, "x"))), X * 2)
    np.testing.assert_array_equal(np.asarray(sw.jit(lambda: x * 2)()), X * 2)
    elsewhere = sw.device_put(X, sw.devices()[0])
    free = sw.jit(lambda a: a * 1, out_shardings=Format(COLUMNS, ONE))(elsewhere)
    np.testing.assert_array_equal(np.asarray(sw.jit(lambda a: a + free)(elsewhere)), X * 2)


def test_layouts_inside_of_programs_are_left_to_the_compiler():
    inner = sw.jit(lambda a: a * 2, out_shardings=Format(COLUMNS, sharding("x")))
    y = sw.jit(lambda a: sw.device_put(inner(a), Format(COLUMNS, sharding("x"))))(ours(X, "x"))
    assert y.format == Format(ROWS, sharding("x"))
    np.testing.assert_array_equal(np.asarray(y), X * 2)


def test_derivatives_of_arrays_in_another_layout():
    x = columns(X, sharding("x"))
    got = sw.grad(lambda a: (a**2).sum())(x)
    np.testing.assert_array_equal(np.asarray(got), 2 * X)
    np.testing.assert_array_equal(np.asarray(sw.vmap(lambda a: a * 2)(x)), 2 * X)


# ---------------------------------------------------------------------------- kinds of memory


HOST = sharding("x").with_memory_kind("pinned_host")


def kind_of(x):
    return x._impl._sharding._memory_kind


def test_kinds_of_memory():
    x = sw.device_put(X, HOST)
    assert x.sharding.memory_kind == "pinned_host" == kind_of(x)
    assert ours(X, "x").sharding.memory_kind == "device" != kind_of(x)
    back = sw.device_put(x, sharding("x"))
    assert back.sharding is sharding("x")
    np.testing.assert_array_equal(np.asarray(back), X)
    np.testing.assert_array_equal(np.asarray(x), X)


def test_unknown_kinds_name_those_that_there_are():
    with pytest.raises(ValueError) as caught:
        NamedSharding(MESH, P("x"), memory_kind="moon")
    device = sw.devices()[0]
    assert str(caught.value) == (
        f"the device {device} has no memory of kind 'moon'; it has 'device', 'pinned_host' and "
        "'unpinned_host'."
    )


@pytest.mark.parametrize(
    "place", [HOST, ONE.with_memory_kind("pinned_host"), ONE.with_memory_kind("unpinned_host")]
)
def test_programs_write_to_host_memory(place):
    near = place.with_memory_kind(None)
    f = sw.jit(lambda a: (a * 2, a + 1), out_shardings=(place, near))
    y, z = f(sw.device_put(X, near))
    assert y.sharding is place and kind_of(y) == place.memory_kind
    assert z.sharding is near
    text = f.lower(sw.device_put(X, near)).as_text()
    assert text.count(f'mhlo.memory_kind = "{place.memory_kind}"') == 1
    np.testing.assert_array_equal(np.asarray(y), X * 2)
    compiled = f.lower(sw.device_put(X, near)).compile()
    assert compiled.output_shardings == (place, near)
    kinds = compiled.executable.module.raw.get_output_memory_kinds()
    assert kinds == [[place.memory_kind, "device"]]


def test_programs_read_from_host_memory():
    x = sw.device_put(X, HOST)
    f = sw.jit(lambda a, b: a + b)
    y = f(x, ours(X, "x"))
    assert y.sharding is sharding("x")  # computed in device memory
    np.testing.assert_array_equal(np.asarray(y), X * 2)
    assert 'mhlo.memory_kind = "pinned_host"' in f.lower(x, X).as_text()
    np.testing.assert_array_equal(np.asarray(x * 2), X * 2)
    f = sw.jit(lambda a: a * 2, in_shardings=HOST, out_shardings=HOST)
    for value in (X, x):
        assert f(value).sharding is HOST


def test_in_shardings_in_host_memory_are_for_what_is_there():
    near = ours(X, "x")
    assert error_of(ValueError, lambda: sw.jit(lambda a: a * 2, in_shardings=HOST)(near)) == (
        f"jit of <lambda>: a of type f32[8,4] is on {near.sharding}, but in_shardings requires "
        f"{HOST}. Use `device_put` to move it, or None in in_shardings to accept it unchanged."
    )


def host_kinds(x):
    return x.sharding.memory_kind, kind_of(x)


def test_spaces_of_memory():
    near = ours(X, "x")
    far = sw.device_put(near, Space.Host)
    assert far.sharding is HOST and host_kinds(far) == ("pinned_host", "pinned_host")
    assert sw.device_put(far, Space.Device).sharding is sharding("x")
    assert sw.device_put(X, Space.Host).sharding is ONE.with_memory_kind("pinned_host")
    both = sw.device_put({"a": near, "b": far}, {"a": Space.Host, "b": Space.Device})
    assert both["a"].sharding is HOST and both["b"].sharding is sharding("x")
    theirs = jax.device_put(jax.device_put(X, jax_sharding("x")), jax.memory.Space.Host)
    assert theirs.sharding.memory_kind == "pinned_host"


STEPS = {
    "space": lambda a: sw.device_put(a * 2, Space.Host),
    "put": lambda a: sw.device_put(a * 2, HOST),
    "constraint": lambda a: sw.with_sharding_constraint(a * 2, HOST),
}


@pytest.mark.parametrize("step", STEPS)
def test_results_stay_where_a_program_leaves_them(step):
    y = sw.jit(STEPS[step])(ours(X, "x"))
    assert y.sharding is HOST and host_kinds(y) == ("pinned_host", "pinned_host")
    np.testing.assert_array_equal(np.asarray(y), X * 2)


def test_programs_go_to_host_memory_and_back():
    def update(state, x):
        state = sw.device_put(state, Space.Device)
        return sw.device_put(state + x, Space.Host)

    state = sw.device_put(X, HOST)
    for _ in range(3):
        state = sw.jit(update, donate_argnums=0)(state, ours(X, "x"))
    assert state.sharding is HOST
    np.testing.assert_allclose(np.asarray(state), X * 4)
    one = sw.jit(STEPS["space"])(sw.device_put(X, sw.devices()[3]))
    assert one.devices() == {sw.devices()[3]} and host_kinds(one) == ("pinned_host",) * 2


def test_derivatives_pass_through_spaces():
    def loss(a):
        return (sw.device_put(sw.device_put(a, Space.Host), Space.Device) ** 2).sum()

    for grad in (sw.grad(loss), sw.jit(sw.grad(loss))):
        np.testing.assert_array_equal(np.asarray(grad(ours(X, "x"))), 2 * X)
    np.testing.assert_array_equal(np.asarray(sw.vmap(STEPS["space"])(ours(X, "x"))), 2 * X)


@pytest.mark.parametrize("types", [AxisType.Auto, AxisType.Explicit])
def test_host_memory_within_a_program_over_any_kind_of_axes(types):
    mesh = Mesh(MESH.devices, MESH.axis_names, axis_types=[types] * len(MESH.axis_names))
    near = NamedSharding(mesh, P(MESH.axis_names[0]))
    far = near.with_memory_kind("pinned_host")
    y = sw.jit(lambda x: sw.device_put(x * 2, far))(sw.device_put(X, near))
    assert y.sharding.is_equivalent_to(far, 2) and host_kinds(y) == ("pinned_host", "pinned_host")
    np.testing.assert_array_equal(y, X * 2)
