"""The eval context: what the outermost interpreter does for the layers below it.

Interpreters receive ops. The outermost one, which has no parent, runs them on devices. Ops, the
NumPy functions, refs and callbacks need a little more from it: to create arrays from host values,
to place them, and to index them. `EvalTrace` declares these methods. The eager interpreter
(`running.eager`) implements them, and is installed in the root context at the first use of a public
name.

    eval_trace().new_array(np.ones(3))      # a host value as an array, whatever is being traced
    with eval_context(): ...            # ops run immediately
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from shardwise._src.base.context import ROOT, Context, current


class EvalTrace(ABC):
    """What the eager interpreter offers besides `process` and `call`. "Array" is `arrays.Array`.

    An array is committed if the user chose its device or sharding; others move as needed.
    """

    __slots__ = ()

    # -- arrays from values --

    @abstractmethod
    def new_array(self, x: Any) -> Any:
        """A host value as an uncommitted array in its own memory, to return to users."""

    @abstractmethod
    def array(self, x: Any) -> Any:
        """A value as an array for computation: a host value is put on the default device.

        Equal scalars share their memory. Use `new_array` for arrays that users receive, as they may
        delete them.

        Raises:
          TypeError: if `x` is neither an array nor a number.
          UnexpectedTracerError: if it is a tracer that has escaped from its function.
        """

    @abstractmethod
    def arrays(self, args: Sequence[Any]) -> list[Any]:
        """Operands as arrays: scalars go to the device of the first array, others as in `array`."""

    @abstractmethod
    def with_signatures(self, args: Sequence[Any]) -> tuple[Sequence[Any], list[Any]]:
        """Operands as arrays, and for each what programs that take it depend on: a part of keys."""

    @abstractmethod
    def place_like(self, value: Any, near: Any) -> Any:
        """A NumPy array placed like the array `near`, with its dtype, weak type and commitment."""

    @abstractmethod
    def from_dlpack(self, x: Any, target: Any, copy: bool | None) -> Any:
        """An array of another library that has `__dlpack__`, sharing its memory if possible.

        target: a device or sharding, to which the result is committed; None for the device of `x`.
        copy:   True to always copy, False to raise an error if a copy is needed.

        Raises:
          BufferError: if the data cannot be imported, or not without the forbidden copy.
        """

    # -- placement --

    @abstractmethod
    def place(self, x: Any, target: Any) -> Any:
        """A value committed to a device or sharding; a traced one is constrained to it.

        Raises:
          TypeError: if `target` is not a device or sharding.
          ValueError: if the value does not fit there.
        """

    @abstractmethod
    def run_fused_on(self, fused: Any, args: tuple[Any, ...], target: Any) -> Any:
        """The result of a fused function, computed on the target devices and committed there.

        target: a device or sharding. Array arguments are transferred to its devices.
        """

    @abstractmethod
    def copied(self, x: Any) -> Any:
        """The same array in separate memory, on the same devices."""

    @abstractmethod
    def readable(self, x: Any) -> Any:
        """A value that determines shapes, readable by every process.

        An array that spans processes is replicated over all of its devices; others are unchanged.
        """

    # -- indexing --

    @abstractmethod
    def getitem(self, x: Any, idx: Any) -> Any:
        """`x[idx]`, for every kind of NumPy index (`values.indexing`).

        Raises:
          IndexError, TypeError: if `idx` is not a valid index for `x`.
        """

    @abstractmethod
    def index_operands(self, operands: list[Any], near: Any) -> list[Any]:
        """The operands of an index, with integers replaced by arrays placed like `near`.

        The list is changed in place. One program then serves all integers. The arrays are cached,
        and must not be donated.
        """

    # -- programs --

    @abstractmethod
    def run_op(self, op: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """The result of an `Op` on arrays, by its own rules: as a program, compiled once."""

    @abstractmethod
    def run(self, program: Any, args: Sequence[Any]) -> list[Any]:
        """The results of a `Program`, which is compiled once for each signature of arguments."""

    @abstractmethod
    def runner(
        self, program: Any, args: Sequence[Any], *, as_list: bool
    ) -> Callable[[Sequence[Any]], Any]:
        """The function that runs a program on arrays like these. It returns the results as a list,
        or without `as_list` the only result."""


def eval_trace() -> EvalTrace:
    """The eval context, whichever interpreter is current."""
    return ROOT.interpreter


def eval_context_without(*flags: str) -> AbstractContextManager[Context]:
    """The current context, but ops run immediately, and these flags have their defaults."""
    here = current()
    kept = {name: value for name, value in here.flags.items() if name not in flags}
    return Context(ROOT.interpreter, here.mesh, here.axes, kept).entered()


def eval_context() -> AbstractContextManager[Context]:
    """A block in which ops run immediately, even inside a trace.

    The entire context is the root one: no mesh in scope, no named axes, the global flags.
    """
    return ROOT.under(ROOT.interpreter).entered()
