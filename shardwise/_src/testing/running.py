"""Compilation for the checks: many small functions of the same arguments as one program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.core.checker import check_program
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Program
from shardwise._src.ops.basis import broadcast_in_dim
from shardwise._src.running.eager import EAGER
from shardwise._src.running.executable import Executable
from shardwise._src.running.plan import build
from shardwise._src.runtime.pytree import flatten
from shardwise._src.testing.sample import Report
from shardwise._src.transforms.stage import stage
from shardwise._src.types.array_type import ArrayType


def staged(fun: Callable, types: Sequence[ArrayType], name: str) -> Program:
    """`fun(*tracers) → list` as a checked program."""
    program, captured = stage(fun, types, name=name, parent=EAGER)
    if captured:
        raise ValueError(f"{name} captured tracers from outside")
    check_program(program)
    return program


def compiled(program: Program, args: Sequence[Any], **plan: Any) -> Executable:
    """The program compiled for arrays of these types; a call returns a list of results."""
    tree = flatten([0] * len(program.outvars))[1]
    return build(program, [a._sig for a in args], out_tree=tree, quick=True, **plan)


def zeros(t: ArrayType) -> Any:
    return broadcast_in_dim(np.zeros((), t.dtype)[()], shape=t.shape, dims=())


def filled(values: Sequence[Any], types: Sequence[ArrayType], what: str) -> list[Any]:
    """Tangents or cotangents for values of the given types, with zeros for None."""
    out = []
    for v, t in zip(values, types, strict=True):
        came = type_of(v) if v is not None else t
        if came.shape != t.shape or came.dtype != t.dtype:
            raise TypeError(
                f"a {what} of type {came.str_short(True)} for a value of type {t.str_short(True)}"
            )
        out.append(zeros(t) if v is None else v)
    return out


class Bundle:
    """Named functions of the same arguments, compiled together.

    A function that cannot be staged or compiled is reported and skipped; the others still run.
    `add(..., quiet=True)` stores the error in `errors` instead of reporting it.
    """

    def __init__(self, report: Report, args: Sequence[Any]):
        self.report = report
        self.args = [EAGER.array(a) for a in args]
        self.types = [a.aval for a in self.args]
        self.programs: dict[str, Program] = {}
        self.errors: dict[str, Exception] = {}
        self._quiet: set[str] = set()
        self._exe: Executable | None = None

    def add(self, name: str, fun: Callable, *, quiet: bool = False) -> bool:
        if quiet:
            self._quiet.add(name)
        try:
            self.programs[name] = staged(fun, self.types, name)
        except Exception as error:
            self._failed(name, error)
            return False
        return True

    def _failed(self, name: str, error: Exception) -> None:
        self.programs.pop(name, None)
        self.errors[name] = error
        if name not in self._quiet:
            self.report.raised(name, error)

    def compile(self) -> Executable:
        """Compiles all functions as one program; on failure, finds out which ones fail."""
        try:
            self._exe = self._built(self.programs)
        except Exception:
            for name, program in list(self.programs.items()):
                try:
                    self._built({name: program})
                except Exception as error:
                    self._failed(name, error)
            self._exe = self._built(self.programs)
        return self._exe

    def _built(self, programs: dict[str, Program]) -> Executable:
        def everything(*args: Any) -> list[Any]:
            return [out for p in programs.values() for out in p(*args)]

        return compiled(staged(everything, self.types, "check"), self.args)

    def run(self, args: Sequence[Any] | None = None) -> dict[str, list[np.ndarray]]:
        """Each function's results, for other arguments of the same types if given."""
        exe = self.compile() if self._exe is None else self._exe
        arrays = self.args if args is None else [EAGER.array(a) for a in args]
        outs = iter(exe(arrays))
        return {
            name: [np.asarray(next(outs)) for _ in program.outvars]
            for name, program in self.programs.items()
        }
