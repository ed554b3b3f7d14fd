"""`debug.print` and `debug.log`: what is printed, how often, and which formats are rejected."""

from typing import Any

import jax
import numpy as np
import pytest

import shardwise as sw
from tests.helpers.beside_jax import ours, theirs
from tests.helpers.callbacks import Calls, noted

FORMATS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("{} {!r} {0}".replace("{} {!r}", "{0} {0!r}"), (np.arange(3.0, dtype=np.float32),), {}),
    ("{:.3f} {x:5.1f}|{n:>4}|{s!r}", (2.0,), {"x": 1.25, "n": 7, "s": "text"}),
    ("{a[k]} {b.shape} {c}", (), {"a": {"k": 1}, "b": np.ones((2, 3), np.int8), "c": (1, [2.5])}),
    ("{}", (np.array([1e-9, 1.0, np.nan, np.inf], np.float32),), {}),
    ("{} {}", (True, 3 + 4j), {}),
    ("{}", (np.arange(2000),), {}),
    ("{}", (None,), {}),
    ("{:>8}|{:<8}|", ("left", "right"), {}),
]


@pytest.mark.parametrize("fmt, args, kwargs", FORMATS)
@pytest.mark.parametrize("jitted", [False, True])
def test_prints_as_jax_does(
    fmt: str, args: Any, kwargs: Any, jitted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []
    for library in (sw, jax):
        held = [a for a in args if not isinstance(a, str)]

        def f(*held: Any, library: Any = library) -> None:
            given = iter(held)
            mixed = [a if isinstance(a, str) else next(given) for a in args]
            library.debug.print(fmt, *mixed, **kwargs)

        (library.jit(f) if jitted else f)(*held)
        library.effects_barrier()
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] and printed[0].endswith("\n")


def test_prints_of_loops_and_batches_as_jax(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for library in (sw, jax):

        def f(x: Any, library: Any = library) -> Any:
            library.debug.print("in {} {x}", x, x=x * 2, ordered=True)
            return x * 2

        def loop(x: Any, library: Any = library, f: Any = f) -> Any:
            body = lambda c, _: (library.jit(f)(c), None)  # noqa: E731
            return library.lax.scan(body, x, None, length=3)[0]

        library.jit(loop)(1.0)
        library.vmap(f)(np.arange(3.0, dtype=np.float32))
        library.grad(lambda x, f=f: f(x) ** 2)(2.0)
        library.effects_barrier()
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] and printed[0].count("\n") == 7


def test_a_sharded_array_is_printed_whole_and_once(capsys: pytest.CaptureFixture[str]) -> None:
    value = np.arange(8.0, dtype=np.float32)
    sw.jit(lambda x: sw.debug.print("x = {}", x))(ours(value, "x"))
    sw.effects_barrier()
    mine = capsys.readouterr().out
    jax.jit(lambda x: jax.debug.print("x = {}", x))(theirs(value, "x"))
    jax.effects_barrier()
    assert mine == capsys.readouterr().out == "x = [0. 1. 2. 3. 4. 5. 6. 7.]\n"
    sw.jit(lambda x: sw.debug.print("{}", x))(ours(value[:7], "x"))
    assert capsys.readouterr().out == "[0. 1. 2. 3. 4. 5. 6.]\n"


