"""Programs that join each other by `initialize`, each in a process of its own, at the same time.

    results = run(HEAD + "attempt('127.0.0.1:1', 2, 0)", HEAD + "attempt('127.0.0.1:1', 2, 1)")
    assert lines(results[0]) == ["joined"]
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

CLEAN = {
    k: v for k, v in os.environ.items() if not k.startswith(("SHARDWISE_", "JAX_", "SLURM_"))
} | {"SHARDWISE_PLATFORMS": "cpu", "SHARDWISE_NUM_CPU_DEVICES": "1"}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def run(*programs, timeout=30, during=None, env=None):
    """Runs programs at the same time, each by itself; gives the output and error of each."""
    running = []
    deadline = time.monotonic() + timeout
    with tempfile.TemporaryDirectory() as folder:
        try:
            for i, program in enumerate(programs):
                path = Path(folder, f"{i}.py")
                path.write_text(textwrap.dedent(program))
                with open(f"{path}.out", "w") as out, open(f"{path}.err", "w") as err:
                    running.append(subprocess.Popen(
                        [sys.executable, str(path)], env=CLEAN | (env or {}), stdout=out,
                        stderr=err, stdin=subprocess.DEVNULL,
                    ))
            if during is not None:
                during(running)
            while (late := any(p.poll() is None for p in running)) and time.monotonic() < deadline:
                time.sleep(0.02)
        finally:
            for process in running:
                process.kill()
                process.wait()
        told = [
            tuple(Path(folder, f"{i}.py.{name}").read_text() for name in ("out", "err"))
            for i in range(len(programs))
        ]
        assert not late, f"not all ended within {timeout} s: {told}"
        return told


HEAD = """
    import sys
    import shardwise as sw
    def attempt(*args, **kwargs):
        try:
            sw.distributed.initialize(*args, **kwargs)
            print("joined")
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
"""


def lines(result) -> list[str]:
    out, err = result
    found = [line for line in out.splitlines() if not line.startswith("[Gloo] Rank")]
    assert "Traceback" not in err, err
    return found
