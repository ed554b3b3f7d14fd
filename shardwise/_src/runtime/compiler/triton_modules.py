"""Modules in Triton's dialect of MLIR: text that is parsed and verified before a compiler sees it.

    serialized("module { tt.func public @f(…) { … } }")    → MLIR's bytecode

The dialect is part of jaxlib, so that this needs no GPU and no GPU compiler.
"""

from __future__ import annotations

import functools
import io
import threading
from typing import TYPE_CHECKING

from shardwise._src.base.interrupts import uninterrupted
from shardwise._src.runtime.compiler.shardy import kernel_context

if TYPE_CHECKING:
    from jaxlib.mlir import ir

_lock = threading.RLock()  # two threads must not use the context concurrently


@functools.cache
def _context() -> ir.Context:
    from jaxlib.mlir._mlir_libs import _triton_ext

    return kernel_context(_triton_ext.register_dialect)


def parsed_triton(text: str) -> ir.Module:
    """The module of a text, verified. Its context is that of all modules in Triton's dialect.

    Raises:
      ValueError: with MLIR's report, if the text is not a valid module.
    """
    with uninterrupted():
        from jaxlib.mlir import ir

        with _lock, _context():
            try:
                return ir.Module.parse(text)
            except ir.MLIRError as error:
                raise ValueError(f"the module in Triton's dialect is not valid: {error}") from None


def serialized(text: str) -> bytes:
    """MLIR's bytecode of a module in Triton's dialect, as XLA takes it.

    Raises:
      ValueError: with MLIR's report, if the text is not a valid module.
    """
    with uninterrupted(), _lock:
        found = io.BytesIO()
        parsed_triton(text).operation.write_bytecode(found)
        return found.getvalue()
