"""`assert_fits`: checks in tests that a program fits the memory of a machine."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from shardwise._src.arrays.out_of_memory import is_exhausted
from shardwise._src.explain.machines import Machine, chosen
from shardwise._src.explain.program_report import TIMEOUT, explain
from shardwise._src.explain.report import Report
from shardwise._src.messages.formatting import in_bytes


def assert_fits(
    f: Callable[..., Any],
    *,
    machine: str | Machine | None = None,
    share: float = 1.0,
    timeout: float = TIMEOUT,
) -> Callable[..., Report]:
    """A function that checks that `f` fits the memory of a machine, without running it.

        assert_fits(step, machine="h100:8")(state, batch)

    Args:
      f: a function, as in `explain`.
      machine, timeout: as in `explain`.
      share: the fraction of a device's memory that the program may use.

    Returns:
      `(*args, **kwargs) → Report`, as in `explain`.

    Raises:
      AssertionError: by how much it does not fit, and its largest values.
      ValueError: if `share` is not between 0 and 1; ImportError: if the machine's own compiler is
        not installed.
    """
    if not 0 < share <= 1:
        raise ValueError(f"assert_fits: share must be between 0 and 1; got {share!r}.")
    if missing := chosen(machine).missing:
        raise ImportError(f"assert_fits: {missing}")
    explained = explain(f, machine=machine, timeout=timeout)

    @functools.wraps(f)
    def checked(*args: Any, **kwargs: Any) -> Report:
        try:
            report = explained(*args, **kwargs)
        except Exception as error:
            if is_exhausted(error):  # the compiler of the machine rejects it
                raise AssertionError(str(error).removeprefix("RESOURCE_EXHAUSTED: ")) from None
            raise
        available = int(share * report.machine.memory_bytes)
        if report.memory.peak > available:
            raise AssertionError(excess_message(report, available, share))
        return report

    return checked


def excess_message(report: Report, available: int, share: float = 1.0) -> str:
    """By how much a program does not fit `share` of a device, and its largest buffers."""
    m = report.memory
    part = "" if share == 1 else f" ({100 * share:g} % of its memory)"
    what = report.name
    if report.target not in ("", report.machine.name):
        what += f", compiled for {report.target!r},"
    text = (
        f"{what} does not fit {report.machine.name!r}: it needs {in_bytes(m.peak)} of a "
        f"device, and {in_bytes(available)}{part} are available: "
        f"{in_bytes(m.peak - available)} too much. Arguments take {in_bytes(m.arguments)}, results "
        f"{in_bytes(m.results)}, temporaries {in_bytes(m.temporaries)}."
    )
    largest = [f"\n  {in_bytes(b.bytes)} {b.kind}  {b.line}  {b.what}" for b in report.buffers[:3]]
    return text + "".join(["\nIts largest buffers:", *largest] if largest else [])
