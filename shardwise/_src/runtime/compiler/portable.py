"""Portable artifacts: modules in StableHLO's versioned format, which other releases can read.

Wraps jaxlib's serializer and reader and its refinement of modules with dynamic shapes, and lists
the symbols of a module. MLIR's bindings are imported when they are first needed.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from jaxlib import _jax

from shardwise._src.base.interrupts import uninterrupted
from shardwise._src.runtime.compiler.shardy import in_context

if TYPE_CHECKING:
    from jaxlib.mlir import ir

READING = 120  # seconds that a process may take to read an artifact


class Unreadable(Exception):
    """An artifact cannot be read; the message is from jaxlib or the reading process."""


class Part(NamedTuple):
    """A symbol of a module: a function, with its input and output types, or a mesh."""

    symbol: str
    text: str
    ins: tuple[str, ...] = ()
    outs: tuple[str, ...] = ()


def artifact_version() -> str:
    """The StableHLO version for artifacts: one that is a month old."""
    with uninterrupted():
        from jaxlib.mlir.dialects import stablehlo

    return stablehlo.get_version_from_compatibility_requirement(
        stablehlo.StablehloCompatibilityRequirement.WEEK_4
    )


def portable_artifact(text: str) -> bytes:
    """A module's text as a portable artifact. Shardy's attributes are unchanged."""
    with in_context():
        from jaxlib.mlir import ir

        module = ir.Module.parse(text)
        return _jax.mlir.serialize_portable_artifact(module, artifact_version(), True)


def artifact_text(artifact: bytes) -> str:
    """The text of a portable artifact's module, without aliases and locations.

    Only for bytes that are known to be intact: jaxlib may abort the process on others.
    """
    with in_context() as context:
        from jaxlib.mlir.passmanager import PassManager

        try:
            module = _jax.mlir.deserialize_portable_artifact(artifact, context)
        except _jax.JaxRuntimeError as error:
            raise Unreadable(str(error).partition("\n")[0]) from None
        PassManager.parse("builtin.module(sdy-lift-inlined-meshes)").run(module.operation)
        return _text(module)


def foreign_text(artifact: bytes) -> str:
    """`artifact_text` for untrusted bytes: a separate process reads them."""
    code = f"from {__name__} import read_for_parent; read_for_parent()"
    paths = os.pathsep.join(p for p in sys.path if p)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            input=artifact,
            capture_output=True,
            timeout=READING,
            env={**os.environ, "PYTHONPATH": paths},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unreadable(f"reading it takes longer than {READING} seconds") from None
    if done.returncode == 0:
        return done.stdout.decode()
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode == _REFUSED:
        raise Unreadable(said.rpartition("\n")[2])
    raise Unreadable(f"the process that reads it exited with {done.returncode}")


_REFUSED = 3


def read_for_parent() -> None:
    """The main function of that process: reads an artifact from stdin, writes text to stdout."""
    try:
        text = artifact_text(sys.stdin.buffer.read())
    except Unreadable as error:
        sys.stderr.write(f"\n{error}")
        sys.exit(_REFUSED)
    sys.stdout.buffer.write(text.encode())


def refined_text(text: str) -> str:
    """Propagates the static shapes of `main`'s parameters through a module.

    Shape assertions are checked, and conditionals on constants are resolved.
    """
    with in_context():
        from jaxlib.mlir import ir

        out = io.BytesIO()
        ir.Module.parse(text).operation.write_bytecode(file=out)
        try:
            found = _jax.mlir.refine_polymorphic_shapes(out.getvalue(), True, True, True)
        except _jax.JaxRuntimeError as error:
            raise Unreadable(str(error)) from None
        return _text(ir.Module.parse(found))


def parts_of(text: str) -> list[Part]:
    """The symbols that a module's text defines."""
    with in_context():
        from jaxlib.mlir import ir

        try:
            module = ir.Module.parse(text)
        except ir.MLIRError as error:
            raise Unreadable(str(error)) from None
        return [_part(op) for op in module.body.operations]


def _part(op: ir.OpView) -> Part:
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import func

    symbol, text = ir.StringAttr(op.attributes["sym_name"]).value, _text(op)
    if not isinstance(op, func.FuncOp):
        return Part(symbol, text)
    types = op.type
    return Part(symbol, text, tuple(map(str, types.inputs)), tuple(map(str, types.results)))


def _text(op: ir.OpView | ir.Module) -> str:
    """The text of an operation, which references only symbols outside of it."""
    return op.operation.get_asm(use_local_scope=True)
