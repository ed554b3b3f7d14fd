"""Programs over several processes that begin with the usual imports, and how they ended.

results = run_processes('print(sw.process_index(), np.ones(2).sum())', 2)
ended(results, [(0, "0 2.0\n"), (0, "1 2.0\n")])
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

from tests.helpers import processes

# One line, in place of the empty one at the start of a program: its other lines keep their numbers.
IMPORTS = (
    "import io, os, pickle, re, signal, sys, threading, time; from pathlib import Path; "
    "import numpy as np, ml_dtypes; import shardwise as sw, shardwise.numpy as jnp; "
    "from shardwise import lax; from shardwise.experimental import multihost_utils; "
    "from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P\n"
)
# For a launch: each process prints its number, the numbers of processes and devices, and a sum.
SUM = """
    import numpy as np
    import shardwise as sw
    import shardwise.numpy as snp
    from shardwise.sharding import NamedSharding, PartitionSpec as P
    split = NamedSharding(sw.make_mesh((sw.device_count(),), ("x",)), P("x"))
    x = sw.make_array_from_callback((8,), split, lambda i: np.arange(8.0)[i])
    print(sw.process_index(), sw.process_count(), sw.device_count(), float(sw.jit(snp.sum)(x)))
"""


def without_pids(lines: list[str]) -> list[str]:
    """Lines of output, without the hosts and numbers of processes."""
    return [re.sub(r"\(host [^,]+, pid \d+\)", "(HERE)", line) for line in lines]


def run_processes(program: str, count: int, **options: Any) -> list[Any]:
    """`tests.helpers.processes.run_processes` for a program that begins with these imports."""
    body = textwrap.dedent(program).removeprefix("\n")
    return processes.run_processes(IMPORTS + body, count, **options)


def ended(results: list[Any], expected: list[Any]) -> str:
    """Asserts the exit statuses, or the pairs of exit status and output, of processes that may
    have failed; returns what they wrote to stderr."""
    errors = "\n".join(r.err for r in results)
    pairs = [(r.status, r.out) for r in results]
    found = pairs if isinstance(expected[0], tuple) else [status for status, _ in pairs]
    assert found == expected, errors
    return errors
