"""Tuning: the best of several variants of a kernel, measured on the device that runs it.

    f = tune(make, {"rows": [8, 16, 32]})    # make(rows=8) returns a function of arrays
    f(x)                                     # the first call with these types measures
    print(f.best(x))                         # what was measured, and what was rejected

The result is stored next to compiled programs (compiling/disk_cache.py), so that other processes do
not measure again. Nothing is measured while a function is traced.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.base.context import current
from shardwise._src.base.errors import KernelError
from shardwise._src.base.lazy import public
from shardwise._src.compiling.disk_cache import disk_cache, key_of
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.infer import type_of
from shardwise._src.explain.launches.launch_report import reports_of
from shardwise._src.explain.machines import Machine, chosen, machine_of
from shardwise._src.explain.program_report import explain
from shardwise._src.explain.rendering.report_phrases import seconds_text
from shardwise._src.jit.jit import jit
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.formatting import columns, short_repr
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.placement.device_put import block_until_ready
from shardwise._src.runtime.compiler.fingerprint import fingerprint
from shardwise._src.runtime.compiler.modules import compile_options
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transfers.transfer import default_place
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.tree.functions import map as tree_map
from shardwise._src.types.dtypes import finfo, is_inexact
from shardwise._version import __version__

Timer = Callable[[Callable[[], Any]], float]
AGAIN = "the kernel is tuned again"


@public("shardwise.kernels")
@dataclass(frozen=True)
class Candidate:
    """A variant of a kernel.

    choice:   the arguments that it was made with.
    seconds:  the median of its runs; None if it was not measured.
    estimate: the seconds of a model; None if it could not be staged.
    rejected: why it was not measured; "" if it was.
    """

    choice: Mapping[str, Any]
    seconds: float | None = None
    estimate: float | None = None
    rejected: str = ""


@public("shardwise.kernels")
@dataclass(frozen=True)
class Tuning:
    """The variants of a kernel, best first: those that were measured, then those that were not.

    name: of the kernel. device: its kind, or the machine of the estimates.
    """

    name: str
    device: str
    candidates: tuple[Candidate, ...]

    @property
    def choice(self) -> Mapping[str, Any]:
        """The arguments of the best variant."""
        return self.candidates[0].choice

    @property
    def seconds(self) -> float | None:
        """The median time of the best variant; None if nothing was measured."""
        return self.candidates[0].seconds

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [(*self.choice, "measured", "estimate", "")]
        for c in self.candidates:
            times = ["-" if s is None else seconds_text(s) for s in (c.seconds, c.estimate)]
            rows.append((*map(str, c.choice.values()), *times, c.rejected))
        table = columns(rows, "<" * len(self.choice) + ">><")
        return "\n".join([f"{self.name} on {self.device}", *["  " + line for line in table]])


def elapsed(run: Callable[[], Any]) -> float:
    """The seconds of one run."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


@dataclass(eq=False, repr=False)
class Tuned:
    """A function with variants, which runs the best one: the result of `tune`."""

    make: Callable[..., Any]
    choices: Sequence[Mapping[str, Any]]
    keep: int
    repeats: int
    tolerance: float | None
    timer: Timer

    def __post_init__(self) -> None:
        self._functions = _functions(self.make, self.choices)
        self._found: dict[Any, Tuning] = {}

    @hides_frames
    def __call__(self, *args: Any) -> Any:
        return self._functions[self.choices.index(self.best(*args).choice)]()(*args)

    @hides_frames
    def best(self, *args: Any) -> Tuning:
        """The variants for arguments of these types, the one that calls run first.

        Measures them once. While a function is traced, and with `ShapeDtypeStruct`s, nothing is
        measured: the result is that of an earlier measurement for these types, also of another
        process, or else the order by the model.

        Raises:
          ValueError: if no variant can run. KernelError: if two variants have different results.
        """
        leaves, tree = flatten(args)
        is_known = current().interpreter is eval_trace() and not any(
            isinstance(x, Tracer | ShapeDtypeStruct) for x in leaves
        )
        device = _device_of(leaves)
        key = tree, tuple(map(type_of, leaves)), device.device_kind
        found = self._found.get((key, True)) or self._found.get((key, is_known))
        if found is None:
            found, is_measured = self._looked_up(args, leaves, device, is_known)
            self._found[key, is_measured] = found
        return found

    def _looked_up(
        self, args: Any, leaves: Sequence[Any], device: Any, is_known: bool
    ) -> tuple[Tuning, bool]:
        """The result for arguments, and whether it was measured."""
        machine, name, files = machine_of(None, device), name_of(self.make), disk_cache()
        found = _ranked(self._functions, self.choices, args, machine)
        rows = [c for c, _ in found]
        variants = [str(self.keep), *map(repr, self.choices), *[text for _, text in found]]
        key = _key(variants, leaves, device)
        stored = None if files is None else files.read(key, AGAIN)
        if stored is not None:
            pairs = zip(self.choices, json.loads(stored), strict=True)
            rows = [Candidate(choice, *row) for choice, row in pairs]
        elif not is_known:
            return Tuning(name, machine.name, _ordered(name, rows)), False
        else:
            rows = self._measured(name, rows, args)
            if files is not None:
                data = [(c.seconds, c.estimate, c.rejected) for c in rows]
                files.write(key, json.dumps(data).encode())
        return Tuning(name, device.device_kind, _ordered(name, rows)), True

    def _measured(self, name: str, rows: list[Candidate], args: Any) -> list[Candidate]:
        """Runs the variants that the model prefers, and checks that their results agree."""
        usable = [i for i, c in enumerate(rows) if not c.rejected]
        for i in sorted(usable, key=lambda i: rows[i].estimate or 0.0)[self.keep :]:
            rows[i] = replace(rows[i], rejected="slower by the model")
        first, runs = None, {}
        for i in [i for i in usable if not rows[i].rejected]:
            run = functools.partial(lambda f: block_until_ready(f(*args)), self._functions[i]())
            try:
                result = [np.asarray(x) for x in flatten(run())[0]]
            except Exception as error:
                rows[i] = replace(rows[i], rejected=_reason(error))
                continue
            first = first or (i, result)
            _check_equal(name, self.choices, first, (i, result), self.tolerance)
            runs[i] = run
        # interleaved, so that all see the same load
        times = [[self.timer(run) for run in runs.values()] for _ in range(self.repeats)]
        for i, seconds in zip(runs, zip(*times, strict=True), strict=True):
            rows[i] = replace(rows[i], seconds=statistics.median(seconds))
        return rows


