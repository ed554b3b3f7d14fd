"""Mosaic, the dialect of kernels for TPUs: texts of modules, verified and serialized.

    serialized(text)    # the bytes that the custom call `tpu_custom_call` contains

jaxlib parses and verifies the text; libtpu compiles it.
"""

from __future__ import annotations

import functools
import io
import re
import threading
from typing import TYPE_CHECKING, NamedTuple

from shardwise._src.base.caches import cached
from shardwise._src.base.interrupts import uninterrupted
from shardwise._src.runtime.compiler.shardy import kernel_context

if TYPE_CHECKING:
    from jaxlib.mlir import ir

_lock = threading.RLock()  # two threads must not use the context concurrently


class InvalidKernel(Exception):
    """jaxlib rejects the text of a kernel: its message."""


@functools.cache
def _context() -> ir.Context:
    """MLIR's context with the dialect of TPUs. Its attributes are not registered with MLIR."""
    from jaxlib.mlir._mlir_libs import _tpu_ext

    context = kernel_context(_tpu_ext.register_dialect)
    context.allow_unregistered_dialects = True
    return context


_FAILED = "Mosaic failed to compile TPU kernel: "
_PLACE = re.compile(r'at location: loc\("([^"]*)":(\d+):')
_ALIGNED = re.compile(r"index (in|at) dimension \d+ is (a multiple of|divisible by)")
_ADVICE = (
    "Along the last two dimensions, what is loaded, stored or copied begins at tiles. If a traced "
    "start does so, use `ds(multiple_of(start, n), size)`: `experimental.pallas.multiple_of`."
)


class Failure(NamedTuple):
    """Why libtpu rejects a kernel, and the user's line, if it is known."""

    reason: str
    place: str


def failure_in(message: str) -> Failure | None:
    """What libtpu says about a kernel, in its message; None if it is about something else."""
    _, found, text = message.partition(_FAILED)
    if not found:
        return None
    reason = re.split(r"\n| See https://| If it is, use tpu", text.strip(), maxsplit=1)[0]
    reason = re.sub(r"^E\d+: \w+: ", "", reason.strip()).rstrip(".")
    place = _PLACE.search(text)
    advice = f" {_ADVICE}" if _ALIGNED.search(reason) else ""
    return Failure(f"{reason}.{advice}", f"{place[1]}:{place[2]}" if place else "")


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
