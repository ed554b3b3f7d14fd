"""`debug.breakpoint`: stops a program and inspects its values, with commands like pdb.

    @jit
    def f(x):
        y = sin(x)
        debug.breakpoint()     # (sw) p y
        return y * 2

The variables of the functions on the call stack are recorded when the call is traced. The program
then calls the host with the traced values among them (see `debug.host_callbacks`): once for each
execution, with the full values of sharded arrays. Commands are read until one of them resumes
the program.
"""

from __future__ import annotations

import cmd
import linecache
import pprint
import sys
import threading
from bdb import BdbQuit
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import numpy as np

from shardwise._src.base.context import current
from shardwise._src.core.infer import is_array, type_of
from shardwise._src.debug.host_callbacks import debug_call, pure_callback
from shardwise._src.messages.formatting import brief
from shardwise._src.messages.source import is_own
from shardwise._src.ops.elementwise import stop_gradient
from shardwise._src.refs.refs import is_ref, value_of
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.tracer import Tracer, is_ancestor

_one_at_a_time = threading.Lock()


def breakpoint(
    *,
    backend: str | None = None,
    filter_frames: bool = True,
    num_frames: int | None = None,
    ordered: bool = False,
    token: Any = None,
    stdin: Any = None,
    stdout: Any = None,
) -> Any:
    """Stops here when the program runs, and reads commands: `help` lists them.

    If the input ends without a `continue`, for example in a process that is not interactive, the
    program resumes.

    Args:
      backend: None or "cli": commands from a stream.
      filter_frames: whether functions of shardwise itself are left out of the stack.
      num_frames: how many functions of the stack can be inspected; None for all.
      ordered: whether this happens in program order, also across successive programs.
      token: arrays, in a pytree. With it the program stops when their values are known, and not at
        all if the return value is unused.
      stdin, stdout: text streams for commands and output; None for those of `sys`.

    Returns:
      `token`, through which no derivatives flow.

    Raises:
      bdb.BdbQuit: after the command `quit`; in a compiled program, as the cause of a CallbackError.
    """
    if backend not in (None, "cli"):
        raise ValueError(f"debug.breakpoint: backend must be None or 'cli'; got {backend!r}.")
    if token is not None and ordered:
        raise ValueError(
            "debug.breakpoint: ordered=True and a token are mutually exclusive, since each "
            "determines when to stop. Pass one of them."
        )
    frames, traced = _stack(sys._getframe(1), filter_frames, num_frames)

    def stop(values: Sequence[Any]) -> None:
        with _one_at_a_time:
            Commands([f.filled(values) for f in frames], stdin, stdout).cmdloop()

    def passing(token: Any, values: Sequence[Any]) -> Any:
        stop(values)
        return token

    stop.__name__ = passing.__name__ = frames[0].function if frames else "?"
    if token is None:
        debug_call(stop, "debug.breakpoint", (traced,), {}, ordered, False)
        return None
    leaves, tree = flatten(token)
    token, traced = tree.unflatten(map(stop_gradient, leaves)), [*map(stop_gradient, traced)]
    return pure_callback(passing, token, token, traced, vmap_method="sequential")


# -- what can be inspected --


@dataclass(frozen=True)
class Frame:
    """A function on the stack: its location, and its variables.

    held: for each local variable with traced values its pytree, its leaves, and for the traced
          leaves their numbers among all traced values.
    """

    file: str
    line: int
    function: str
    local: dict[str, Any]
    space: dict[str, Any]
    held: dict[str, tuple[Any, list[Any], dict[int, int]]]

    def filled(self, values: Sequence[Any]) -> Frame:
        """The frame with values in place of traced ones."""
        local = dict(self.local)
        for name, (tree, leaves, numbers) in self.held.items():
            given = [values[numbers[i]] if i in numbers else x for i, x in enumerate(leaves)]
            local[name] = tree.unflatten(given)
        return replace(self, local=local, held={})

    def source(self, before: int, behind: int) -> list[str]:
        """The lines around the current one, which is marked with an arrow."""
        numbers = range(max(1, self.line - before), self.line + behind + 1)
        rows = [(n, linecache.getline(self.file, n, self.space)) for n in numbers]
        return [
            f"{n:>4} {'->' if n == self.line else '  '} {text.rstrip()}" for n, text in rows if text
        ]


def _stack(
    frame: FrameType | None, filtered: bool, count: int | None
) -> tuple[list[Frame], list[Any]]:
    """The frames from the innermost on, and all traced values in them."""
    frames: list[Frame] = []
    traced: dict[int, tuple[int, Any]] = {}
    while frame is not None and (count is None or len(frames) < count):
        if not (filtered and is_own(frame.f_code.co_filename)):
            frames.append(_frame(frame, traced))
        frame = frame.f_back
    return frames, [x for _, x in traced.values()]


