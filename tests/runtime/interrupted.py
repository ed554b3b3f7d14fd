"""A program that Ctrl-C interrupts, and that continues afterwards.

    python interrupted.py PART FIRST END [CPU seconds that the part takes]

It interrupts a part of itself once for each number in range(FIRST, END), at a moment that depends
on the number: the kernel sends SIGINT after this process has used that much CPU time. It catches
KeyboardInterrupt, runs the part again to the end, and prints `ok`, or the problem. For parts that
run once per process, the last of every six interrupts is not caught. With the number `measure` the
program prints how long such a part takes.

It imports only modules whose import is not the task of the parts.
"""

import ctypes
import os
import random
import signal
import sys
import tempfile
import time
import traceback

UNCAUGHT = 6  # one in so many numbers, for a part that runs once per process
LOST = 10**5  # loop iterations after which a signal that has arrived counts as lost


class Event(ctypes.Structure):
    """`struct sigevent` on Linux."""

    _fields_ = [
        ("value", ctypes.c_void_p),
        ("number", ctypes.c_int),
        ("kind", ctypes.c_int),
        ("rest", ctypes.c_char * 48),
    ]


class Times(ctypes.Structure):
    """`struct itimerspec`."""

    _fields_ = [(name, ctypes.c_long) for name in ("again", "again_ns", "seconds", "ns")]


def interrupt_after(seconds):
    """Sends SIGINT after this process has used this much more CPU time."""
    libc, timer = ctypes.CDLL(None, use_errno=True), ctypes.c_void_p()
    event = Event(None, signal.SIGINT, 0, b"")
    ns = max(1, int(seconds * 1e9))
    times = Times(0, 0, ns // 10**9, ns % 10**9)
    clock = time.CLOCK_PROCESS_CPUTIME_ID
    created = libc.timer_create(clock, ctypes.byref(event), ctypes.byref(timer))
    assert created == 0 and libc.timer_settime(timer, 0, ctypes.byref(times), None) == 0


class Arrivals:
    """The signals that have arrived at this process, whatever their handlers do."""

    def __init__(self):
        self.reading, writing = os.pipe()
        os.set_blocking(self.reading, False)
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing)

    def wait(self):
        """Uses the CPU until a signal has arrived."""
        while True:
            try:
                os.read(self.reading, 1)
            except BlockingIOError:
                continue
            return

    def forget(self):
        try:
            os.read(self.reading, 100)
        except BlockingIOError:
            return


class Import:
    """Imports the library, and accesses the first name that loads the rest."""

    def do(self, number):
        import shardwise as sw
        import shardwise.numpy as jnp

        self.sw, self.jnp = sw, jnp
        assert sw.jit and jnp.sin


class First(Import):
    """Runs the first operation of a process, with all the loading and starting it causes."""

    def do(self, number):
        super().do(number)
        x = self.jnp.arange(8.0) * 2 + 1
        assert float(x.sum()) == 64.0
        root = self.jnp.linalg.cholesky(self.jnp.eye(3) * 4)  # loads SciPy
        assert abs(float(root[0, 0]) - 2) < 1e-5


class Compile(First):
    """Traces, partitions and compiles a program over eight devices."""

    def __init__(self):
        super().do(0)
        import numpy as np

        from shardwise.sharding import Mesh, NamedSharding, PartitionSpec

        self.np = np
        mesh = Mesh(np.array(self.sw.devices()), ("x",))
        value = np.arange(64, dtype=np.float32).reshape(8, 8)
        self.value = value @ value.T / 1000 + 20 * np.eye(8, dtype=np.float32)
        self.x = self.sw.device_put(self.value, NamedSharding(mesh, PartitionSpec("x")))

    def do(self, number):
        np, jnp, c = self.np, self.jnp, float(number)
        y, z, low = self.sw.jit(
            lambda x: (jnp.tanh(x @ x) + c, jnp.sort(x, axis=0) - c, jnp.linalg.cholesky(x) * c)
        )(self.x)
        v = self.value
        assert np.allclose(np.asarray(y), np.tanh(v @ v) + c, atol=1e-3)
        assert np.allclose(np.asarray(z), np.sort(v, axis=0) - c, atol=1e-3)
        assert np.allclose(np.asarray(low), np.linalg.cholesky(v) * c, atol=1e-2 * c + 1e-3)


class Run(Compile):
    """Calls compiled programs, runs eager operations, and reads values."""

    def __init__(self):
        super().__init__()
        self.f = self.sw.jit(lambda x, y: self.jnp.sin(x) @ y)
        self.do(0)

    def do(self, number):
        np = self.np
        for i in range(60):
            y = self.f(self.x, self.x) + i
            if i % 10 == 0:
                assert np.allclose(np.asarray(y), np.sin(self.value) @ self.value + i, atol=1e-2)


class Save(Compile):
    """Saves a checkpoint over the previous one."""

    def __init__(self):
        super().__init__()
        self.path = tempfile.mkdtemp() + "/state"
        self.step = 0
        self.do(0)

    def do(self, number):
        self.check(self.step - 1, self.step)
        self.step += 1
        tree = {"a": self.x + self.step, "b": [self.jnp.full(1000, self.step), self.step]}
        self.sw.checkpoints.save(self.path, tree, overwrite=True)
        self.check(self.step)

    def check(self, *steps):
        """Checks that the checkpoint is complete and belongs to one of these steps."""
        if steps[-1] == 0:
            return
        found = self.sw.checkpoints.restore(self.path)
        step = found["b"][1]
        assert step in steps, (step, steps)
        assert self.np.array_equal(self.np.asarray(found["a"]), self.value + self.np.float32(step))
        assert (self.np.asarray(found["b"][0]) == step).all()


ONCE = {"import": Import, "first": First}
OFTEN = {"compile": Compile, "run": Run, "save": Save}


def took(part, number):
    begun = time.process_time()
    part.do(number)
    return time.process_time() - begun


def interrupted(part, number, seconds, arrivals):
    """Runs the part, interrupts it after this many seconds, and runs it again."""
    caught = None
    arrivals.forget()
    try:
        interrupt_after(seconds)
        part.do(number)
        arrivals.wait()
        for _ in range(LOST):
            pass
    except KeyboardInterrupt:
        caught = traceback.format_exc()
    except BaseException:
        return "another exception: " + traceback.format_exc()
    if caught is None:
        return "lost"
    try:
        part.do(number)
    except BaseException:
        return f"wrong afterwards: {traceback.format_exc()}, interrupted in {caught}"
    return "ok"


def main(name, first, end, seconds=0.0):
    if name in ONCE:
        part = ONCE[name]()
    else:
        part = OFTEN[name]()
        seconds = min(took(part, 1), took(part, 2))  # the first one has more to do
    arrivals = Arrivals()
    for number in range(first, end):
        moment = random.Random(f"{name} {number}").random() * seconds
        if name in ONCE and number % UNCAUGHT == UNCAUGHT - 1:
            interrupt_after(moment)
            part.do(number)
            while True:
                pass
        print(repr(interrupted(part, number + 3, moment, arrivals)), flush=True)


if __name__ == "__main__":
    if sys.argv[2] == "measure":
        print(took(ONCE[sys.argv[1]](), 0))
    else:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *map(float, sys.argv[4:]))
