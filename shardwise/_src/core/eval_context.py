"""The ground: what the interpreter where all chains end does for the layers below it.

Interpreters receive ops; the last of them, which has no parent, runs them on devices. Ops, the
NumPy functions, refs and callbacks need a little more of it: arrays made of host values, put in
places, and indexed. `EvalTrace` declares all of that. The eager interpreter (`running.eager`)
implements it, and is installed in the root context when the first public name is used.

    ground().new_array(np.ones(3))      # a host value as an array, whatever is being traced
    with untraced(): ...                # ops run at once
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from shardwise._src.base.context import ROOT, Context


class EvalTrace(ABC):
    """What the eager interpreter offers besides `process` and `call`. "Array" is `arrays.Array`.

    An array is committed where somebody chose its place; others go where they are needed.
    """

    __slots__ = ()

    # -- arrays of values --

    @abstractmethod
    def new_array(self, x: Any) -> Any:
        """A host value as an uncommitted array with memory of its own, to give to users."""

    @abstractmethod
    def array(self, x: Any) -> Any:
        """A value as an array, to compute with: a host value is put on the default device.

        Equal scalars share their memory: what users get, who may delete it, is a `new_array`.

        Raises:
          TypeError: if `x` is no array and no number.
          UnexpectedTracerError: if it is a traced value, which has escaped from its function.
        """

    @abstractmethod
    def arrays(self, args: Sequence[Any]) -> list[Any]:
        """Operands as arrays: scalars go where the first array is, other values as by `array`."""

    @abstractmethod
    def beside(self, value: Any, near: Any) -> Any:
        """A NumPy array where the array `near` is: of its dtype, and as weak and committed."""

    @abstractmethod
    def from_dlpack(self, x: Any, target: Any, copy: bool | None) -> Any:
        """The array of another library that has `__dlpack__`, on its memory where possible.

        target: a device or sharding, to which the result is committed; None for where `x` is.
        copy:   True for memory of its own, False for an error where that is needed.

        Raises:
          BufferError: if the data cannot be taken, or not without the copy that is forbidden.
        """

    # -- places --

    @abstractmethod
    def place(self, x: Any, target: Any) -> Any:
        """A value committed to a device or sharding; a traced one is constrained to it.

        Raises:
          TypeError: if `target` is no place. ValueError: if the value does not fit there.
        """

    @abstractmethod
    def made(self, fused: Any, args: tuple[Any, ...], target: Any) -> Any:
        """The result of a fused function, computed where it is to be: committed to a sharding.

        target: a device or sharding. Arguments that are arrays go to its devices.
        """

    @abstractmethod
    def copied(self, x: Any) -> Any:
        """The same array in separate memory, on the same devices."""

    @abstractmethod
    def readable(self, x: Any) -> Any:
        """A value that decides about shapes, as every process can read it.

        An array that spans processes is put whole on all of its devices; others stay as they are.
        """

    # -- indexing --

    @abstractmethod
    def getitem(self, x: Any, idx: Any) -> Any:
        """`x[idx]`, for every index that NumPy has (`numpy.indexing`).

        Raises:
          IndexError, TypeError: if `idx` is no index for `x`.
        """

    @abstractmethod
    def index_operands(self, operands: list[Any], near: Any) -> list[Any]:
        """The operands of an index, with integers replaced by arrays of them beside `near`.

        The list is that of the index, changed in place. One program then serves all integers. The
        arrays are kept, and are not to be given away.
        """

    # -- programs --

    @abstractmethod
    def run(self, program: Any, args: Sequence[Any]) -> list[Any]:
        """The results of a `Program`, which is compiled once for arguments like these."""


def ground() -> EvalTrace:
    """The ground, whichever interpreter is current."""
    return ROOT.interpreter


def eval_context() -> AbstractContextManager[Context]:
    """A block in which ops run at once, though something is traced around it.

    All of the context is that of the root: no mesh in scope, no named axes, the global flags.
    """
    return ROOT.under(ROOT.interpreter).entered()
