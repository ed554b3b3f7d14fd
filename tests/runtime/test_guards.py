"""Transfer guards, and guards for arrays that Python's garbage collector frees."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from tests.helpers.errors import message
from tests.helpers.processes import python

X = np.arange(3, dtype=np.float32)
MESH = sw.sharding.Mesh(np.array(sw.devices()[:2]), ("i",))
REPLICATED = sw.NamedSharding(MESH, sw.P())
PARTED = sw.NamedSharding(MESH, sw.P("i"))


def is_refused(work: Callable[[], Any], what: str) -> bool:
    try:
        work()
    except sw.errors.JaxRuntimeError as error:
        assert f"Disallowed {what} transfer" in str(error)
        return True
    return False


def test_implicit_transfers_to_devices_are_refused():
    double = sw.jit(lambda x: x * 2)
    held = sw.device_put(X)
    double(X)
    with sw.transfer_guard_host_to_device("disallow"):
        assert is_refused(lambda: double(X), "host-to-device")
        assert is_refused(lambda: snp.asarray([1.0, 2.0]), "host-to-device")
        placed = sw.device_put(X)  # an explicit transfer
        np.testing.assert_array_equal(double(placed), X * 2)
        double(held)
        with sw.transfer_guard_host_to_device("allow"):
            double(X)
        assert is_refused(lambda: double(X), "host-to-device")
    with sw.transfer_guard("disallow_explicit"):
        assert is_refused(lambda: sw.device_put(X), "host-to-device")
    double(X)
    assert sw.config.transfer_guard == sw.config.transfer_guard_device_to_host == "allow"


ALLOW = '`with shardwise.transfer_guard_host_to_device("allow"):`.'
GUARDED = {
    "argument": (
        lambda: sw.jit(lambda state: state["w"] * 2)({"w": X}),
        "disallow",
        "state['w'] of <lambda>, of type f32[3], was to go from the host to device 0, and the flag "
        "transfer_guard_host_to_device is 'disallow'. Use `shardwise.device_put(x)`, which is "
        f"explicit, or allow it: {ALLOW}",
    ),
    "operand": (
        lambda: snp.sin(X),
        "disallow",
        "a value of type f32[3] was to go from the host to device 0, and the flag "
        "transfer_guard_host_to_device is 'disallow'. Use `shardwise.device_put(x)`, which is "
        f"explicit, or allow it: {ALLOW}",
    ),
    "callback": (
        lambda: sw.make_array_from_callback((3,), REPLICATED, lambda i: X[i]),
        "disallow",
        "a value of type f32[3] was to go from the host to {there}, and the flag "
        "transfer_guard_host_to_device is 'disallow'. Use `shardwise.device_put(x, sharding)`, "
        f"which is explicit, or allow it: {ALLOW}",
    ),
    "device_put": (
        lambda: sw.device_put({"w": X, "b": X}, REPLICATED),
        "disallow_explicit",
        "x['b'] of device_put, of type f32[3], was to go from the host to {there}, and the flag "
        "transfer_guard_host_to_device is 'disallow_explicit'. That value rejects explicit "
        f"transfers, too. Allow it: {ALLOW}",
    ),
}


@pytest.mark.parametrize("case", GUARDED)
def test_messages_name_value_places_and_flag(case):
    work, level, text = GUARDED[case]
    with sw.transfer_guard(level):
        assert message(sw.errors.JaxRuntimeError, work) == (
            "INVALID_ARGUMENT: Disallowed host-to-device transfer: " + text.format(there=REPLICATED)
        )
    work()


def test_messages_of_copies_between_devices():
    held, other = sw.device_put(X), sw.devices()[1]
    with sw.transfer_guard("disallow_explicit"):
        assert message(sw.errors.JaxRuntimeError, sw.device_put, held, other) == (
            "INVALID_ARGUMENT: Disallowed device-to-device transfer: x of device_put, of type "
            "f32[3], was to go from device 0 to device 1, and the flag "
            "transfer_guard_device_to_device is 'disallow_explicit'. That value rejects explicit "
            'transfers, too. Allow it: `with shardwise.transfer_guard_device_to_device("allow"):`.'
        )


def test_copies_between_devices():
    held, other = sw.device_put(X), sw.devices()[1]
    with sw.transfer_guard_device_to_device("disallow_explicit"):
        assert is_refused(lambda: sw.device_put(held, other), "device-to-device")
    with sw.transfer_guard_device_to_device("disallow"):
        moved = sw.device_put(held, other)
    assert moved.devices() == {other}


def test_the_same_devices_in_another_order_are_no_transfer():
    """As in JAX, where this is a program; another sharding in the same order is guarded there."""
    back = sw.sharding.Mesh(MESH.devices[::-1], ("i",))
    spread = sw.device_put(np.arange(8.0, dtype=np.float32), PARTED)
    with sw.transfer_guard("disallow_explicit"):
        moved = sw.device_put(spread, sw.NamedSharding(back, sw.P("i")))
        assert is_refused(lambda: sw.device_put(spread, REPLICATED), "device-to-device")
    assert moved.sharding.mesh is back and np.array_equal(moved, np.arange(8.0))


def test_arrays_that_go_over_the_host_are_copied_between_devices():
    """However the copy is made, the flags name its source and its destination."""
    held = snp.arange(8.0) + 1
    spread = sw.device_put(snp.arange(8.0), PARTED)
    add = sw.jit(lambda a, b: a + b)
    moves = {
        "jit": lambda: add(held, spread),
        "op": lambda: held + spread,
        "in_shardings": lambda: sw.jit(lambda a: a, in_shardings=PARTED)(held),
        "device_put": lambda: sw.device_put(held, PARTED),
    }
    for name, move in moves.items():
        wanted = np.asarray(move())
        for flag in (sw.transfer_guard_host_to_device, sw.transfer_guard_device_to_host):
            with flag("disallow_explicit"):
                assert np.array_equal(move(), wanted)
        with sw.transfer_guard_device_to_device("disallow_explicit"):
            assert is_refused(move, "device-to-device"), name
        with sw.transfer_guard_device_to_device("disallow"):
            if name == "device_put":
                move()
            else:
                assert is_refused(move, "device-to-device"), name
    with sw.transfer_guard_device_to_device("disallow"):
        assert message(sw.errors.JaxRuntimeError, add, held, spread) == (
            "INVALID_ARGUMENT: Disallowed device-to-device transfer: a of <lambda>, of type "
            f"f32[8], was to go from device 0 to {REPLICATED}, and the "
            "flag transfer_guard_device_to_device is 'disallow'. Use `shardwise.device_put(x, "
            "sharding)`, which is explicit, or allow it: `with "
            'shardwise.transfer_guard_device_to_device("allow"):`.'
        )


def test_host_operands_are_copied_from_the_host():
    spread = sw.device_put(snp.arange(8.0), PARTED)
    works = [
        lambda: spread + np.ones(8, np.float32),
        lambda: spread[np.array([1, 2])],
        lambda: spread.at[np.array([1])].set(3),
        lambda: sw.jit(snp.add)(spread, np.ones(8)),
    ]
    for work in works:
        wanted = np.asarray(work())
        with sw.transfer_guard_device_to_device("disallow_explicit"):
            assert np.array_equal(work(), wanted)
        with sw.transfer_guard_host_to_device("disallow"):
            assert is_refused(work, "host-to-device")


def test_copies_over_the_host_under_a_guard_of_all_threads():
    held = snp.arange(8.0) + 1
    flags = sw.config
    flags.update("transfer_guard_host_to_device", "disallow_explicit")
    try:
        assert np.array_equal(sw.device_put(held, PARTED), np.arange(8) + 1)
        flags.update("transfer_guard_device_to_device", "disallow_explicit")
        assert is_refused(lambda: sw.device_put(held, PARTED), "device-to-device")
    finally:
        flags.update("transfer_guard_device_to_device", "allow")
        flags.update("transfer_guard_host_to_device", "allow")
    assert np.array_equal(sw.device_put(held, PARTED), np.arange(8) + 1)


def test_a_guard_is_of_one_thread_or_of_all():
    found: list[bool] = []

    def look() -> None:
        found.append(is_refused(lambda: snp.asarray([3.0]), "host-to-device"))

    def elsewhere() -> bool:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        return found.pop()

    with sw.transfer_guard("disallow"):
        assert not elsewhere()
    sw.config.update("jax_transfer_guard", "disallow")
    try:
        assert sw.config.transfer_guard_host_to_device == "disallow"
        assert elsewhere()
        with sw.transfer_guard("allow"):
            snp.asarray([3.0])
    finally:
        sw.config.update("transfer_guard", "allow")
    assert not elsewhere()


def test_unknown_levels():
    with pytest.raises(ValueError) as error, sw.transfer_guard("never"):
        pass
    assert str(error.value) == (
        "transfer_guard must be one of 'allow', 'log', 'disallow', 'log_explicit', "
        "'disallow_explicit'; got 'never'"
    )


def test_arrays_in_cycles_are_logged():
    code = (
        "import gc, shardwise as sw, shardwise.numpy as snp\n"
        "class Node: pass\n"
        "def make():\n"
        "    node = Node(); node.own, node.x = node, snp.ones(5) * 2\n"
        "make(); gc.collect(); print('before', flush=True)\n"
        "sw.config.update('jax_array_garbage_collection_guard', 'log')\n"
        "make(); gc.collect()\n"
    )
    run = python(code)
    assert run.returncode == 0
    assert run.stderr.count("was deleted by the Python garbage collector") == 1


def test_guards_from_the_environment():
    code = (
        "import shardwise as sw, numpy as np\n"
        "x = sw.device_put(np.ones(3))\n"
        "try: sw.jit(lambda x: x)(np.ones(3))\n"
        "except sw.errors.JaxRuntimeError as error: print(error)\n"
    )
    run = python(code, JAX_TRANSFER_GUARD="disallow")
    assert "Disallowed host-to-device transfer" in run.stdout, run.stderr


def test_nothing_is_traced_or_run_where_that_is_an_error():
    def halved(x: Any) -> Any:
        return x / 2

    known = sw.jit(halved)
    held = sw.device_put(X)
    known(held)
    with sw.no_tracing(True):
        known(held)
        with pytest.raises(RuntimeError) as error:
            sw.jit(halved)(snp.ones(4))
    assert str(error.value) == (
        "jit of halved: this call requires tracing, but the flag no_tracing is on. Call "
        "it once beforehand, with arguments of the same types."
    )
    with sw.no_execution(True):
        compiled = known.lower(held).compile()
        for run in (lambda: known(held), lambda: compiled(held)):
            with pytest.raises(RuntimeError) as error:
                run()
            assert str(error.value) == (
                "halved would run, but the flag no_execution is on. `eval_shape`, "
                "`jit(f).trace` and `jit(f).lower` run nothing."
            )
        with pytest.raises(RuntimeError, match="the flag no_execution is on"):
            held + held
    np.testing.assert_array_equal(known(held), X / 2)


def test_programs_are_checked():
    with sw.enable_checks(True):
        slope = sw.jit(sw.grad(lambda x: snp.where(x > 0, snp.sin(x), x @ x).sum()))(X)
    np.testing.assert_allclose(slope, [0.0, np.cos(1) + 2, np.cos(2) + 4], rtol=1e-5)
