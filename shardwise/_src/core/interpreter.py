"""Interpreters: the receivers of the ops that are bound.

There is always one current interpreter, in the context. `op(*args, **params)` passes it the op. Its
rules run with its *parent* current, so transforms nest without levels. The eager interpreter has no
parent and executes ops; `core.eval_context` declares its other methods for the layers below.
"""

from __future__ import annotations

from threading import get_ident
from typing import Any

from shardwise._src.base.context import CURRENT, Context, current
from shardwise._src.core.infer import as_arraylike
from shardwise._src.core.op import BoundOp, Op, Params
from shardwise._src.messages import source
from shardwise._src.messages.source import Site, describe, replay, user_site


class Interpreter:
    """Base of all interpreters.

    parent:    the interpreter that was current when this one was entered; None for the outermost.
    transform: the public name of the transform (`jit`, `grad`, …), for messages.
    function:  the name of the transformed function.
    alive:     false after the transformed function has ended; its tracers are then invalid.
    thread:    the thread that runs the function.
    eager:     whether ops run immediately: true for the eval context.
    is_apart:  whether it makes a program that is independent of the surrounding context.
    """

    eager = is_apart = False

    __slots__ = (
        "parent",
        "transform",
        "function",
        "site",
        "alive",
        "thread",
        "_seen",
        "_under_parent",
        "__weakref__",
    )

    def __init__(
        self,
        parent: Interpreter | None = None,
        transform: str = "",
        function: str = "f",
        site: Site | None = None,
    ):
        self.parent: Any = parent if transform else current().interpreter  # written for JAX
        self.transform = transform or type(self).__name__
        self.function = function
        self.site: Site | None = site or user_site(2)
        self.alive = True
        self.thread = get_ident()
        self._seen: Context | None = None
        self._under_parent: Context | None = None

    main = property(lambda self: self)  # JAX's name for the identity of interpreters

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Applies the op: to tracers of this interpreter and to values of outer ones.

        An interpreter written for JAX has `process_primitive(primitive, tracers, params)` instead.
        """
        named = params if op.aliases is None else Params(params, op.aliases)
        return self.process_primitive(op.foreign or op, args, named)

    def process_primitive(self, primitive: Any, tracers: Any, params: dict[str, Any]) -> Any:
        raise NotImplementedError

    def process_ready(self, ready: BoundOp, args: tuple[Any, ...]) -> Any:
        """The same for an op bundled with its parameters."""
        return self.process(ready.op, args, ready.params)

    def call(self, fused: Any, args: tuple[Any, ...], static: dict[str, Any]) -> Any:
        """Runs a fused function (see `core.fused`): inline, unless this interpreter is eager."""
        n = fused.arrays
        operands = [as_arraylike(a) for a in args[:n]]
        return fused.fun(*operands, *args[n:], **static)

    def call_as_one(self, fused: Any, args: tuple[Any, ...], static: dict[str, Any]) -> Any:
        """Runs an `eager_jit` function: as one program when eager, else inline."""
        return fused.fun(*args, **static)

    def parent_context(self) -> Context:
        """The current context, with the parent as interpreter."""
        here = current()
        under = self._under_parent
        if under is None or here is not self._seen:
            self._seen = here
            under = self._under_parent = here.under(self.parent)
        return under

    def entered(self) -> _Entered:
        """Makes this the current interpreter; its tracers are invalid after the block."""
        return _Entered(self)

    def end(self) -> None:
        """Marks the transformed function as ended."""
        self.alive = False
        self._seen = self._under_parent = None

    def describe(self) -> str:
        """`jit of f, called at file.py:3 (main)`."""
        return f"{self.transform} of {self.function}, called at {describe(self.site)}"


class _Entered:
    """The block in which an interpreter is current.

    An interpreter with a separate program starts without names in scope (see `messages.source`).
    """

    __slots__ = ("interpreter", "token", "scope")

    def __init__(self, interpreter: Interpreter):
        self.interpreter = interpreter

    def __enter__(self) -> Interpreter:
        self.token = CURRENT.set(current().under(self.interpreter))
        self.scope = replay.scope
        if self.interpreter.is_apart:
            replay.scope = source.marks.value if source.names_used else ""
        return self.interpreter

    def __exit__(self, *_: object) -> None:
        CURRENT.reset(self.token)
        replay.scope = self.scope
        self.interpreter.end()
