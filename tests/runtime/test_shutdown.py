"""At exit, a process waits for programs in flight, even if their results have been dropped."""

import ast
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.distributed import stacks
from shardwise._src.runtime import shutdown
from tests.helpers.everyday import everyday
from tests.helpers.patience import seconds
from tests.helpers.processes import python, run_processes

ROOT = Path(__file__).resolve().parent.parent.parent
START = """
import atexit, os, threading, time
import numpy as np, shardwise as sw
import shardwise.numpy as jnp

@atexit.register  # what is registered last comes first: the library's has run when this does
def end():
    print(time.process_time() - launched >= 0.5 * took, flush=True)  # it has computed

@sw.jit
def long(x):
    return sw.lax.fori_loop(0, 4_000, lambda i, x: jnp.sin(x @ x) + i, x)

x = np.ones((64, 64), np.float32)
on = [sw.device_put(x, d) for d in (sw.local_devices()[0], sw.local_devices()[-1])]
took = []
for a in (*on, on[0]):
    begun = time.process_time()
    long(a).block_until_ready()
    took.append(time.process_time() - begun)
took = min(took)
launched = time.process_time()
"""


def run(program, devices=1):
    flags = f"--xla_force_host_platform_device_count={devices}"
    return python(START + program, XLA_FLAGS=flags)


@pytest.mark.parametrize(
    ("program", "devices"),
    everyday(
        [
            ("y = long(on[0])", 1),
            ("long(on[0])", 1),
            ("long(on[0]); del long; sw.clear_caches()", 1),
            ("long(on[1])", 8),
            ("kept = []; threading.Thread(target=lambda: kept.append(long(on[1]))).start()", 8),
        ],
        1,
    ),
)
def test_the_end_waits(program, devices):
    done = run(program, devices)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_a_program_that_raised_ends_with_its_error():
    done = run("long(on[0])\nraise SystemExit(3)")
    assert (done.returncode, done.stdout) == (3, "True\n"), done.stderr


class Blind:
    """A client that reports no live arrays, as if all results had been dropped."""

    def __init__(self, client):
        self.client = client

    def __getattr__(self, name):
        return getattr(self.client, name)

    def live_arrays(self):
        return []


@pytest.mark.parametrize("number", [0, 3, 7])
def test_dropped_programs_on_any_one_device_are_waited_for(number):
    @sw.jit
    def long(x, n):
        return sw.lax.fori_loop(0, n, lambda i, x: jnp.sin(x) + i, x)

    device = sw.devices("cpu")[number]
    x = sw.device_put(np.ones(1000, np.float32), device)
    long(x, 1).block_until_ready()
    begun = time.process_time()
    y = long(x, 30_000)
    shutdown.drain(Blind(device.client))
    settled = time.process_time()
    y.block_until_ready()  # an XLA thread may be about to mark it as ready
    assert time.process_time() - settled < (settled - begun) / 4  # already computed


DAEMONS = """
turns = {}

def work():
    y = on[0]
    try:
        while True:
            y = BODY
            turns[threading.get_ident()] = turns.get(threading.get_ident(), 0) + 1
    finally:
        os.write(1, b"ended\\n")

def idle():
    try:
        time.sleep(1000)
    finally:
        print("never", flush=True)

for target in (work, work, idle):
    threading.Thread(target=target, daemon=True).start()
took = 0
while len(turns) < 2 or min(turns.values()) < 3:
    time.sleep(0.01)
"""


@pytest.mark.parametrize("body", everyday([
    "y * 2 + 1", "long(y).block_until_ready()",
    "sw.device_put(np.asarray(y), on[1].device)",
    "sw.pure_callback(lambda v: v + 1, y, y)",
], 1))  # fmt: skip
def test_daemon_threads_that_compute_are_ended(body):
    """Python would end them inside XLA, where C++ terminates the process: status 134."""
    done = run(DAEMONS.replace("BODY", body), 8)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.split()) == ["True", "ended", "ended"]


STUBBORN = """
told = []

def stubborn(y):
    try:
        return (y + 1).block_until_ready()
    except SystemExit:
        told.append(1)
        if len(told) > 1:
            raise
        return y
"""


def test_a_daemon_thread_that_goes_on_is_told_again():
    done = run(STUBBORN + DAEMONS.replace("BODY", "stubborn(y)"))
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_ends_the_wait():
    program = """
atexit.unregister(end)
from shardwise._src.runtime import shutdown
drain = shutdown.drain
shutdown.drain = lambda client: (print("waits", flush=True), drain(client))
sw.jit(lambda x: sw.lax.fori_loop(0, 10**9, lambda i, x: jnp.sin(x @ x) + i, x))(on[0])
"""
    with subprocess.Popen(
        [sys.executable, "-c", START + program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdout.readline() == "waits\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=seconds(60))
    assert (process.returncode, out, err) == (-signal.SIGINT, "", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no os.fork")
def test_a_child_by_fork_waits_for_nothing():
    done = run("""
import sys, warnings
warnings.simplefilter("ignore")
atexit.unregister(end)
y = long(on[0])
child = os.fork()
if not child:
    sys.exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
    assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr


def test_one_of_several_processes_waits_too():
    for result in run_processes(START + "long(on[1])", 2, devices=2):
        assert (result.out, result.err) == ("True\n", "")


# The library recognizes its daemon threads by names that begin with the package name.
PACKAGE = Path(shutdown.__file__).parents[2]


def unnamed(source, elsewhere=()):
    """The lines of a source that start daemon threads without such a name.

    elsewhere: names from other modules whose values are such strings.
    """
    tree = ast.parse(source)
    texts = {*elsewhere}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and begins(node.value, ()):
            texts |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Attribute) and t.attr == "daemon" for t in node.targets
        ):
            found.append(node.lineno)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("Thread", "Timer")):
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            daemon = "daemon" in given and ast.unparse(given["daemon"]) != "False"
            if None in given or (daemon and not begins(given.get("name"), texts)):
                found.append(node.lineno)
    return found


def begins(value, texts):
    if isinstance(value, ast.JoinedStr):
        value = value.values[0]
    if isinstance(value, ast.Name):
        return value.id in texts
    return isinstance(value, ast.Constant) and str(value.value).startswith("shardwise-")


def test_daemon_threads_of_this_library_have_names():
    paths = [p for p in PACKAGE.rglob("*.py") if "daemon" in p.read_text()]
    assert PACKAGE.name == "shardwise" and len(paths) > 10
    assert [(p.name, found) for p in paths if (found := unnamed(p.read_text(), {"THREAD"}))] == []
    assert stacks.THREAD == "shardwise-watch"


@pytest.mark.parametrize("source", [
    "Thread(target=run, daemon=True)", "threading.Thread(name='other', daemon=True)",
    "threading.Thread(name=f'{x}-shardwise', daemon=yes)", "Thread(**options)",
    "name = 'x'\nthreading.Thread(name=name, daemon=True)", "thread.daemon = True",
])  # fmt: skip
def test_daemon_threads_without_names_are_found(source):
    assert len(unnamed(source)) == 1