def tune(
    make: Callable[..., Any],
    choices: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]],
    *,
    keep: int = 8,
    repeats: int = 7,
    tolerance: float | None = None,
    timer: Timer = elapsed,
) -> Tuned:
    """A function that runs the fastest variant of a kernel for the types of its arguments.

    Args:
      make: a function of the choice that returns a function of arrays: `make(rows=8)`. Or a
        function of arrays whose further arguments are the choice: `f(x, rows=8)`.
      choices: a list for each argument, of which all combinations are tried; or a list of dicts.
      keep: how many are measured: those that the model of `report` estimates to be the fastest.
      repeats: how often each runs.
      tolerance: how much results may differ from those of the first variant, relative to the
        largest element; by default the square root of the dtype's epsilon. Integers must be equal.
      timer: runs a function without arguments, which waits for its results, and returns seconds.

    Returns:
      A function of arrays; `f.best(*args)` is the `Tuning` of their types.

    Raises:
      TypeError, ValueError: for other choices. At a call, ValueError if no variant can run, and
      KernelError if the results of two variants differ.
    """
    listed = _listed("tune", make, choices)
    for what, n in (("keep", keep), ("repeats", repeats)):
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise ValueError(f"kernels.tune: {what} is a positive integer; got {short_repr(n)}.")
    return Tuned(make, listed, keep, repeats, tolerance, timer)


def rank(
    make: Callable[..., Any],
    choices: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]],
    *,
    machine: str | Machine,
) -> Callable[..., Tuning]:
    """A function that orders the variants of a kernel by estimates for a machine; nothing runs.

    make, choices: as in `tune`.
    machine: a name or a `Machine`, for the model of `report`. With a number of devices, such as
      "h100:1", each variant is also compiled by the machine's own compiler, if that is installed,
      and estimates are those of `explain`; what cannot be compiled is rejected.

    Returns:
      `(*args) → Tuning`; the arguments are arrays or `ShapeDtypeStruct`s.

    Raises:
      TypeError, ValueError: for other choices and unknown machines; at a call, ValueError if no
      variant can be used.
    """
    listed, asked = _listed("rank", make, choices), chosen(machine)
    functions = _functions(make, listed)

    @hides_frames
    def of(*args: Any) -> Tuning:
        rates = asked.machine or machine_of(machine, None)
        found = [c for c, _ in _ranked(functions, listed, args, rates)]
        for i, c in enumerate(found):
            if asked.target is not None and not c.rejected:
                try:
                    seconds = explain(functions[i](), machine=machine)(*args).seconds.total
                    found[i] = replace(c, estimate=seconds)
                except Exception as error:
                    found[i] = replace(c, rejected=_reason(error))
        how = f", by the model: {asked.missing}" if asked.missing else ""
        return Tuning(name_of(make), rates.name + how, _ordered(name_of(make), found))

    return of


# -- variants --


