"""Assertions about a program's communication, for tests: `assert_comm`."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise._src.base.errors import did_you_mean
from shardwise._src.explain.communication import KINDS
from shardwise._src.explain.device_axes import SubAxis
from shardwise._src.explain.machines import Machine
from shardwise._src.explain.program_report import TIMEOUT, explain
from shardwise._src.explain.rendering.report_phrases import over
from shardwise._src.explain.report import Report
from shardwise._src.explain.report_data import Communication
from shardwise._src.messages.formatting import join

Limit = int | str
_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
            "==": operator.eq, "": operator.eq}  # fmt: skip
_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
          "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}  # fmt: skip
_LIMIT = re.compile(r"\s*(<=|>=|==|<|>|)\s*(\d+\.?\d*|\.\d+)\s*([a-zA-Z]*)\s*")
_TOTALS = ("collectives", "bytes")
_NAMES = [kind.replace("-", "_") for kind in KINDS]
_KNOWN = [*_NAMES, *[f"{name}_bytes" for name in _NAMES], *_TOTALS]


def assert_comm(
    f: Callable[..., Any],
    *,
    machine: str | Machine | None = None,
    timeout: float = TIMEOUT,
    **limits: Limit,
) -> Callable[..., Report]:
    """A function that checks the communication of `f` for given arguments, without running it.

        assert_comm(step, all_gather=0, all_reduce_bytes="<4MiB")(state, batch)

    Args:
      f: a function, as in `explain`.
      machine, timeout: as in `explain`. CPU sends bf16 as f32; "h200" counts its bytes as bf16.
      limits: by collective kind, such as `all_gather`, how many one execution runs; by that name
        with `_bytes`, the bytes per device; `collectives` and `bytes` for all kinds together. A
        number, or a string with a comparison and a unit: "<=3", "<4MiB", ">0". Branches of `cond`
        and `switch` count as if all of them ran.

    Returns:
      `(*args, **kwargs) → Report`, as in `explain`.

    Raises:
      AssertionError: lists every violated limit and the lines that communicate.
      TypeError: for an unknown kind; ValueError: for a malformed limit, or a collective count with
        a unit.
    """
    explained = explain(f, machine=machine, timeout=timeout)
    for name, limit in limits.items():
        if name not in _KNOWN:
            raise TypeError(
                f"assert_comm: unknown limit {name!r}; limits are {join(_KNOWN)}."
                + did_you_mean(name, _KNOWN)
            )
        _read(name, limit)

    @functools.wraps(f)
    def checked(*args: Any, **kwargs: Any) -> Report:
        report = explained(*args, **kwargs)
        broken = [text for name, limit in limits.items() if (text := _broken(report, name, limit))]
        if broken:
            found = "".join(["\n  " + _row(c) for c in report.communication]) or " none"
            raise AssertionError(
                f"{report.name} does not communicate as expected: {'; '.join(broken)}. Its "
                f"communication:{found}"
            )
        return report

    return checked


def _read(name: str, limit: Limit) -> tuple[str, float]:
    """A comparison and a number."""
    if isinstance(limit, int | np.integer) and not isinstance(limit, bool):
        return "==", int(limit)
    found = _LIMIT.fullmatch(limit) if isinstance(limit, str) else None
    unit = found is not None and found[3] and found[3].upper() in _UNITS
    if unit and not name.endswith("bytes"):
        raise ValueError(
            f"assert_comm: {name}={limit!r} is a number of collectives, which takes no unit; "
            f"to limit bytes, use {'bytes' if name in _TOTALS else name + '_bytes'}."
        )
    if found is None or found[3].upper() not in _UNITS:
        raise ValueError(
            f"assert_comm: {name}={limit!r} is not a limit; pass an integer, or a string such as "
            "'<=3' or '<4MiB'."
        )
    return found[1] or "==", float(found[2]) * _UNITS[found[3].upper()]


def _broken(report: Report, name: str, limit: Limit) -> str:
    """Describes the violation; '' if the limit holds."""
    compare, wanted = _read(name, limit)
    kind = name.removesuffix("_bytes")
    if name == "bytes":
        found = report.bytes()
    elif name == "collectives":
        found = sum([report.count(k) for k in KINDS])
    else:
        found = report.bytes(kind) if name != kind else report.count(kind)
    meant = kind.replace("_", "-")
    known = all([c.known for c in report.communication if name in _TOTALS or c.kind == meant])
    if not known and compare in ("<", "<=", "=="):
        return f"{name} is unknown, because a loop's length is; expected {limit!r}"
    holds = _COMPARE[compare](found, wanted)
    return "" if holds else f"{name} is {found}; expected {limit!r}"


def _row(c: Communication) -> str:
    parts = "; ".join([a.description for a in c.axes or () if isinstance(a, SubAxis)])
    where = f"{over(c)} ({parts})" if parts else over(c)
    return f"{c.line}: {c.kind} over {where}, {c.count} x, {c.bytes} B: {c.call}: {c.why}"
