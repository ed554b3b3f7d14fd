"""The demo, small: it trains, stops on Ctrl-C, continues, and does not depend on the mesh."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.flags import xla_flags

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SMALL = "--layers 2 --width 32 --heads 2 --context 32 --batch 16 --steps 10".split()
PATCHED = """
import os, signal, sys
import gpt

windows = gpt.training_windows

def stopping(corpus, step, *rest):
    if step == 5:
        os.kill(os.getpid(), signal.SIGINT)  # Ctrl-C while the step runs
    return windows(corpus, step, *rest)

"""
STOP_AT_STEP_5 = (
    PATCHED
    + """
gpt.training_windows = stopping
sys.exit(gpt.main(sys.argv[1:]))
"""
)
NO_COMPARISON = "gpt.check_against_one_device = lambda *args: None"
WHOLE_AND_STOPPED = (
    PATCHED
    + f"""
{NO_COMPARISON}
whole, stopped, *words = sys.argv[1:]
assert gpt.main(["--save", whole, *words]) == 0
gpt.training_windows = stopping
sys.exit(gpt.main(["--save", stopped, *words]))
"""
)
CONTINUED = f"""
import sys
import gpt

{NO_COMPARISON}
sys.exit(gpt.main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A folder for compiled programs, so that each is compiled once for all runs of this module."""
    return tmp_path_factory.mktemp("compiled")


def run(cache, *arguments, code=None, status=0):
    """The output of the demo."""
    program = ["-c", code] if code else [str(EXAMPLES / "gpt.py")]
    path = os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")])
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "XLA_FLAGS": xla_flags(),
        "SHARDWISE_ENABLE_COMPILATION_CACHE": "1",
        "SHARDWISE_COMPILATION_CACHE_DIR": str(cache),
        "SHARDWISE_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", *program, *map(str, arguments)],
        capture_output=True, text=True, timeout=110, env=environment,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def state(path):
    with np.load(path) as file:
        return {name: file[name] for name in file.files if name != "facts"}


@pytest.fixture(scope="module")
def whole(cache, tmp_path_factory):
    """(output, saved state) of a run over eight devices."""
    path = tmp_path_factory.mktemp("whole") / "run.npz"
    return run(cache, "--save", path, "--mesh", "4x2", *SMALL), state(path)


def test_it_runs_over_eight_devices(whole):
    output, saved = whole
    assert "mesh of 8 devices (data: 4, model: 2)" in output
    assert "8 devices against one, largest absolute difference" in output
    assert "all-reduce" in output
    assert int(saved["step"]) == 10
    assert all(np.isfinite(leaf).all() for leaf in saved.values())


@pytest.mark.sweep
def test_one_device_gives_the_same_numbers(whole, cache, tmp_path):
    output = run(cache, "--save", tmp_path / "run.npz", "--mesh", "1x1", *SMALL)
    assert "one device: nothing to compare the step with" in output
    for name, leaf in state(tmp_path / "run.npz").items():
        np.testing.assert_allclose(leaf, whole[1][name], rtol=1e-2, atol=2e-4, err_msg=name)


@pytest.mark.sweep
def test_a_stopped_run_continues_to_the_same_end(cache, tmp_path):
    whole, path = tmp_path / "whole.npz", tmp_path / "run.npz"
    words = [whole, path, "--mesh", "4x2", *SMALL]
    output = run(cache, *words, code=WHOLE_AND_STOPPED, status=130)
    assert "stopped after step 6 of 10" in output.replace("\n", " ")
    assert int(state(path)["step"]) == 6
    output = run(cache, "--save", path, "--mesh", "4x2", code=CONTINUED)
    assert "continuing at step 6 of 10" in output
    wanted = state(whole)
    assert int(wanted["step"]) == 10
    for name, leaf in state(path).items():
        np.testing.assert_array_equal(leaf, wanted[name], err_msg=name)


@pytest.mark.sweep
def test_other_settings_than_the_saved_ones_are_refused(whole, cache, tmp_path):
    path = tmp_path / "run.npz"
    run(cache, "--save", path, "--mesh", "1x1", *SMALL, code=STOP_AT_STEP_5, status=130)
    command = [sys.executable, str(EXAMPLES / "gpt.py"), "--save", str(path), "--width", "64"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "holds an unfinished run with other settings: --width 64 (was 32)" in done.stderr
