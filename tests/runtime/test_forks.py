"""Children by `os.fork` have no threads: each use of the library raises there, and nothing hangs.

Everything runs in separate processes, with a deadline.
"""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.helpers.everyday import everyday
from tests.helpers.flags import xla_flags
from tests.helpers.patience import seconds

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no os.fork")
ROOT = Path(__file__).resolve().parent.parent.parent
PREAMBLE = """
import os, pickle, signal, subprocess, sys, time, traceback, warnings
import numpy as np
import shardwise as sw
import shardwise.numpy as jnp
from shardwise import random
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P

def in_child(use, seconds=float(os.environ["TEST_SECONDS"])):
    '''What `use` gives or raises in a forked child, as text; "hangs" if it takes too long.'''
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            try:
                text = repr(use())
            except BaseException as error:
                text = f"{type(error).__name__}: {error}"
            os.write(write, text.encode())
        finally:
            os._exit(0)
    os.close(write)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return os.read(read, 1 << 16).decode()
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hangs"

def started():
    mesh = Mesh(np.array(sw.devices()), "x")
    global x, y, f, g, compiled, ref, key
    x = jnp.arange(8.0)
    y = sw.device_put(np.arange(16.0, dtype=np.float32), NamedSharding(mesh, P("x")))
    f, g = sw.jit(lambda a: a * 2), sw.grad(lambda a: (a * a).sum())
    f(x), f(y), g(x), g(y), np.asarray(y), x[2], x + 1, x + x, y + y, jnp.sum(x)
    compiled, ref, key = f.lower(x).compile(), sw.new_ref(x), random.key(0)
    compiled(x)
"""
REFUSED = (
    "RuntimeError: this process, PID, was forked from process PID, in which shardwise had started "
    "its devices. Their threads do not exist here, so arrays cannot be read, created or used. "
    'Start processes with multiprocessing.get_context("spawn") or "forkserver", or fork before the '
    "first array."
)
WARNED = (
    "os.fork() after shardwise has started its devices: the child has none of the threads that run "
    "programs, so every use of an array there will raise. Start processes with "
    'multiprocessing.get_context("spawn") or "forkserver", or fork before the first array.'
)


def run(code):
    """The output of a program, which must end in time and with status 0."""
    env = os.environ | {
        "XLA_FLAGS": xla_flags(8),
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT),
        "TEST_SECONDS": str(seconds(60)),
    }
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=seconds(120),
        env=env,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.sweep
def test_every_use_raises():
    code = """
        warnings.simplefilter("ignore")
        started()
        USES = '''np.asarray(x); np.asarray(y); repr(x); float(x[0]); x + 1; x + x; y * 2; x[2]
        x[1:3]; str(y)
        f(x); f(y); compiled(x); g(x); g(y); sw.jit(lambda a: a + 3)(x); sw.vmap(f)(x); jnp.ones(3)
        jnp.array([1, 2]); jnp.zeros_like(y); sw.device_put(1.0); sw.device_put(x, y.sharding)
        sw.devices(); sw.device_count(); random.key(1); random.normal(key, (3,)); pickle.dumps(x)
        x.block_until_ready(); sw.block_until_ready(y); y.addressable_shards; x.is_ready()
        list(x); x.delete(); x.unsafe_buffer_pointer(); np.from_dlpack(x); x.at[0].set(1); ref[...]
        x.sum(); jnp.linalg.norm(x); sw.lax.cond(True, jnp.sin, jnp.cos, x); sw.jvp(f, (x,), (x,))
        sw.make_array_from_callback((16,), y.sharding, lambda i: np.ones(2, np.float32))
        '''.replace("\\n", ";").split(";")
        for use in filter(None, map(str.strip, USES)):
            told = in_child(lambda: eval(use))
            print(use, "->", told.replace(str(os.getpid()), "PID"))
        print(float(f(x)[1]), np.asarray(y).sum())  # the parent goes on
    """
    rows = run(code).splitlines()
    assert rows.pop() == "2.0 120.0" and len(rows) > 40
    for row in rows:
        use, _, told = row.partition(" -> ")
        pid = told.partition("this process, ")[2].partition(",")[0]
        assert told.replace(f"process, {pid},", "process, PID,") == REFUSED, (use, told)


