"""Mosaic, the dialect of kernels for TPUs: texts of modules, verified and serialized.

    serialized(text)    # the bytes that the custom call `tpu_custom_call` contains

jaxlib parses and verifies the text; libtpu compiles it.
"""

from __future__ import annotations

import functools
import io
import threading
from typing import TYPE_CHECKING

from shardwise._src.base.caches import cached
from shardwise._src.base.interrupts import uninterrupted
from shardwise._src.runtime.compiler.shardy import upstream_dialects

if TYPE_CHECKING:
    from jaxlib.mlir import ir

_lock = threading.RLock()  # two threads must not use the context concurrently


class InvalidKernel(Exception):
    """jaxlib rejects the text of a kernel: its message."""


@functools.cache
def _context() -> ir.Context:
    """MLIR's context with the dialect of TPUs. Its attributes are not registered with MLIR."""
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _tpu_ext

    context = ir.Context()
    context.append_dialect_registry(upstream_dialects())
    context.load_all_available_dialects()
    context.enable_multithreading(False)
    _tpu_ext.register_dialect(context)
    context.allow_unregistered_dialects = True
    return context


@cached(256)
def serialized(text: str) -> bytes:
    """A module as bytes, with the versions of its operations, so that other releases read it.

    Raises InvalidKernel if jaxlib's parser or verifier rejects it.
    """
    with uninterrupted():
        from jaxlib.mlir import ir
        from jaxlib.mlir.passmanager import PassManager

        with _lock, _context(), ir.Location.unknown():
            try:
                module = ir.Module.parse(text)
                module.operation.verify()
                PassManager.parse("builtin.module(mosaic-serde{serialize=true})").run(
                    module.operation
                )
            except ir.MLIRError as error:
                raise InvalidKernel(str(error)) from None
            out = io.BytesIO()
            module.operation.write_bytecode(file=out, desired_version=0)
            return out.getvalue()
