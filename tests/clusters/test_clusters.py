"""Programs started by Slurm, Open MPI and MPICH themselves, where they are installed (`make
clusters`). Each test starts what it needs in its own folder, and leaves nothing behind.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers import slurm

pytestmark = pytest.mark.processes
PROGRAM = Path(__file__).with_name("program.py")
TIMEOUT = 60


def needs(*commands):
    absent = [command for command in commands if shutil.which(command) is None]
    reason = f"{', '.join(absent)} not installed (`make clusters`)"
    return pytest.mark.skipif(bool(absent), reason=reason)


def environment(**more):
    return {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", "/"),
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "SHARDWISE_PLATFORMS": "cpu",
        "SHARDWISE_NUM_CPU_DEVICES": "2",
        **more,
    }


def run(line, env):
    """Runs a command; returns the reports of the processes, in order."""
    ended = subprocess.run(
        [str(part) for part in line],
        env=env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        stdin=subprocess.DEVNULL,
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return said(ended.stdout)


def said(text):
    return sorted(line for line in text.splitlines() if " of " in line and "[Gloo]" not in line)


def two(cluster):
    return [f"{cluster}: {rank} of 2: 140.0" for rank in (0, 1)]


# -------------------------------------------------------------------------------------- Slurm


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if why := slurm.missing():
        pytest.skip(why)
    with slurm.running(tmp_path_factory.mktemp("slurm")) as env:
        yield environment() | env | {"HOME": "/"}


def test_srun(cluster):
    assert run(["srun", "-n", "2", sys.executable, PROGRAM], cluster) == two("slurm")


def test_srun_with_pmi2(cluster):
    """Slurm then uses PMI; it must still be detected as Slurm."""
    line = ["srun", "-n", "2", "--mpi=pmi2", sys.executable, PROGRAM]
    assert run(line, cluster) == two("slurm")


def batch(tmp_path, env, lines):
    """The output of a batch script with these lines."""
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n#SBATCH --ntasks=2\n" + "\n".join(lines) + "\n")
    return batch_file(script, tmp_path, env)


def batch_file(script, tmp_path, env, *options):
    """The output of a batch script."""
    out = tmp_path / "job.out"
    job = subprocess.run(
        ["sbatch", "--parsable", f"--output={out}", *options, str(script)],
        env=env,
        timeout=TIMEOUT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        state = subprocess.run(
            ["scontrol", "show", "job", "--oneliner", job],
            env=env,
            timeout=TIMEOUT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        if "JobState=COMPLETED" in state or "JobState=FAILED" in state:
            return out.read_text()
        time.sleep(0.1)
    raise TimeoutError(f"{state}\n{out.read_text()}")


def test_steps_of_a_batch_script(cluster, tmp_path):
    """A step may have fewer tasks than its job; two may run concurrently."""
    text = batch(
        tmp_path,
        cluster,
        [
            f"srun --ntasks=1 --exact {sys.executable} {PROGRAM} &",
            f"srun --ntasks=1 --exact {sys.executable} {PROGRAM} &",
            "wait",
        ],
    )
    assert said(text) == ["slurm: 0 of 1: 140.0"] * 2, text


def test_a_batch_script_itself_is_no_task(cluster, tmp_path):
    text = batch(tmp_path, cluster, [f"{sys.executable} {PROGRAM} || true"])
    assert "no cluster was detected that specifies" in text


@needs("mpirun.openmpi")
def test_mpirun_in_an_allocation_of_slurm(cluster, tmp_path):
    text = batch(
        tmp_path,
        cluster,
        [f"mpirun.openmpi -n 2 --allow-run-as-root --oversubscribe {sys.executable} {PROGRAM}"],
    )
    assert said(text) == two("ompi"), text


@needs("mpiexec.hydra")
def test_mpiexec_in_an_allocation_of_slurm(cluster, tmp_path):
    text = batch(tmp_path, cluster, [f"mpiexec.hydra -n 2 {sys.executable} {PROGRAM}"])
    assert said(text) == two("pmi"), text


@needs("mpirun.openmpi")
def test_srun_below_mpirun(cluster):
    line = [
        "mpirun.openmpi",
        "-n",
        "1",
        "--allow-run-as-root",
        "--oversubscribe",
        "srun",
        "-n",
        "2",
        sys.executable,
        PROGRAM,
    ]
    assert run(line, cluster) == two("slurm")


def test_a_method_overrides_what_is_nearest(cluster):
    env = cluster | {"JAX_PROCESS_ID": "0", "JAX_NUM_PROCESSES": "1"}
    line = ["srun", "-n", "1", sys.executable, PROGRAM, "slurm"]
    assert run(line, env) == ["slurm: 0 of 1: 140.0"]


# ---------------------------------------------------------------------------------------- MPI

OPEN_MPI = ("mpirun.openmpi", "-n", "2", "--allow-run-as-root", "--oversubscribe")


@needs("mpirun.openmpi")
def test_open_mpi():
    assert run([*OPEN_MPI, sys.executable, PROGRAM], environment()) == two("ompi")


@needs("mpiexec.hydra")
def test_mpich():
    """Also with a shell around each process: their common ancestor is Hydra's proxy."""
    line = ["mpiexec.hydra", "-n", "2", "sh", "-c", f"{sys.executable} {PROGRAM}; exit $?"]
    assert run(line, environment()) == two("pmi")


@needs("mpirun.openmpi")
def test_an_argument_overrides_mpirun():
    """Each of two processes separately."""
    code = (
        "import shardwise as sw, socket, sys\n"
        "with socket.create_server(('127.0.0.1', 0)) as s: port = s.getsockname()[1]\n"
        "sw.distributed.initialize(f'127.0.0.1:{port}', 1, 0)\n"
        "print('ompi: alone of', sw.process_count(), flush=True)\n"
    )
    found = run([*OPEN_MPI, sys.executable, "-c", code], environment())
    assert found == ["ompi: alone of 1"] * 2
