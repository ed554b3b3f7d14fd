"""Libraries for JAX, unmodified: each program has the same results with this library as with jax.

The libraries are those of `pip install 'shardwise[ecosystem]'`; `make ecosystem` runs these tests.
"""

import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.everyday import everyday

PROGRAMS = Path(__file__).with_name("programs")
ROOT = Path(__file__).parents[2]
NEEDS = {
    "optax_train": ("optax",),
    "haiku_mlp": ("haiku", "optax"),
    "blackjax_nuts": ("blackjax",),
    "equinox_mlp": ("equinox", "optax"),
    "flax_linen": ("flax", "optax"),
    "flax_resume": ("flax", "optax", "orbax"),
    "flax_nnx": ("flax", "optax"),
    "numpyro_nuts": ("numpyro",),
    "einops_jaxtyping": ("einops", "jaxtyping"),
    "interpreters": (),
    "chex_asserts": ("chex",),
    "distrax_flow": ("distrax", "optax", "scipy"),
    "optax_kinds": ("optax",),
    "haiku_scan": ("haiku", "jmp", "optax"),
    "orbax_checkpoint": ("orbax",),
    "flax_lifted": ("flax", "optax", "orbax"),
    "flax_nnx_lifted": ("flax",),
    "equinox_sharded": ("equinox", "optax"),
    "lineax_solve": ("lineax",),
    "optimistix_fit": ("optimistix", "optax"),
    "diffrax_ode": ("diffrax", "optax", "optimistix"),
}
# Floating-point numbers agree to CLOSE. This table lists exceptions, tolerances and reasons, for a
# program or for those of its lines that begin with a word.
CLOSE = 1e-5
MONTE_CARLO = 5e-2  # chains that diverge after hundreds of steps; programs assert known properties
WIDE = 1e-3  # weights after Adam's steps with gradients that are nearly 0
CLOSE_IN = {
    "equinox_sharded": WIDE,
    "blackjax_nuts mean": MONTE_CARLO,
    "blackjax_nuts deviation": MONTE_CARLO,
    "numpyro_nuts mean": MONTE_CARLO,
    "numpyro_nuts deviation": MONTE_CARLO,
}
TINY = 1e-6  # numbers that cancel to about zero
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def test_every_program_is_run():
    assert {p.stem for p in PROGRAMS.glob("*.py")} == set(NEEDS)


def run(name, *way):
    """The output of a program, and its duration in seconds."""
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


def agree(found, wanted, name=""):
    """Asserts that two outputs are equal: words and integers exactly, other numbers nearly."""
    assert NUMBER.sub("#", found) == NUMBER.sub("#", wanted)
    for line, model in zip(found.splitlines(), wanted.splitlines(), strict=True):
        whole = CLOSE_IN.get(name, CLOSE)
        close = CLOSE_IN.get(f"{name} {model.partition(' ')[0]}", whole)
        for x, y in zip(NUMBER.findall(line), NUMBER.findall(model), strict=True):
            near = abs(float(x) - float(y)) <= TINY + close * abs(float(y))
            assert near if {".", "e"} & {*x, *y} else x == y, f"{x} for {y}:\n{line}\n{model}"


def test_what_agrees():
    agree("loss 3 0.5 nan\n", "loss 3 0.500004 nan\n")
    agree("x [1e-07, 2e+20]", "x [0.0, 2.00001e+20]")
    agree("mean 3 0.51", "mean 3 0.5", "blackjax_nuts")
    refused = ["loss 3 0.50001", "loss 4 0.5", "loss 3 nan", "lost 3 0.5", "loss 3 0.5 1", "loss 3"]
    for found in refused:
        with pytest.raises(AssertionError):
            agree(found, "loss 3 0.5", "blackjax_nuts")
    with pytest.raises(AssertionError):
        agree("mean 100001", "mean 100000", "blackjax_nuts")


@pytest.mark.parametrize("name", everyday(NEEDS, 2))
def test_as_with_jax(name):
    missing = [n for n in ("jax", *NEEDS[name]) if importlib.util.find_spec(n) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: pip install 'shardwise[ecosystem]'")
    wanted, theirs = run(name)
    found, ours = run(name, "-m", "shardwise.compat")
    agree(found, wanted, name)
    print(f"{name}: {ours:.1f} s, with jax {theirs:.1f} s, ratio {ours / theirs:.2f}")
