"""`ragged_all_to_all`, against row-by-row copies in NumPy. (XLA's own is not in every backend.)"""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise._src.core.checker import check_program
from shardwise.sharding import Mesh
from shardwise.sharding import PartitionSpec as P
from shardwise.testing import check_grads
from tests.helpers.comparing import close
from tests.helpers.errors import fails, messages
from tests.helpers.everyday import everyday
from tests.lowering.test_collectives import sent

LINE = Mesh(np.array(sw.devices()[:4]), ("i",))
GRID = Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y"))


def exchanged(operand, output, starts, sent, targets, came, groups=None):
    """By index of the first dimension, row by row."""
    out, n = output.copy(), len(operand)
    for group in groups or [range(n)]:
        group = list(group)
        k = starts.shape[1] // len(group)
        for to, receiver in enumerate(group):
            for source, sender in enumerate(group):
                for j in range(k):
                    i, back = to * k + j, source * k + j
                    size = min(sent[sender, i], came[receiver, back])
                    for row in range(size):
                        there, here = targets[sender, i] + row, starts[sender, i] + row
                        if 0 <= there < out.shape[1] and 0 <= here < operand.shape[1]:
                            out[receiver, there] = operand[sender, here]
    return out


def problem(n, k=1, rows=7, outputs=30, shape=(3,), seed=0, group=None):
    """Slices of random sizes, which fill the outputs of their receivers one after another."""
    rng = np.random.default_rng(seed)
    group = group or [list(range(n))]
    count = len(group[0]) * k
    sent = rng.integers(0, 4, (n, count)).astype(np.int32)
    starts = rng.integers(0, rows - 3, (n, count)).astype(np.int32)
    came, targets = np.zeros_like(sent), np.zeros_like(sent)
    for members in group:
        for to, receiver in enumerate(members):
            filled = 0
            for source, sender in enumerate(members):
                for j in range(k):
                    came[receiver, source * k + j] = sent[sender, to * k + j]
                    targets[sender, to * k + j] = filled
                    filled += sent[sender, to * k + j]
    operand = rng.standard_normal((n, rows, *shape)).astype(np.float32)
    output = rng.standard_normal((n, outputs, *shape)).astype(np.float32)
    return operand, output, starts, sent, targets, came


def call(axis_name, **options):
    return lambda *args: lax.ragged_all_to_all(*args, axis_name=axis_name, **options)


def over_map(f, *args):
    return sw.vmap(f, axis_name="i")(*args)


def over_mesh(f, *args, **options):
    part = lambda *args: f(*[a[0] for a in args])[None]  # noqa: E731
    return sw.shard_map(part, mesh=LINE, in_specs=P("i"), out_specs=P("i"), **options)(*args)


def over_untracked_mesh(f, *args):
    return over_mesh(f, *args, check_vma=False)


WAYS = [over_map, over_mesh, over_untracked_mesh]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("k", [1, 3])
def test_against_numpy(way, k):
    args = problem(4, k)
    got = sw.jit(lambda *args: way(call("i"), *args))(*args)
    np.testing.assert_array_equal(np.asarray(got), exchanged(*args))


def test_eagerly():
    args = problem(4, 2, shape=())
    for way in WAYS[:2]:
        np.testing.assert_array_equal(np.asarray(way(call("i"), *args)), exchanged(*args))


def test_the_example_of_two():
    operand, output = np.array([[1, 2, 2], [3, 4, 0]]), np.zeros((2, 4), int)
    rest = [[0, 1], [0, 1]], [[1, 2], [1, 1]], [[0, 0], [1, 2]], [[1, 1], [2, 1]]
    got = over_map(call("i"), operand, output, *map(np.array, rest))
    assert got.tolist() == [[1, 3, 0, 0], [2, 2, 4, 0]]


@pytest.mark.parametrize("way", WAYS)
def test_groups(way):
    groups = [[0, 3], [2, 1]]
    args = problem(4, 2, group=groups)
    got = sw.jit(lambda *args: way(call("i", axis_index_groups=groups), *args))(*args)
    np.testing.assert_array_equal(np.asarray(got), exchanged(*args, groups=groups))


