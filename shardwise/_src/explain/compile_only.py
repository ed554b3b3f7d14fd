"""Compiles modules for absent devices: virtual ones of another process, which exits after the
compilation. That process runs `python -m shardwise._src.explain.compile_only FOLDER`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shardwise._src.lowering.distributed_functions import TARGET as MATRICES
from shardwise._src.lowering.emitter import Emitter
from shardwise._src.runtime.compiler import lapack, partitioner
from shardwise._src.runtime.compiler.offline import Inspection, inspected_of_virtual_devices
from shardwise._src.runtime.compiler.partitioner_callbacks import TARGET as QUESTIONS


def inspected_elsewhere(
    text: str,
    count: int,
    free_outputs: Sequence[bool],
    timeout: float,
    overrides: Sequence[tuple[str, Any]] = (),
) -> Inspection:
    """Compiles a module for `count` virtual devices in another process.

    Raises:
      TimeoutError: the compilation exceeds the timeout.
      RuntimeError: the compilation fails; has XLA's message.
      NotImplementedError: the compilation would need functions of this process.
    """
    if QUESTIONS in text:
        raise NotImplementedError(
            "the program is partitioned by Python functions (`custom_partitioning`), which exist "
            "in this process only, so it cannot be compiled for devices that are not attached. Use "
            "shardings over attached devices."
        )
    with tempfile.TemporaryDirectory(prefix="shardwise-explain-") as name:
        folder = Path(name)
        asked = {"count": count, "free_outputs": list(free_outputs), "overrides": list(overrides)}
        folder.joinpath("module").write_text(text)
        folder.joinpath("asked").write_text(json.dumps(asked))
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SHARDWISE_PROCESS")}
        env = {**kept, "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}
        line = [sys.executable, "-m", "shardwise._src.explain.compile_only", name]
        try:
            done = subprocess.run(
                line, env=env, capture_output=True, text=True, timeout=timeout, check=False,
                cwd=Path(__file__).parents[3], stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise TimeoutError(
                f"compiling a program for {count} abstract devices took more than {timeout:g} s."
            ) from None
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
            raise RuntimeError(
                f"the program could not be compiled for {count} abstract devices: {last}"
            )
        return Inspection(
            folder.joinpath("text").read_text(),
            json.loads(folder.joinpath("sizes").read_text()),
            folder.joinpath("buffers").read_bytes(),
            folder.joinpath("compiled").read_bytes(),
        )


def _main(folder: Path) -> None:
    lapack.register()
    partitioner.register(MATRICES, Emitter.partitioned_module)
    asked = json.loads(folder.joinpath("asked").read_text())
    text = folder.joinpath("module").read_text()
    overrides = [(name, value) for name, value in asked["overrides"]]
    found = inspected_of_virtual_devices(text, asked["count"], asked["free_outputs"], overrides)
    folder.joinpath("text").write_text(found.text)
    folder.joinpath("sizes").write_text(json.dumps(found.sizes))
    folder.joinpath("buffers").write_bytes(found.buffers)
    folder.joinpath("compiled").write_bytes(found.module)
    os._exit(0)  # clients that simulate several processes do not exit cleanly


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
