"""The busy loops of `make test-loaded` always end."""

import signal
import subprocess
import sys

import psutil

from tests.helpers.patience import until
from tools.loaded import ROOT, busy

PROGRAM = """
import time
from tools.loaded import busy
with busy(2) as loops:
    print(*[loop.pid for loop in loops], flush=True)
    time.sleep(10**4)
"""


def test_loops_end_with_what_they_disturb():
    with busy(2) as loops:
        assert [loop.poll() for loop in loops] == [None, None]
    assert [loop.returncode for loop in loops] == [-signal.SIGKILL] * 2


def test_loops_end_if_who_started_them_is_killed():
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        pids = list(map(int, process.stdout.readline().split()))
        process.kill()
    assert len(pids) == 2
    until(lambda: not any(map(psutil.pid_exists, pids)))