def test_over_several_axes_of_maps_and_meshes():
    args = problem(8)
    wanted = exchanged(*args)
    f = call(("x", "y"))

    def apart(shape):
        return [a.reshape(*shape, *a.shape[1:]) for a in args]

    both = sw.vmap(sw.vmap(f, axis_name="y"), axis_name="x")
    np.testing.assert_array_equal(
        np.asarray(sw.jit(both)(*apart((4, 2)))).reshape(wanted.shape), wanted
    )

    def part(*args):
        return f(*[a[0] for a in args])[None]

    on_devices = sw.shard_map(part, mesh=GRID, in_specs=P(("x", "y")), out_specs=P(("x", "y")))
    np.testing.assert_array_equal(np.asarray(sw.jit(on_devices)(*args)), wanted)

    def mixed(*args):
        return sw.vmap(f, axis_name="y")(*[a[0] for a in args])[None]

    some = sw.shard_map(mixed, mesh=GRID, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    got = np.asarray(sw.jit(some)(*apart((4, 2))))
    np.testing.assert_array_equal(got.reshape(wanted.shape), wanted)


@pytest.mark.parametrize("way", WAYS)
def test_over_batches(way):
    """Some operands are mapped, others not."""
    first, second = problem(4, seed=1), problem(4, seed=2)
    both = [np.stack(pair, 1) for pair in zip(first, second, strict=True)]
    got = sw.jit(lambda *args: way(sw.vmap(call("i")), *args))(*both)
    for i, args in enumerate((first, second)):
        np.testing.assert_array_equal(np.asarray(got)[:, i], exchanged(*args))
    mixed = [*both[:1], *first[1:]]
    axes = (0, *[None] * 5)
    got = sw.jit(lambda *args: way(sw.vmap(call("i"), axes), *args))(*mixed)
    np.testing.assert_array_equal(np.asarray(got)[:, 1], exchanged(second[0], *first[1:]))


@pytest.mark.sweep
@pytest.mark.parametrize("way", everyday(WAYS, 1))
def test_derivatives(way):
    operand, output, *rest = problem(4, 2, shape=(2,))
    weights = np.random.default_rng(3).standard_normal(output.shape).astype(np.float32)

    def loss(operand, output):
        return jnp.sum(way(call("i"), operand, output, *rest) * weights)

    slopes = sw.jit(sw.grad(loss, (0, 1)))
    got = slopes(operand, output)
    came = exchanged(np.ones_like(operand), np.zeros_like(output), *rest)
    back = np.zeros_like(operand)  # where each row of the operand went
    numbers = np.arange(operand.size // 2, dtype=np.float32).reshape(*operand.shape[:2], 1)
    places = exchanged(np.broadcast_to(numbers, operand.shape), np.full_like(output, -1), *rest)[
        ..., 0
    ].astype(int)
    np.add.at(back.reshape(-1, 2), places[places >= 0], weights[places >= 0])
    close(got, (back, weights * (came == 0)), 1e-5)
    _, along = sw.jit(lambda *a: sw.jvp(loss, a, a))(operand, output)
    np.testing.assert_allclose(along, loss(operand, output), rtol=1e-4, atol=1e-4)
    if way is over_map:
        check_grads(
            sw.jit(lambda *a: jnp.sin(way(call("i"), *a, *rest))), (operand, output), 2, eps=1e-2
        )


@pytest.mark.parametrize("way", WAYS)
def test_in_control_flow(way):
    args = problem(4)

    def f(operand, output, *rest):
        def step(carry, scale):
            new = lax.cond(
                scale > 1, lambda: call("i")(operand * scale, carry, *rest), lambda: carry
            )
            return new, new[0, 0]

        carry, _ = lax.scan(sw.checkpoint(step), output, np.array([1.0, 2.0, 3.0], np.float32))
        return carry

    staged = sw.jit(lambda *args: way(f, *args))
    check_program(staged.trace(*args).program)
    got = staged(*args)
    wanted = exchanged(args[0] * np.float32(3), args[1], *args[2:])
    np.testing.assert_array_equal(np.asarray(got), wanted)


@pytest.mark.parametrize("way", WAYS)
def test_what_does_not_fit_is_left_out(way):
    operand, output, starts, sent, targets, came = problem(4, 2, outputs=6, seed=5)
    rng = np.random.default_rng(0)
    starts = starts + rng.integers(-6, 6, starts.shape).astype(np.int32)
    targets = targets + rng.integers(-6, 4, targets.shape).astype(np.int32)
    sent = sent + rng.integers(-1, 9, sent.shape).astype(np.int32)
    args = operand, output, starts, sent, targets, came + 2
    got = sw.jit(lambda *args: way(call("i"), *args))(*args)
    np.testing.assert_array_equal(np.asarray(got), exchanged(*args))


@pytest.mark.parametrize("dtype", everyday([bool, np.int8, np.complex64, jnp.bfloat16, "key"], 1))
def test_dtypes(dtype):
    _, output, *rest = problem(4, 1, shape=())
    numbers = np.arange(28).reshape(4, 7) % 5, 0 * output.astype(int)
    of_offsets = [a.astype(t) for a, t in zip(rest, "iBhL", strict=True)]
    if dtype == "key":
        keys = sw.random.split(sw.random.key(0), (4, 7)), sw.random.split(sw.random.key(1), (4, 30))
        got = [sw.random.key_data(way(call("i"), *keys, *of_offsets)) for way in WAYS]
        wanted = exchanged(*[np.asarray(sw.random.key_data(k)) for k in keys], *rest)
    else:
        given = [a.astype(dtype) for a in numbers]
        got = [way(call("i"), *given, *of_offsets) for way in WAYS]
        wanted = exchanged(*given, *rest)
    for each in got:
        assert each.dtype == wanted.dtype
        np.testing.assert_array_equal(np.asarray(each), wanted)


def test_special_values_arrive_as_they_are():
    operand, output, *rest = problem(4, 1, shape=())
    operand[:] = np.resize([np.nan, np.inf, -np.inf, 1e-30], operand.shape)
    for way in WAYS:
        np.testing.assert_array_equal(
            np.asarray(way(call("i"), operand, output, *rest)), exchanged(operand, output, *rest)
        )


def test_rows_are_sent_once():
    f = lambda *args: over_mesh(call("i"), *args)  # noqa: E731
    assert sent(f, *problem(4)) == {"all-gather": 1, "all-to-all": 1}
    slopes = sw.grad(lambda operand, *rest: jnp.sum(f(operand, *rest) ** 2))
    assert sent(slopes, *problem(4)) == {"all-gather": 1, "all-to-all": 1, "reduce-scatter": 1}


def test_empty_ones():
    operand, output, *rest = problem(4)
    f = sw.vmap(call("i"), axis_name="i")
    np.testing.assert_array_equal(np.asarray(f(operand[:, :0], output, *rest)), output)
    assert f(operand, output[:, :0], *rest).shape == (4, 0, 3)


def sent_with(**changed):
    names = "operand output input_offsets send_sizes output_offsets recv_sizes".split()
    args = dict(zip(names, problem(4), strict=True)) | changed
    return sw.vmap(call("i"), axis_name="i")(*args.values())


WHO = "shardwise.lax.ragged_all_to_all: "


test_messages = messages(
    """
sent_with(operand=np.zeros((4, 7, 2), np.float32))
    TypeError: shardwise.lax.ragged_all_to_all: operand and output must have the same dtype, and
    rows of the same shape; got f32[7,2] and f32[30,3]. Convert one of them with `astype`, or
    reshape it.
sent_with(output=np.zeros((4, 30, 3), np.int32))
    TypeError: shardwise.lax.ragged_all_to_all: operand and output must have the same dtype, and
    rows of the same shape; got f32[7,3] and i32[30,3]. Convert one of them with `astype`, or
    reshape it.
sent_with(operand=np.zeros(4, np.float32))
    TypeError: shardwise.lax.ragged_all_to_all: operand must have rows, along its first dimension;
    got f32[].
sent_with(send_sizes=np.zeros((4, 4), np.float32))
    TypeError: shardwise.lax.ragged_all_to_all: send_sizes must be integers, one for each slice;
    got f32[4].
sent_with(output_offsets=np.zeros((4, 4, 1), np.int32))
    ValueError: shardwise.lax.ragged_all_to_all: output_offsets must be a vector with the same
    number of entries for each of the 4 indices of axis 'i'; got i32[4,1].
sent_with(recv_sizes=np.zeros((4, 6), np.int32))
    ValueError: shardwise.lax.ragged_all_to_all: recv_sizes must be a vector with the same number
    of entries for each of the 4 indices of axis 'i'; got i32[6].
sent_with(input_offsets=np.zeros((4, 8), np.int32))
    ValueError: shardwise.lax.ragged_all_to_all: offsets and sizes must have the same length;
    input_offsets is i32[8], send_sizes is i32[4], output_offsets is i32[4], recv_sizes is i32[4].
""",
    globals(),
)


def test_messages_of_axes():
    args = [a[0] for a in problem(4)]
    fails(
        NameError,
        WHO + "unbound axis name: i. The axes in scope are: none. To bind an axis "
        "name, wrap the call in a map: `shardwise.vmap(f, axis_name='i')` or "
        "`shardwise.shard_map`.",
        call("i"),
        *args,
    )
    uneven = sw.vmap(call("i", axis_index_groups=[[0], [1, 2, 3]]), axis_name="i")
    fails(
        ValueError,
        WHO + "axis_index_groups must have the same size, as all results have the "
        "same shape; got [[0], [1, 2, 3]].",
        uneven,
        *problem(4),
    )