def _frame(frame: FrameType, traced: dict[int, tuple[int, Any]]) -> Frame:
    local = frame.f_locals
    held: dict[str, Any] = {}
    if local is not frame.f_globals:
        local = dict(local)
        for name, value in local.items():
            found = _traced_in(value, traced)
            if found is not None:
                held[name] = found
    code = frame.f_code
    return Frame(code.co_filename, frame.f_lineno, code.co_name, local, frame.f_globals, held)


def _traced_in(value: Any, traced: dict[int, tuple[int, Any]]) -> Any:
    """See `Frame.held`; None if there is no traced value that can be used here."""
    try:
        leaves, tree = flatten(value)
        leaves = [_value(x) for x in leaves]
    except Exception:  # a variable of any kind, shown unchanged
        return None
    numbers: dict[int, int] = {}
    for i, x in enumerate(leaves):
        if isinstance(x, Tracer) and is_ancestor(x.interpreter, current().interpreter):
            numbers[i] = traced.setdefault(id(x), (len(traced), x))[0]
    return (tree, leaves, numbers) if numbers else None


def _value(x: Any) -> Any:
    return value_of(x) if is_ref(x) and not x._ended else x


# -- commands --


class Commands(cmd.Cmd):
    """Reads and obeys commands, until one of them ends it."""

    prompt = "(sw) "

    def __init__(self, frames: Sequence[Frame], stdin: Any, stdout: Any):
        terminal = stdin is None and sys.stdin is not None and sys.stdin.isatty()
        super().__init__(stdin=stdin or sys.stdin, stdout=stdout or sys.stdout)
        self.use_rawinput = terminal and stdout is None
        self.frames, self.at = frames, 0

    def preloop(self) -> None:
        self._show_place(2)
        if self.stdin is None:  # a process without stdin
            self.cmdqueue.append("EOF")

    def emptyline(self) -> bool:
        return False

    def say(self, text: str) -> None:
        self.stdout.write(text + "\n")
        self.stdout.flush()

    @property
    def frame(self) -> Frame:
        return self.frames[self.at]

    def _show_place(self, around: int) -> None:
        if self.frames:
            f = self.frame
            self.say("\n".join([f"> {f.file}:{f.line} ({f.function})", *f.source(around, around)]))

    def _shown(self, expression: str, show: Callable[[Any], str]) -> None:
        try:
            space = {**self.frame.space, **self.frame.local} if self.frames else {}
            self.say(show(eval(expression, space)))  # the purpose of a debugger
        except Exception as error:
            self.say(f"*** {type(error).__name__}: {error}")

    def default(self, line: str) -> None:
        self._shown(line, repr)

    def do_p(self, arg: str) -> None:
        """p expression: its value. An expression alone does the same, if it is no command."""
        self._shown(arg, repr)

    def do_pp(self, arg: str) -> None:
        """pp expression: its value, over several lines."""
        self._shown(arg, pprint.pformat)

    def do_locals(self, arg: str) -> None:
        """locals: the variables of the function, with the types of arrays."""
        for name, value in self.frame.local.items() if self.frames else ():
            self.say(f"{name} = {_brief(value)}")

    def do_list(self, arg: str) -> None:
        """l(ist): the lines around this one."""
        self._show_place(7)

    def do_where(self, arg: str) -> None:
        """w(here), bt: the functions on the stack, the innermost last."""
        for i, f in reversed([*enumerate(self.frames)]):
            line = linecache.getline(f.file, f.line, f.space).strip()
            self.say(f"{'>' if i == self.at else ' '} {f.file}:{f.line} ({f.function})")
            self.say(f"      {line}")

    def do_up(self, arg: str) -> None:
        """u(p): to the function that called this one."""
        self._go(self.at + 1, "the outermost function")

    def do_down(self, arg: str) -> None:
        """d(own): to the function that this one called."""
        self._go(self.at - 1, "the innermost function")

    def _go(self, to: int, end: str) -> None:
        if not 0 <= to < len(self.frames):
            self.say(f"*** this is {end}")
            return
        self.at = to
        self._show_place(2)

    def do_continue(self, arg: str) -> bool:
        """c(ont(inue)): lets the program go on."""
        return True

    def do_EOF(self, arg: str) -> bool:
        """The end of the input: the program goes on."""
        self.say("\nend of input: the program continues")
        return True

    def do_quit(self, arg: str) -> None:
        """q(uit), exit: ends the program with an error."""
        raise BdbQuit("quit")

    do_l, do_w, do_bt, do_u, do_d = do_list, do_where, do_where, do_up, do_down
    do_c = do_cont = do_continue
    do_q = do_exit = do_quit


def _brief(value: Any) -> str:
    if is_array(value) or isinstance(value, np.ndarray):
        return type_of(value).str_short(True)
    return brief(value)
