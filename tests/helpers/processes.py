"""Programs in other processes, with timeouts scaled by the load of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from shardwise import testing
from tests.helpers.patience import seconds, until

# For programs: the number of reports from this process to the coordinator since the call. At
# two, its actions before the call and the line that waits have been reported.
REPORTS = """
def reports():
    from shardwise._src.distributed.start import here
    watch, sent = here().watch, []
    report = watch._beat
    watch._beat = lambda now: (report(now), sent.append(now))
    return sent
"""
TIMES = {"timeout": 60, "heartbeat": 20, "patience": 30, "deadline": 600, "arrival": 60}


def until_written(process: Any, text: str, file: int = 1) -> None:
    """Waits for a text in the output (1) or the errors (2) of a running process, which are files."""

    def found() -> bool:
        assert process.poll() is None, f"it has ended with {process.poll()}, without {text!r}"
        return text in Path(f"/proc/{process.pid}/fd/{file}").read_text()

    until(found)


def run_processes(program: str | Path, count: int, **options: Any) -> list[Any]:
    """As `shardwise.testing.run_processes`; its timeouts are for an idle machine."""
    times = {name: seconds(options.pop(name, n)) for name, n in TIMES.items()}
    return testing.run_processes(program, count, **times, **options)


def python(program: str, *arguments: Any, **env: str) -> subprocess.CompletedProcess[str]:
    """A process that has run a program, a text that may be indented; `env` is added to its own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds(60),
        check=False,
    )
