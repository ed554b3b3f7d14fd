"""Out of memory: errors state the computation, the bytes, the live arrays, and the remedy."""

import re

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.runtime.backend import RuntimeFailure
from tests.helpers.errors import message
from tests.helpers.meshes import DEVICES

MESH = sw.sharding.Mesh(DEVICES, ("i",))
ROWS = sw.NamedSharding(MESH, sw.P("i"))
N = 1 << 21
REMEDIES = (
    "Shard arrays over more devices, donate arguments that are no longer needed "
    "(`donate_argnums`), delete arrays, use a smaller dtype, or compute in parts with "
    "`shardwise.lax.map`. `shardwise.explain` of a function and `shardwise.plan` of a transfer "
    "report how much memory they need before anything runs."
)


@pytest.fixture(autouse=True, scope="module")
def an_array_is_alive():
    """The messages list live arrays; without this one there might be none."""
    held = sw.device_put(np.ones(3), ROWS.mesh.devices[0])
    yield
    del held


def outer(x):
    return x[:, None] * x[None, :]


def text_of(f, *args):
    """The message, without the sizes of this machine and of arrays of other tests."""
    text = message(RuntimeFailure, f, *args)
    text = re.sub(r"and [\d.]+ \w+ are free", "and SIZE are free", text)
    text = re.sub(r" Live there: .*? in all; .*?\.(?= Shard)", " ALIVE.", text)
    return re.sub(r"at \S+\.py:\d+ ", "at FILE ", text)


def test_a_program_names_its_largest_value_and_arguments():
    x = jnp.ones(4)

    def spread(scale):
        return jnp.zeros((1 << 40,)) * scale[0]

    assert text_of(sw.jit(spread), x) == (
        "RESOURCE_EXHAUSTED: spread could not be run: out of memory. Its largest value is "
        "f32[1099511627776] (4.0 TiB), the result of [broadcast_in_dim] at FILE (spread). Its "
        "largest argument is scale of type f32[4] (16 B). 4.0 TiB (4398046511104 bytes) could not "
        f"be allocated on device 0 (cpu), and SIZE are free. ALIVE. {REMEDIES}"
    )


def test_functions_that_make_arrays():
    x = jnp.ones(4)
    text = text_of(jnp.full, (1 << 42,), 2.0)
    assert text == (
        "RESOURCE_EXHAUSTED: full could not be run: out of memory. Its largest value is "
        "~f32[4398046511104] (16.0 TiB), the result of [broadcast_in_dim] at FILE (message). "
        "16.0 TiB (17592186044416 bytes) could not be allocated on device 0 (cpu), and SIZE are "
        f"free. ALIVE. {REMEDIES}"
    )
    assert x.sum() == 4


@pytest.mark.parametrize(
    "read",
    [lambda y: y.block_until_ready(), lambda y: sw.block_until_ready([y, y]), np.asarray, repr],
)
def test_results_that_were_not_computed_say_so_when_they_are_read(read):
    x = jnp.ones(N)
    assert text_of(read, outer(x)) == (
        "RESOURCE_EXHAUSTED: an array of type f32[2097152,2097152] could not be created: out of "
        "memory. 16.0 TiB (17592186044416 bytes) could not be allocated on device 0 (cpu), and "
        f"SIZE are free. ALIVE. {REMEDIES}"
    )


@pytest.mark.parametrize(
    "put, where, size",
    [
        (lambda x: jnp.asarray(x), "device 0 (cpu)", "16.0 TiB (17592186044416 bytes)"),
        (lambda x: sw.device_put(x), "device 0 (cpu)", "16.0 TiB (17592186044416 bytes)"),
        (
            lambda x: sw.device_put(x, ROWS),
            "one of 8 devices (cpu)",
            "2.0 TiB (2199023255552 bytes)",
        ),
        (
            lambda x: sw.make_array_from_callback(x.shape, ROWS, lambda i: x[i]),
            "one of 8 devices (cpu)",
            "2.0 TiB (2199023255552 bytes)",
        ),
        (
            lambda x: sw.make_array_from_process_local_data(ROWS, x),
            "one of 8 devices (cpu)",
            "2.0 TiB (2199023255552 bytes)",
        ),
    ],
    ids=["asarray", "device_put", "sharded", "callback", "process_local"],
)
def test_arrays_that_are_put_on_devices(put, where, size):
    assert text_of(put, np.broadcast_to(np.float32(1), (1 << 42,))) == (
        "RESOURCE_EXHAUSTED: an array of type f32[4398046511104] could not be created: out of "
        f"memory. {size} could not be allocated on {where}, and SIZE are free. ALIVE. {REMEDIES}"
    )


def test_what_is_alive_is_named_by_size():
    held = jnp.ones(1 << 22)
    text = message(RuntimeFailure, jnp.zeros, (1 << 42,))
    alive = re.search(r"Live there: (\d+) arrays?, (\S+ \w+) in all; (.*?)\. Shard", text)
    assert alive and "f32[4194304] (16.0 MiB)" in alive[3]
    assert held.shape == (1 << 22,)


def test_failed_compilations_say_what_was_compiled(monkeypatch):
    from shardwise._src.running import plan

    x = jnp.ones(4)

    def fails(*args):
        raise RuntimeFailure("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 64 bytes.")

    monkeypatch.setattr(plan, "loaded_for", fails)
    assert text_of(sw.jit(lambda x: jnp.cos(x) * 3.5), x) == (
        "RESOURCE_EXHAUSTED: <lambda> could not be compiled: out of memory. Its largest value is "
        "f32[4] (16 B), the result of [cos] at FILE (<lambda>). Its largest argument is x of type "
        "f32[4] (16 B). 64 B (64 bytes) could not be allocated on device 0 (cpu), and SIZE are "
        f"free. ALIVE. {REMEDIES}"
    )


@pytest.mark.parametrize(
    "shape, short", [((1 << 40, 1 << 40), "f32[1099511627776,1099511627776]"),
                     ((1 << 61,), "f32[2305843009213693952]"),
                     ((0, 1 << 63), "f32[0,9223372036854775808]")],
)  # fmt: skip
def test_arrays_whose_bytes_xla_cannot_count(shape, short):
    """XLA would terminate the process."""
    text = (
        f"A value of type {short} is too large: an array has at most 2**63 - 1 bytes, on all of "
        "its devices together. Check its shape."
    )

    def f(x):
        return jnp.sum(jnp.broadcast_to(x, shape))

    assert message(ValueError, sw.jit(f), np.float32(1)) == text
    given = sw.ShapeDtypeStruct(shape, "float32")
    assert message(ValueError, sw.jit(jnp.sum).lower, given) == text
    assert message(ValueError, sw.plan, given, sw.devices()[0]) == f"plan: x: {text}"
    assert sw.eval_shape(f, np.float32(1)) == sw.ShapeDtypeStruct((), "float32")