def test_each_device_prints_its_part(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[Any] = []
    x = ours(np.arange(8.0, dtype=np.float32), ("x", "y"))
    sw.jit(lambda x: sw.debug.print("part {}", x, partitioned=True))(x)
    sw.effects_barrier()
    lines = sorted(capsys.readouterr().out.splitlines())
    assert lines == [f"part [{i}.]" for i in range(8)]
    x = ours(np.ones((7, 8), np.float32), "x", "y")
    sw.jit(lambda x: sw.debug.callback(lambda v: calls.append(v.shape), x, partitioned=True))(x)
    assert calls == [(7, 4)] * 8  # no padding is shown


def test_each_device_prints_its_shard_of_every_element(capsys):
    auto = (sw.sharding.AxisType.Auto,)
    mesh = sw.make_mesh((2,), ("i",), devices=sw.devices()[:2], axis_types=auto)
    x = sw.device_put(np.arange(4).reshape(2, 2), sw.NamedSharding(mesh, sw.P("i")))
    with sw.set_mesh(mesh):
        sw.jit(sw.vmap(lambda x, y: sw.debug.print("{} {}", x, y, partitioned=True), (0, 1)))(x, x)
    sw.effects_barrier()
    lines = {"[0 1] [0]", "[0 1] [2]", "[2 3] [1]", "[2 3] [3]"}
    assert {*capsys.readouterr().out.splitlines()} == lines


def test_print_options_are_those_of_the_caller(capsys: pytest.CaptureFixture[str]) -> None:
    f = sw.jit(lambda x: sw.debug.print("{}", x))
    with np.printoptions(precision=2):
        f(np.array([1.23456], np.float32))
    sw.effects_barrier()
    assert capsys.readouterr().out == "[1.23]\n"


def test_doubled_braces_are_braces(capsys: pytest.CaptureFixture[str]) -> None:
    sw.jit(lambda x: sw.debug.print("{{x}} is {}", x))(1.5)
    sw.effects_barrier()
    assert capsys.readouterr().out == "{x} is 1.5\n"


def test_keys_are_shown_by_their_integers() -> None:
    calls = Calls()
    sw.jit(lambda k: noted(k, calls))(sw.random.key(3))
    sw.effects_barrier()
    assert calls == [[0, 3]]


@pytest.mark.parametrize("jitted", [False, True])
def test_logs(jitted: bool, caplog: pytest.LogCaptureFixture) -> None:
    def f(x: Any) -> None:
        sw.debug.log("x = {:.2f} {y}", x, y="text")
        sw.debug.log(ordered=True)("then {}", x)

    with caplog.at_level("INFO", "shardwise.debug"):
        (sw.jit(f) if jitted else f)(np.float32(1.234))
        sw.effects_barrier()
    assert [(r.name, r.levelname) for r in caplog.records] == [("shardwise.debug", "INFO")] * 2
    assert sorted(caplog.messages) == ["then 1.2339999675750732", "x = 1.23 text"]
    with pytest.raises(TypeError) as e:
        sw.debug.log(x=1)
    assert str(e.value) == "debug.log: got arguments, but no format string."


@pytest.mark.parametrize(
    "fmt, args, kwargs, kind, text",
    [
        (
            "{} {}",
            (1,),
            {},
            IndexError,
            "debug.print: the format '{} {}' needs argument number "
            "1, but was given 1 positional argument and no names.",
        ),
        (
            "{y}",
            (1,),
            {"x": 2},
            KeyError,
            "\"debug.print: the format '{y}' needs 'y', but was "
            'given 1 positional argument and the names x."',
        ),
        (
            "{}",
            (1, 2),
            {"k": 1},
            ValueError,
            "debug.print: the format '{}' does not use the "
            "arguments 1, 'k'. Give it a field for each; an f-string would have been formatted before "
            "the call.",
        ),
        (
            "{",
            (),
            {},
            ValueError,
            "debug.print: the format '{': Single '{' encountered in format string.",
        ),
        (
            1.0,
            (),
            {},
            TypeError,
            "debug.print takes a format string as its first argument; got 1.0 "
            "of type float. "
            'Write `debug.print("{}", x)`.',
        ),
    ],
)
def test_bad_formats_are_refused_at_once(
    fmt: Any, args: Any, kwargs: Any, kind: Any, text: str
) -> None:
    with pytest.raises(kind) as e:
        sw.jit(lambda: sw.debug.print(fmt, *args, **kwargs))()
    assert str(e.value) == text
