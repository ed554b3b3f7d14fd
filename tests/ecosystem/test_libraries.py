"""Libraries for JAX, unmodified: each program gives with this library what it gives with jax.

The libraries are those of `pip install 'shardwise[ecosystem]'`; `make ecosystem` runs these tests.
"""

import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

PROGRAMS = Path(__file__).with_name("programs")
ROOT = Path(__file__).parents[2]
NEEDS = {
    "optax_train": ("optax",),
    "haiku_mlp": ("haiku", "optax"),
    "blackjax_nuts": ("blackjax",),
    "equinox_mlp": ("equinox", "optax"),
    "flax_linen": ("flax", "optax"),
    "flax_nnx": ("flax", "optax"),
    "numpyro_nuts": ("numpyro",),
    "einops_jaxtyping": ("einops", "jaxtyping"),
}
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")


def test_every_program_is_run():
    assert {p.stem for p in PROGRAMS.glob("*.py")} == set(NEEDS)


def run(name, *way):
    """What a program prints, and the seconds it takes."""
    flags = "--xla_force_host_platform_device_count=8"
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": paths}
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *way, str(PROGRAMS / f"{name}.py")], env=env,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, time.monotonic() - begin


@pytest.mark.parametrize("name", NEEDS)
def test_as_with_jax(name):
    missing = [n for n in ("jax", *NEEDS[name]) if importlib.util.find_spec(n) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: pip install 'shardwise[ecosystem]'")
    wanted, theirs = run(name)
    found, ours = run(name, "-m", "shardwise.compat")
    assert NUMBER.sub("#", found) == NUMBER.sub("#", wanted)
    numbers = [[float(x) for x in NUMBER.findall(text)] for text in (found, wanted)]
    np.testing.assert_allclose(*numbers, rtol=2e-2)
    print(f"{name}: {ours:.1f} s, with jax {theirs:.1f} s, ratio {ours / theirs:.2f}")