def test_types_can_be_read_and_other_work_done():
    code = """
        warnings.simplefilter("ignore")
        started()
        print(in_child(lambda: (x.shape, str(y.dtype), y.sharding.spec, len(x), x.is_deleted())))
        print(in_child(lambda: np.ones(3).sum() + sum(range(10))))
        print(in_child(lambda: sw.tree.map(lambda a: a + 1, {"a": 1})))
    """
    assert run(code).splitlines() == [
        "((8,), 'float32', P('x'), 8, False)",
        "np.float64(48.0)",
        "{'a': 2}",
    ]


def test_a_fork_before_the_first_array():
    code = """
        warnings.simplefilter("error")
        def use():
            started()
            return float(f(x).sum()), float(np.asarray(g(y)).sum())
        print(in_child(use))
        print(in_child(use))
        print(use())
    """
    assert run(code).splitlines() == ["(56.0, 240.0)"] * 3


def test_a_warning_where_it_happens_and_once():
    code = """
        started()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            subprocess.run([sys.executable, "-c", ""], check=True)
            subprocess.run([sys.executable, "-c", ""], check=True, preexec_fn=int)
            assert os.system("true") == 0
            in_child(int)
            in_child(int)
        ours = [w for w in caught if w.category is RuntimeWarning]
        (w,) = ours
        print(w.filename, w.message)
    """
    assert run(code).splitlines() == [f"<string> {WARNED}"]


@pytest.mark.parametrize("method", everyday(["fork", "spawn", "forkserver"], 1))
def test_multiprocessing(method, tmp_path):
    (tmp_path / "work.py").write_text(
        textwrap.dedent("""
        def double(n):
            import shardwise.numpy as jnp
            return float(jnp.asarray(float(n)) * 2)
        def plain(n):
            return n + 1
    """)
    )
    code = f"""
        sys.path.insert(0, {str(tmp_path)!r})
        import multiprocessing, work
        if __name__ == "__main__":
            warnings.simplefilter("ignore")
            started()
            with multiprocessing.get_context({method!r}).Pool(2) as pool:
                print(pool.map_async(work.plain, [1, 2]).get())
                try:
                    print(pool.map_async(work.double, [1, 2]).get())
                except RuntimeError as error:
                    print(str(error)[:13])
    """
    # spawn runs the main module again: from a file, which creates arrays under __main__ only
    script = tmp_path / "main.py"
    script.write_text(PREAMBLE + textwrap.dedent(code))
    env = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT),
        "TEST_SECONDS": str(seconds(60)),
    }
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=seconds(120),
        env=env,
        check=False,
    )
    last = "this process," if method == "fork" else "[2.0, 4.0]"
    assert done.stdout.splitlines() == ["[2, 3]", last], done.stderr


@pytest.mark.sweep
def test_calls_of_the_host_that_are_pending_are_not_waited_for():
    code = """
        import threading
        warnings.simplefilter("ignore")
        started()
        gate = threading.Event()
        def wait(a):
            gate.wait()
        work, call = sw.jit(lambda a: a @ a), sw.jit(lambda a: sw.debug.callback(wait, a[0, 0]))
        a = jnp.ones((2000, 2000))
        work, call = work.lower(a).compile(), call.lower(a).compile()
        call(work(a))  # returns before the gate is open: the program does not run in the call
        def leave():
            pid = os.fork()
            if not pid:
                sys.exit(7)  # runs what is to be run at exit
            return pid
        pid, end = leave(), time.monotonic() + float(os.environ["TEST_SECONDS"])
        while time.monotonic() < end and not (done := os.waitpid(pid, os.WNOHANG))[0]:
            time.sleep(0.01)
        gate.set()
        print(os.waitstatus_to_exitcode(done[1]) if done[0] else "hangs")
        if not done[0]:
            os.kill(pid, signal.SIGKILL)
    """
    assert run(code).splitlines() == ["7"]
