"""The demo in several processes: the numbers of one, also after a restart and after Ctrl-C."""

import signal
from pathlib import Path

import numpy as np
import pytest

from shardwise import checkpoints
from shardwise.tree_util import keystr
from shardwise.tree_util import tree_flatten_with_path as flatten_with_path
from tests.helpers.everyday import everyday
from tests.helpers.flags import xla_flags
from tests.helpers.launching import Launch

pytestmark = pytest.mark.processes

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SMALL = "--layers 1 --width 16 --heads 2 --context 16 --batch 8 --steps 10 --save-every 4".split()
PROGRAM = f"""
    import os, signal, sys, time
    sys.path.insert(0, {str(EXAMPLES)!r})
    import gpt

    gpt.SAMPLE_BYTES = 4
    if "unchecked" in sys.argv:
        gpt.check_against_one_device = lambda *args: None
    validation, training = gpt.validation_windows, gpt.training_windows
    gpt.validation_windows = lambda *args: list(validation(*args))[:2]

    def windows(corpus, step, *rest):
        if step == 6 and os.environ["SHARDWISE_GENERATION"] == "0":
            if gpt.sw.process_index() == gpt.sw.process_count() - 1:
                print("at step 6", flush=True)
                DISTURB
        return training(corpus, step, *rest)

    gpt.training_windows = windows
    interrupts, enter = [], gpt.Interrupt.__enter__
    gpt.Interrupt.__enter__ = lambda self: interrupts.append(self) or enter(self)
    sys.exit(gpt.main([word for word in sys.argv[1:] if word != "unchecked"]))
"""
UNTIL_STOPPED = "while not interrupts[-1].asked: time.sleep(0.01)"


def demo(path, *options, disturb="pass", words=()):
    """A launch of the demo. disturb: code that its last process runs once, at step 6."""
    words = [*options, "{}", *SMALL, *words, "--save", str(path)]
    env = {
        "SHARDWISE_ENABLE_COMPILATION_CACHE": "1",
        "SHARDWISE_COMPILATION_CACHE_DIR": str(path.parents[1] / "compiled"),
        "SHARDWISE_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "COLUMNS": "200",
        "XLA_FLAGS": xla_flags(0, "--xla_backend_optimization_level=0"),
    }
    return Launch(*words, source=PROGRAM.replace("DISTURB", disturb), env=env)


def state(path):
    if path.suffix != ".npz":
        leaves = flatten_with_path(checkpoints.restore(path))[0]
        return {keystr(key, simple=True, separator="/"): leaf for key, leaf in leaves}
    with np.load(path) as file:
        return {name: file[name] for name in file.files if name != "facts"}


def same(path, other):
    one, two = state(path), state(other)
    assert one.keys() == two.keys() and int(one["step"]) == 10
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def losses(lines):
    (line,) = [line for line in lines if "validation before" in line]
    return line.partition("; entropy")[0]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """(losses, path of the state) of a run in one process over eight devices."""
    path = tmp_path_factory.mktemp("alone") / "run.npz"
    with demo(path, "-n", "1", words=["unchecked"]) as running:
        done = running.done()
    assert done.status == 0, done.err
    return losses(done.out), path


@pytest.mark.sweep
def test_one_process(alone):
    assert int(state(alone[1])["step"]) == 10


def unharmed(alone, path):
    with demo(path, "-n", "2", "--devices-per-process", "4") as running:
        done = running.done()
    assert (done.status, done.err, done.left) == (0, [], [])
    assert {line[:3] for line in done.out if "at step 6" not in line} == {"[0]"}
    assert any("8 devices against one" in line for line in done.out)
    assert losses(done.out) == alone[0]


def killed(alone, path):
    kill = "os.kill(os.getpid(), signal.SIGKILL)"
    with demo(path, "-n", "2", "--restarts", "1", disturb=kill, words=["unchecked"]) as running:
        done = running.done()
    assert (done.status, done.left) == (0, [])
    assert any(line.endswith("generation 1 starts (restart 1 of 1)") for line in done.err)
    assert any("continuing at step 4 of 10" in line for line in done.out)
    assert losses(done.out) == alone[0]


def terminated(alone, path):
    """SIGTERM saves a checkpoint, with the shards of each process; one process continues it."""
    pytest.importorskip("tensorstore")
    path = path.with_suffix("")
    with demo(path, "-n", "2", "--grace", "30", disturb=UNTIL_STOPPED) as running:
        running.said("at step 6")
        running.signal(signal.SIGTERM)
        done = running.done()
    assert (done.status, done.left) == (143, [])
    assert any("stopped after step 7 of 10" in line for line in done.out)
    assert checkpoints.describe(path).processes == 2
    with demo(path, "-n", "1") as running:
        done = running.done()
    assert any("continuing at step 7 of 10" in line for line in done.out)
    assert losses(done.out) == alone[0]
    return path


def killed_with_a_checkpoint(alone, path):
    pytest.importorskip("tensorstore")
    killed(alone, path.with_suffix(""))
    return path.with_suffix("")


def interrupted(alone, path):
    """Ctrl-C in the middle of a step saves; one process continues from the checkpoint of two."""
    with demo(path, "-n", "2", "--grace", "30", disturb=UNTIL_STOPPED) as running:
        running.said("at step 6")
        running.signal(signal.SIGINT)
        done = running.done()
    assert (done.status, done.left) == (130, [])
    assert any("stopped after step 7 of 10" in line for line in done.out)
    with demo(path, "-n", "1") as running:
        done = running.done()
    assert any("continuing at step 7 of 10" in line for line in done.out)
    assert losses(done.out) == alone[0]


@pytest.mark.parametrize(
    "case",
    everyday([killed, unharmed, interrupted, terminated, killed_with_a_checkpoint], 1),
    ids=lambda case: case.__name__,
)
def test_the_numbers_are_those_of_one_process(alone, tmp_path, case):
    path = tmp_path / "run.npz"
    same(alone[1], case(alone, path) or path)
