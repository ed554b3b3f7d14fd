"""`debug.breakpoint`: what a program shows where it stops, and how it resumes."""

import io
from bdb import BdbQuit
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise._src.runtime.compiler.callback_targets import CallbackError
from tests.helpers.beside_jax import ours
from tests.helpers.processes import python

ONE = np.float32(1)
PROMPT = "({}) ".format("sw")  # which a listing of this file must not contain


class Session:
    """A stream of commands, and the answers to them, without source locations."""

    def __init__(self, commands: str, **options: Any):
        self.out = io.StringIO()
        self.options = {"stdin": io.StringIO(commands), "stdout": self.out, **options}

    def __repr__(self) -> str:
        return "Session()"

    def answers(self) -> list[str]:
        sw.effects_barrier()
        return [a.strip() for a in self.out.getvalue().split(PROMPT)[1:]]


def layer(x: Any, session: Session) -> Any:
    pair = {"y": [jnp.sin(x), None], "n": 3}
    sw.debug.breakpoint(**session.options)  # here
    return pair["y"][0] * pair["n"]


def line() -> int:
    with open(__file__) as file:
        return next(i for i, text in enumerate(file, 1) if text.rstrip().endswith("# here"))


SINE = "Array(0.84147096, dtype=float32)"


@pytest.mark.parametrize("jitted", [False, True])
def test_commands(jitted: bool) -> None:
    session = Session(
        "p pair['y'][0]\npair['n'] + 1\n\npp pair\n[n * x for n in range(2)][1]\nnothing\np 1 +\n"
        "up\np kept\ndown\ndown\nlocals\nw\nhelp p\nl\nc\n"
    )

    def caller(x: Any) -> Any:
        kept = x + 1
        return layer(x, session) + kept

    y = (sw.jit(caller) if jitted else caller)(jnp.float32(1))
    assert float(y) == pytest.approx(3 * np.sin(1) + 2)
    got = session.answers()
    assert got[:6] == [
        SINE,
        "4",
        "",
        f"{{'n': 3, 'y': [{SINE}, None]}}",
        "Array(1., dtype=float32)",
        "*** NameError: name 'nothing' is not defined",
    ]
    assert got[6] == "*** SyntaxError: invalid syntax (<string>, line 1)"
    assert got[7].startswith(f"> {__file__}:") and "->         return layer(x, session)" in got[7]
    assert got[8] == "Array(2., dtype=float32)"
    assert got[9].startswith(f"> {__file__}:{line()} (layer)\n")
    assert got[10] == "*** this is the innermost function"
    assert got[11].splitlines()[:2] == ["x = f32[]", "session = Session()"]
    stack = [row for row in got[12].splitlines() if row.endswith((" (caller)", " (layer)"))]
    assert [row.split()[-1] for row in stack] == ["(caller)", "(layer)"]
    assert stack[1].startswith(f"> {__file__}:{line()}")
    assert got[13].startswith("p expression: its value.")
    assert f"{line():>4} ->     sw.debug.breakpoint(**session.options)  # here" in got[14]
    assert got[15] == ""


def test_transforms() -> None:
    def shown(f: Any, *args: Any, count: int = 1) -> list[str]:
        session = Session("p pair['y'][0].item()\nc\n" * count)
        f(lambda x: layer(x, session))(*args)
        return [f"{float(a):.3f}" for a in session.answers() if a.startswith("0.")]

    xs, sines = np.array([1, 2], np.float32), ["0.841", "0.909"]
    assert shown(sw.grad, ONE) == sines[:1]
    assert shown(lambda f: sw.jit(sw.grad(f)), ONE) == sines[:1]
    assert shown(lambda f: sw.grad(sw.checkpoint(f)), ONE) == sines[:1]
    assert shown(lambda f: lambda x: sw.jvp(f, (x,), (x,)), ONE) == sines[:1]
    assert shown(sw.vmap, xs, count=2) == sines
    assert shown(lambda f: sw.jit(sw.vmap(f)), xs, count=2) == sines
    assert shown(lambda f: lambda xs: lax.map(f, xs), xs, count=2) == sines
    assert shown(lambda f: lambda x: lax.cond(x > 0, f, lambda x: x, x), ONE) == sines[:1]


