"""Compiles programs of the survey: batches of names on stdin, a line for each result.

echo '{"library": "shardwise", "platform": "tpu", "batches": [["numpy/numpy.sin"]]}' |
python -m tests.targets.survey_child
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

from tests.targets.survey_programs import MACHINES, At, Program

COMPILED, REFUSED, FAILED, INVALID = "compiled", "refused", "failed", "invalid"
_OF_XLA = ("XlaRuntimeError", "JaxRuntimeError", "MLIRError")


@cache
def _programs(of_ops: bool) -> dict[str, Program]:
    """Those of ops, or the others, by name: the samples of ops take long to import."""
    from tests.targets.survey_programs import functions, ops
    from tests.targets.survey_subjects import subjects

    found = {}
    for program in ops() if of_ops else itertools.chain(subjects(), functions()):
        assert program.key not in found and _is_of_ops(program.key) == of_ops, program.key
        found[program.key] = program
    return found


def _is_of_ops(name: str) -> bool:
    return name.partition("/")[0].split()[0] == "ops"


def every() -> dict[str, Program]:
    """All programs by name."""
    return _programs(False) | _programs(True)


def find(name: str) -> Program:
    return _programs(_is_of_ops(name))[name]


@cache
def place(library: str, platform: str, where: str) -> At:
    return At(library, MACHINES[platform][where])


class Made:
    """A program for a library and platform, traced and lowered."""

    def __init__(self, program: Program, library: str, platform: str):
        at = place(library, platform, program.where)
        self.at, self.x64 = at, program.x64
        with at.root.enable_x64(program.x64):
            self.function, self.args, *options = program.make(at)
            self.options = options[0] if options else {}
            self.lowered = self._lowered(self.function, self.args, self.options)

    def _lowered(self, function: Any, args: Any, options: Any) -> Any:
        if not self.at.root.tree.leaves(args) and not options:  # nothing says where it runs
            options = {"out_shardings": self.at.sharding.SingleDeviceSharding(self.at.devices[0])}
        if hasattr(function, "lower"):
            return function.lower(*args)
        if mesh := options.get("set_mesh"):
            with self.at.root.set_mesh(mesh):
                return self.at.root.jit(function).lower(*args)
        return self.at.root.jit(function, **options).lower(*args)

    @property
    def alone(self) -> bool:
        """Whether it cannot be compiled together with others."""
        return bool(self.options) or hasattr(self.function, "lower") or not self.args

    def compile(self) -> Any:
        with self.at.root.enable_x64(self.x64):
            return self.lowered.compile()


def together(programs: list[Made]) -> None:
    """Compiles programs as one."""
    first = programs[0]
    if len(programs) == 1:
        first.compile()
        return
    functions = [p.function for p in programs]

    def run(args: Any) -> Any:
        return [f(*a) for f, a in zip(functions, args, strict=True)]

    with first.at.root.enable_x64(first.x64):
        first.at.root.jit(run).lower([p.args for p in programs]).compile()


def results(names: list[str], library: str, platform: str) -> Iterator[tuple[str, str, str]]:
    """(name, result, message) of programs, which are compiled together as far as possible."""
    ready: dict[tuple, list[tuple[str, Made]]] = {}
    for name in names:
        program = find(name)
        try:
            made = Made(program, library, platform)
        except Exception as error:
            yield name, _kind(error, program, library, platform), text_of(error)
            continue
        same = (name,) if made.alone else (made.x64, program.where, _meshes(made))
        ready.setdefault(same, []).append((name, made))
    for rows in ready.values():
        yield from _compiled(rows)


def _meshes(made: Made) -> int:
    """The number of devices of a program."""
    leaves = made.at.root.tree.leaves(made.args)
    return max([len(x.sharding.device_set) for x in leaves], default=1)


def _compiled(rows: list[tuple[str, Made]]) -> Iterator[tuple[str, str, str]]:
    try:
        together([made for _, made in rows])
    except Exception as error:
        if len(rows) == 1:
            yield rows[0][0], _compile_failure(error), text_of(error)
            return
        half = len(rows) // 2
        yield from _compiled(rows[:half])
        yield from _compiled(rows[half:])
        return
    for name, _ in rows:
        yield name, COMPILED, ""


def _compile_failure(error: Exception) -> str:
    """An error of XLA, or one that is raised here, which says what to do."""
    return FAILED if type(error).__name__ in _OF_XLA else REFUSED


def _kind(error: Exception, program: Program, library: str, platform: str) -> str:
    """Whether a program that cannot be lowered can be lowered for a CPU."""
    if platform == "cpu":
        return INVALID
    try:
        Made(program, library, "cpu")
    except Exception as on_cpu:
        if text_of(on_cpu) == text_of(error):
            return INVALID
    return REFUSED if library == "shardwise" else FAILED


def text_of(error: Exception) -> str:
    return re.sub(r"\s+", " ", f"{type(error).__name__}: {error}")[:2000]


def main() -> None:
    given = json.load(sys.stdin)
    warnings.simplefilter("ignore")
    import importlib

    library = importlib.import_module(given["library"])
    for where in MACHINES[given["platform"]]:  # a missing compiler is not a result
        place(given["library"], given["platform"], where)
    for number, batch in enumerate(given["batches"]):
        print(json.dumps({"start": number}), flush=True)
        for name, result, message in results(batch, given["library"], given["platform"]):
            print(json.dumps({"name": name, "result": result, "message": message}), flush=True)
        if number % 20 == 19:
            library.clear_caches()
    print(json.dumps({"end": True}), flush=True)


if __name__ == "__main__":
    main()