def _listed(who: str, make: Any, choices: Any) -> list[dict[str, Any]]:
    if not callable(make):
        raise TypeError(
            f"kernels.{who}: make is a function that returns a kernel; got {short_repr(make)}."
        )
    if isinstance(choices, Mapping) and all(isinstance(v, list | tuple) for v in choices.values()):
        rows = itertools.product(*choices.values())
        listed = [dict(zip(choices, row, strict=True)) for row in rows]
    elif isinstance(choices, list | tuple) and all(isinstance(c, Mapping) for c in choices):
        listed = [dict(c) for c in choices]
    else:
        raise TypeError(
            f"kernels.{who}: choices is a dict from names of arguments to lists of values, or a "
            f"list of dicts; got {short_repr(choices)}."
        )
    if not listed or any([*c] != [*listed[0]] for c in listed):
        problem = "there are none" if not listed else "some have other names than the first"
        raise ValueError(f"kernels.{who}: choices must have the same names; {problem}.")
    return listed


def _functions(
    make: Callable[..., Any], choices: Sequence[Mapping[str, Any]]
) -> list[Callable[[], Any]]:
    """The variants, each made when it is first requested: make(**choice), or make with these
    arguments, if it has others that are required."""

    def variant(choice: Mapping[str, Any]) -> Any:
        rows = inspect.signature(make).parameters.values()
        rows = [p for p in rows if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        is_complete = {p.name for p in rows if p.default is p.empty} <= {*choice}
        return jit(make(**choice) if is_complete else functools.partial(make, **choice))

    return [functools.cache(functools.partial(variant, choice)) for choice in choices]


def _ranked(
    functions: Sequence[Any], choices: Sequence[Any], args: Any, machine: Machine
) -> list[tuple[Candidate, str]]:
    """The variants with the estimates of the model, and the texts of their programs."""
    types = tree_map(ShapeDtypeStruct.like, args)
    values = [None if isinstance(x, Tracer) else x for x in flatten(args)[0]]
    found = []
    for function, choice in zip(functions, choices, strict=True):
        try:
            program = function().trace(*types).program
            reports = reports_of(program, machine, values)
        except Exception as error:
            found.append((Candidate(choice, rejected=_reason(error)), ""))
            continue
        advice = [r.advice for r in reports if r.is_impossible]
        seconds = sum([r.count * r.seconds for r in reports])
        row = Candidate(choice, estimate=seconds, rejected=advice[0] if advice else "")
        found.append((row, str(program)))
    return found


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _ordered(name: str, rows: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """The usable variants first, the fastest first."""
    if all(c.rejected for c in rows):
        reasons = "\n".join([f"  {dict(c.choice)}: {c.rejected}" for c in rows])
        raise ValueError(f"kernels: no variant of {name} can be used.\n{reasons}")

    def order(c: Candidate) -> Any:
        return bool(c.rejected), c.seconds is None, c.seconds or 0.0, c.estimate or 0.0

    return tuple(sorted(rows, key=order))


def _check_equal(
    name: str, choices: Sequence[Any], first: Any, other: Any, tolerance: float | None
) -> None:
    (i, wanted), (j, found) = first, other
    for number, (a, b) in enumerate(zip(wanted, found, strict=False)):
        what, t = f"result {number}", type_of(a).str_short(True)
        if (a.shape, a.dtype) != (b.shape, b.dtype) or len(wanted) != len(found):
            difference = f"is {type_of(b).str_short(True)} instead of {t}"
        elif (count := _different(a, b, tolerance)) == 0:
            continue
        else:
            difference = f"{t}, differs in {count} of {a.size} elements"
        raise KernelError(
            f"kernels.tune: the variants {choices[i]} and {choices[j]} of {name} have other "
            f"results: {what}, {difference}. Correct the kernel, or pass a `tolerance`."
        )


def _different(a: np.ndarray, b: np.ndarray, tolerance: float | None) -> int:
    if not is_inexact(a.dtype):
        return int((a != b).sum())
    allowed = float(finfo(a.dtype).eps) ** 0.5 if tolerance is None else tolerance
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    largest = np.abs(a[np.isfinite(a)]).max(initial=0.0)
    near = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= allowed * largest)
    return int((~near).sum())


# -- files --


def _device_of(leaves: Sequence[Any]) -> Any:
    """The device of the arguments, or the default one."""
    for x in leaves:
        if getattr(x, "committed", False) and not isinstance(x, Tracer):
            return min(x.devices(), key=lambda d: d.id)
    return default_place().devices[0]


def _key(texts: Sequence[str], leaves: Sequence[Any], device: Any) -> str:
    """What a result depends on: the library, the device, the variants and their programs."""
    types = [type_of(x).str_short(True) for x in leaves]
    parts = ["tuning 1", __version__, device.device_kind, *types, *texts]
    found = fingerprint((device,), compile_options((device,)))
    return key_of([*[part.encode() for part in parts], *found])
