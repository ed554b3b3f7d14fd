"""Writes docs/gpt_step.md: a report of the demo's training step on eight devices.

For example:

    python tools/gpt_step_page.py
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import shardwise as sw
from shardwise.explain import explain
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "gpt_step.md"
HEAD = """\
# What the demo's training step does

The report of one training step of [the demo](../examples/gpt.py), over eight devices: data parallel
along `data`, tensor parallel along `model`. `tools/gpt_step_page.py` writes this page;
[seeing.md](seeing.md#what-a-program-will-do) says how to read it. Each data-parallel device has
a copy of the weights: their gradients are summed over `data`, in one collective of many arrays.
Over `model`, each block sums the outputs of its two halves, forwards and backwards.

```text
"""


def report() -> Any:
    """The report of the step with the demo's own settings."""
    sys.path.insert(0, str(ROOT / "examples"))
    from gpt_model import Config, init_state, state_shardings, train_step

    config = Config()
    mesh = Mesh(np.array(sw.devices("cpu")[:8]).reshape(4, 2), ("data", "model"))
    shardings = state_shardings(config, mesh)
    state = sw.device_put(init_state(config), shardings)
    windows = sw.ShapeDtypeStruct(
        (config.batch, config.context + 1), np.int32, sharding=NamedSharding(mesh, P("data", None))
    )
    step = sw.jit(
        partial(train_step, config=config, mesh=mesh), donate_argnums=0,
        out_shardings=(shardings, NamedSharding(mesh, P())),
    )  # fmt: skip
    return explain(step)(state, windows)


if __name__ == "__main__":
    os.chdir(ROOT)
    os.environ["COLUMNS"] = "100"
    sw.config.update("num_cpu_devices", 8)
    PAGE.write_text(f"{HEAD}{report()}\n```\n", encoding="utf-8")