def test_a_sharded_program_stops_once() -> None:
    session = Session("p x\nc\n")
    sw.jit(lambda x: layer(x, session))(ours(np.arange(8, dtype=np.float32), "x"))
    assert session.answers() == ["Array([0., 1., 2., 3., 4., 5., 6., 7.], dtype=float32)", ""]


def test_refs_are_shown_by_their_values() -> None:
    session = Session("p r\nc\n")

    @sw.jit
    def f(x: Any) -> Any:
        r = sw.new_ref(x)
        r[...] *= 2
        sw.debug.breakpoint(**session.options)
        return r[...]

    f(ONE)
    assert session.answers()[0] == "Array(2., dtype=float32)"


def test_the_end_of_the_input_lets_the_program_go_on() -> None:
    session = Session("p x\n")
    assert float(sw.jit(lambda x: layer(x, session))(ONE)) == pytest.approx(3 * np.sin(1))
    assert session.answers()[1] == "end of input: the program continues"


@pytest.mark.sweep
def test_processes_that_nobody_sits_at() -> None:
    code = (
        "import shardwise as sw\n"
        "def f(x):\n"
        "    sw.debug.breakpoint()\n"
        "    return x * 2\n"
        "print(sw.jit(f)(21.0), f(1.0))\n"
    )
    for closed in (False, True):
        start = "import sys; sys.stdin = None\n" if closed else ""
        found = python(start + code)
        assert found.stdout.splitlines()[-1] == "42.0 2.0", found.stderr
        assert found.stdout.count("end of input: the program continues") == 2


@pytest.mark.parametrize("devices", [1, 8])
def test_quit_ends_the_program(devices: int) -> None:
    x = jnp.ones(8) if devices == 1 else ours(np.ones(8, np.float32), "x")
    session = Session("q\n")
    with pytest.raises(CallbackError) as e:
        sw.jit(lambda x: layer(x, session))(x)
        sw.effects_barrier()
    assert str(e.value) == (
        f"debug.breakpoint of layer, called at {__file__}:{line()} (layer): it raised BdbQuit: quit"
    )
    assert isinstance(e.value.__cause__, BdbQuit)
    assert float(sw.jit(jnp.sum)(x)) == 8
    with pytest.raises(BdbQuit):
        layer(ONE, Session("quit\n"))


def test_options() -> None:
    session = Session("up\nc\n", num_frames=1)
    layer(ONE, session)
    assert session.answers()[0] == "*** this is the outermost function"
    session = Session("up\nc\n", filter_frames=False, num_frames=2, backend="cli")
    layer(ONE, session)
    assert session.answers()[0].startswith("> ")

    order: list[str] = []
    session = Session("x\nc\nx\nc\n", ordered=True)

    @sw.jit
    def f(x: Any) -> None:
        sw.debug.callback(
            lambda: order.append(f"before {len(session.out.getvalue())}"), ordered=True
        )
        layer(x, session)

    f(ONE)
    assert session.answers()[0] == "Array(1., dtype=float32)" and order == ["before 0"]


def test_tokens() -> None:
    session = Session("p x\nc\n")

    def f(x: Any) -> Any:
        return sw.debug.breakpoint(token={"a": x * 2}, **session.options)

    assert sw.jit(f)(ONE) == {"a": 2}
    assert session.answers() == ["Array(1., dtype=float32)", ""]
    unused = Session("c\n")
    sw.jit(lambda x: (sw.debug.breakpoint(token=x, **unused.options), x)[1])(ONE)
    assert unused.answers() == []
    with pytest.raises(ValueError) as e:
        sw.debug.breakpoint(token=ONE, ordered=True)
    assert str(e.value) == (
        "debug.breakpoint: ordered=True and a token are mutually exclusive, since each determines "
        "when to stop. Pass one of them."
    )
    with pytest.raises(ValueError) as e:
        sw.debug.breakpoint(backend="web")
    assert str(e.value) == "debug.breakpoint: backend must be None or 'cli'; got 'web'."
