"""Programs that join each other with `initialize`, each in a separate process, concurrently.

For example:

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
from pathlib import Path

from tests.helpers import patience

CLEAN = {
    k: v for k, v in os.environ.items() if not k.startswith(("SHARDWISE_", "JAX_", "SLURM_"))
} | {"SHARDWISE_PLATFORMS": "cpu", "SHARDWISE_NUM_CPU_DEVICES": "1"}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def run(*programs, during=None, env=None):
    """Runs programs concurrently, each in its own process; returns the output and error of each."""
    running = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for i, program in enumerate(programs):
                path = Path(folder, f"{i}.py")
                path.write_text(textwrap.dedent(program))
                with open(f"{path}.out", "w") as out, open(f"{path}.err", "w") as err:
                    running.append(
                        subprocess.Popen(
                            [sys.executable, str(path)],
                            env=CLEAN | (env or {}),
                            stdout=out,
                            stderr=err,
                            stdin=subprocess.DEVNULL,
                        )
                    )
            if during is not None:
                during(running)
            patience.until(
                lambda: all(p.poll() is not None for p in running),
                about=lambda: str(written(folder, len(programs))),
            )
        finally:
            for process in running:
                process.kill()
                process.wait()
        return written(folder, len(programs))


def written(folder, count):
    """The output and errors that each program has written so far."""
    return [
        tuple(Path(folder, f"{i}.py.{name}").read_text() for name in ("out", "err"))
        for i in range(count)
    ]


HEAD = """
    import sys
    import time
    from pathlib import Path
    import shardwise as sw
    def together(count):
        # Waits until so many programs are here, whose times then begin together.
        place = Path(__file__)
        place.with_suffix(".here").touch()
        while len([*place.parent.glob("*.here")]) < count:
            time.sleep(0.01)
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
