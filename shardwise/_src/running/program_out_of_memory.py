"""Errors for programs that run out of memory: they list the largest values and arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from shardwise._src.arrays.out_of_memory import MOST, nbytes, out_of_memory, typed
from shardwise._src.arrays.signature import Signature
from shardwise._src.core.program import Equation, Program
from shardwise._src.core.program_tools import walk
from shardwise._src.messages.formatting import in_bytes, joined
from shardwise._src.messages.source import describe, note_line
from shardwise._src.runtime.backend import RuntimeFailure
from shardwise._src.runtime.compiler.mosaic import Failure
from shardwise._src.runtime.target_machines import Target, target_of

_SIZE = re.compile(r"\(([\d.]+)([KMGT])\)")  # as TPU's compiler reports them
_SHARED = re.compile(r"Shared memory size limit exceeded: requested (\d+), available: (\d+)")
_SCOPED = re.compile(r"Scoped allocation with size ([\d.]+)([KMG]) and limit ([\d.]+)([KMG])")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class ProgramTooLarge(RuntimeFailure):
    """A program that the compiler of a target rejects for lack of memory.

    needed, available: bytes of a device; 0 if the compiler does not report them.
    """

    needed = available = 0


def program_exhausted(
    program: Program,
    sigs: Sequence[Signature],
    names: Sequence[str],
    devices: Sequence[Any],
    error: BaseException,
    doing: str,
) -> Exception:
    """The error for a program that could not be compiled, or run, for lack of memory.

    names: names of the arguments; doing: `compiled` or `run`.
    """
    what = f"{program.name.lstrip('_')} could not be {doing}: out of memory."
    rows = f"{_largest_value(program)}{_largest_arguments(sigs, names)}"
    if (target := target_of(devices[0])) is not None:
        return _too_large(program, target.name, rows, error)
    return out_of_memory(f"{what}{rows}", error, devices)


def check_excess(program: Program, target: Target | None) -> None:
    """Raises ProgramTooLarge if an op needs more memory of a core than a machine has."""
    for eqn in walk(program) if target is not None else ():
        if eqn.op.excess is not None:
            types = [a.aval for a in eqn.invars]
            if reason := eqn.op.excess(eqn.op, types, eqn.params, target):
                failure = ProgramTooLarge(f"RESOURCE_EXHAUSTED: {reason}")
                note_line(failure, eqn.site)
                raise failure


def kernel_failed(failure: Failure) -> NotImplementedError:
    """The error for a kernel that the compiler of TPUs rejects."""
    error = NotImplementedError(
        f"a kernel cannot be compiled for TPUs. Mosaic's error: {failure.reason}"
    )
    if failure.place:
        error.add_note(f"The op was called at {failure.place}")
    return error


def _too_large(program: Program, machine: str, rows: str, error: BaseException) -> Exception:
    """The error for a program that its compiler rejects, as a device has too little memory."""
    if found := _SHARED.search(str(error)):
        sizes = [in_bytes(int(n)) for n in found.groups()]
        return ProgramTooLarge(
            f"RESOURCE_EXHAUSTED: {program.name.lstrip('_')} does not fit {machine!r}: a kernel "
            f"needs {sizes[0]} of shared memory, and {sizes[1]} are available. Use smaller blocks, "
            "or fewer stages: `params=CompilerParams(num_stages=2)`."
        )
    if found := _SCOPED.search(str(error)):
        n, limit = (f"{found[i]} {found[i + 1]}iB" for i in (1, 3))
        return ProgramTooLarge(
            f"RESOURCE_EXHAUSTED: {program.name.lstrip('_')} does not fit {machine!r}: a kernel "
            f"needs {n} of VMEM with the values of its body, and kernels have {limit}. Use smaller "
            "blocks, or raise the limit: `params=CompilerParams(vmem_limit_bytes=…)`."
        )
    sizes = [int(float(n) * _UNITS[unit]) for n, unit in _SIZE.findall(str(error))[:2]]
    needed, available = sizes if len(sizes) == 2 else (0, 0)
    reason = f"{str(error).splitlines()[0].rstrip('.')}."
    if available:
        reason = (
            f"it needs {in_bytes(needed)} of a device, and {in_bytes(available)} "
            f"are available: {in_bytes(needed - available)} too much."
        )
    failure = ProgramTooLarge(
        f"RESOURCE_EXHAUSTED: {program.name.lstrip('_')} does not fit {machine!r}: {reason}{rows} "
        "Shard arrays over more devices, recompute values with `shardwise.checkpoint`, use a "
        "smaller dtype, or compute in parts with `shardwise.lax.map`."
    )
    failure.needed, failure.available = needed, available
    return failure


def _largest_value(program: Program) -> str:
    rows = [(nbytes(v.aval), eqn) for eqn in walk(program) for v in eqn.outvars]
    if not rows:
        return ""
    _, eqn = max(rows, key=lambda row: row[0])
    largest = max([v.aval for v in eqn.outvars], key=nbytes)
    return f" Its largest value is {typed(largest)}, the result of {_named(eqn)}."


def _named(eqn: Equation) -> str:
    return f"[{eqn.op.name}] at {describe(eqn.site)}"


def _largest_arguments(sigs: Sequence[Signature], names: Sequence[str]) -> str:
    rows = [(s.type, names[i] if i < len(names) else f"argument {i}") for i, s in enumerate(sigs)]
    largest = sorted([row for row in rows if row[0].ndim], key=lambda row: -nbytes(row[0]))[:MOST]
    if not largest:
        return ""
    verb = "argument is" if len(largest) == 1 else "arguments are"
    return f" Its largest {verb} {joined([f'{name} of type {typed(t)}' for t, name in largest])}."
