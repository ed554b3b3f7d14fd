"""Host callbacks that raise, called by programs over several processes."""

import re

import pytest

from tests.helpers.processes import run_processes

PROGRAM = """
import sys
import numpy as np
import shardwise as sw, shardwise.numpy as jnp
from shardwise import lax
from shardwise.experimental import io_callback
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P

like = sw.ShapeDtypeStruct((), "f4")

def host(value):
    raise ConnectionError("the peer does not answer")

def in_last(value):
    return host(value) if sw.process_index() == 1 else np.asarray(value)

def part(v):
    return lax.psum(sw.pure_callback(in_last, sw.ShapeDtypeStruct(v.shape, "f4"), v), "x")

def loop(x):
    return lax.while_loop(
        lambda v: v < 100, lambda v: v + sw.pure_callback(host, like, v), x.sum())

kinds = {
    "jit": lambda x: sw.jit(lambda x: sw.pure_callback(host, like, x.sum()) + x.sum())(x),
    "eager": lambda x: sw.pure_callback(host, like, x.sum()),
    "loop": lambda x: sw.jit(loop)(x),
    "io": lambda x: sw.jit(lambda x: io_callback(host, like, x.sum()) * 2)(x),
    "ordered": lambda x: sw.jit(lambda x: io_callback(host, like, x.sum(), ordered=True) * 2)(x),
    "part": lambda x: sw.jit(
        sw.shard_map(part, mesh=x.sharding.mesh, in_specs=P("x"), out_specs=P()))(x),
    "unused": lambda x: sw.jit(lambda x: (io_callback(host, like, x.sum()), x.sum())[1])(x),
}
wanted = sys.argv[2:] or kinds
for first in (0, 2):  # the device that calls
    devices = sw.devices()[first:] + sw.devices()[:first]
    x = jnp.arange(8.0, device=NamedSharding(Mesh(devices, ("x",)), P("x")))
    for name in wanted:
        try:
            print(name, np.asarray(kinds[name](x)))
        except sw.errors.CallbackError as error:
            print(name, first, error, type(error.__cause__).__name__, sep="|")
            if sys.argv[1] == "ends":
                raise
        print(float(x.sum()))  # the program goes on
"""


def test_all_processes_raise_what_a_function_raised_in_one():
    results = run_processes(PROGRAM, 2, devices=2, args=["goes on"], timeout=60)
    for result in results:
        lines = result.out.splitlines()
        assert lines[1::2] == ["28.0"] * 14, result.out
        for line in lines[::2]:
            name, first, text, cause = line.split("|")
            caller = 1 if name == "part" else int(first) // 2
            kind = "io_callback" if name in ("io", "ordered", "unused") else "pure_callback"
            function = "in_last" if name == "part" else "host"
            there = "" if result.rank == caller else f" (in process {caller})"
            assert re.sub(r"called at .*?\):", "called at HERE:", text) == (
                f"{kind} of {function}, called at HERE: it raised ConnectionError: the peer does "
                f"not answer{there}"
            )
            assert cause == ("NoneType" if there else "ConnectionError")


def test_none_ends_as_if_nothing_had_happened():
    results = run_processes(PROGRAM, 2, devices=2, args=["ends", "eager"], timeout=60, expect=None)
    assert [r.status for r in results] == [1, 1]
    for result in results:
        assert "the peer does not answer" in result.out
        assert re.search(r"^shardwise\.errors\.CallbackError: pure_callback", result.err, re.M)
        assert "lost its connections" not in result.err


@pytest.mark.sweep
def test_a_function_without_results_fails_where_it_is_called():
    results = run_processes(
        """
        import shardwise as sw, shardwise.numpy as jnp
        from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P
        x = jnp.arange(8.0, device=NamedSharding(Mesh(sw.devices(), ("x",)), P("x")))
        def host(value):
            raise ValueError("no")
        f = sw.jit(lambda x: (sw.debug.callback(host, x.sum()), x.sum())[1])
        try:
            print(float(f(x)))
        except sw.errors.CallbackError as error:
            print(str(error).partition(": ")[2])
        print(float(x.sum()))
        """,
        2,
        devices=2,
        timeout=60,
    )
    failed = [r for r in results if "it raised ValueError: no\n" in r.out]
    assert len(failed) == 1 and failed[0].out == "it raised ValueError: no\n28.0\n"
    assert {r.out for r in results if r not in failed} == {"28.0\n28.0\n"}
