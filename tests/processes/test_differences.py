"""Programs with one name, at one line, that differ: the error states how."""

import difflib
import re
from pathlib import Path

import pytest

from tests.helpers.everyday import everyday
from tests.helpers.processes import run_processes

ONE_LINE = """
import sys
import numpy as np
import shardwise as sw, shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P

me = sw.process_index()
devices = sw.devices()[::-1] if me and sys.argv[1] == "devices" else sw.devices()
s = NamedSharding(Mesh(devices, ("x",)), P("x"))
rows = np.ones((2 + me if sys.argv[1] == "shapes" else 2, 3), np.float32)
x = sw.make_array_from_process_local_data(s, rows)
n = 2.0 + me if sys.argv[1] == "constants" else 2.0
total = sw.jit(lambda x: (x * n).sum())
print(float(total(x)))
"""
SAME = (
    " Both are of type f32[4@x,3] -> f32[]: constants, static arguments, options or the order of "
    "devices differ."
)
FOUND = {
    "shapes": (", of type f32[4@x,3] -> f32[]", ", of type f32[6@x,3] -> f32[]", ""),
    "constants": ("", "", SAME),
    "devices": ("", "", SAME),
}
DIFFERS = {"constants": "dense<2.0>", "devices": "over devices 0, 2048"}  # from a line of process 0


@pytest.mark.parametrize("what", everyday(list(FOUND), 1))
def test_how_programs_differ(what, tmp_path):
    first, second, both = FOUND[what]
    results = run_processes(
        ONE_LINE,
        2,
        args=[what],
        expect=None,
        timeout=60,
        env={"SHARDWISE_FLIGHT_RECORDER_DIR": str(tmp_path)},
    )
    line = r"\S+:\d+ \(<module>\)"
    says = (
        r"shardwise: the processes do not run the same program: process 0 \(host \S+, pid \d+\) "
        rf"reaches program '_lambda_' at {line}{re.escape(first)}; process 1 \(host \S+, pid "
        rf"\d+\) reaches program '_lambda_' at {line}{re.escape(second)}\.{re.escape(both)} All "
        r"processes must launch the same programs over the same devices in the same order: look "
        r"for an `if` on process_index\(\), threads, sets or dicts in a different order, or "
        r"different data or flags\.\nThe last launches and waits of this process: \S+\nIts "
        r"program, to compare with that of the other process: (\S+)\n"
    )
    texts = []
    for result in results:
        found = re.search(says, result.err)
        assert result.status == 1 and found, result.err
        texts.append(Path(found[1]).read_text().splitlines())
    changed = [line for line in difflib.ndiff(*texts) if line[0] in "+-"]
    assert changed and any(DIFFERS.get(what, "4x3xf32") in line for line in changed), changed
