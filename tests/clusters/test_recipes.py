"""The recipes of docs/clusters: their processes join, where this machine can start them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from shardwise._src.distributed import initialize_arguments
from shardwise._src.distributed.cluster import KUBERNETES_PORT, NAMES, Surroundings
from tests.clusters import test_clusters
from tests.clusters.test_clusters import TIMEOUT, batch_file, environment, needs
from tests.helpers.joining import free_port

cluster = test_clusters.cluster

RECIPES = Path(__file__).resolve().parents[2] / "docs" / "clusters"
LEARNED = [0, 1, 2, 3, 4, 5, 6, 7]


def commands(name):
    """The lines of the `bash` blocks on a page."""
    text = (RECIPES / name).read_text()
    return re.findall(r"^```bash\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL)


def started(line, count, **env):
    """The output of a recipe's command, with fewer processes and this Python."""
    line = re.sub(r"-n \d+", f"-n {count}", line).replace("python", sys.executable)
    ended = subprocess.run(
        line.split(),
        cwd=RECIPES,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        stdin=subprocess.DEVNULL,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_program_alone():
    ended = subprocess.run(
        [sys.executable, "-c", "import train; train.main()"],
        cwd=RECIPES,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert ended.stdout == f"1 processes, 2 devices: {LEARNED}\n", ended.stderr


def test_slurm(cluster, tmp_path):
    text = batch_file(
        RECIPES / "slurm.sh",
        tmp_path,
        cluster | {"PATH": with_python(tmp_path, cluster["PATH"])},
        "--nodes=1",
        "--ntasks-per-node=2",
        f"--chdir={RECIPES}",
    )
    assert f"0: 2 processes, 4 devices: {LEARNED}\n" in text, text


def with_python(folder, path):
    """A search path on which `python` is this interpreter."""
    (folder / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "python").chmod(0o755)
    return f"{folder}:{path}"


@needs("mpirun.openmpi")
def test_open_mpi():
    line = commands("mpirun.md")[0]
    assert line.startswith("mpirun -n 4 python")
    line = line.replace("mpirun", "mpirun.openmpi --allow-run-as-root --oversubscribe")
    assert f"2 processes, 4 devices: {LEARNED}\n" in started(line, 2)


@needs("mpiexec.hydra")
def test_hydra():
    assert f"2 processes, 4 devices: {LEARNED}\n" in started(commands("mpirun.md")[2], 2)


@needs("mpiexec.hydra")
def test_hydra_with_an_address():
    """As for several machines, but on this one."""
    several = commands("mpirun.md")[3].replace("-f hosts ", "")
    several = several.replace("node1:8476", f"127.0.0.1:{free_port()}")
    assert f"2 processes, 4 devices: {LEARNED}\n" in started(several, 2)


def test_torchrun():
    alone, several = commands("torchrun.md")
    assert "--nproc-per-node 4" in alone
    address, port = re.search(r"--master-addr (\S+) --master-port (\d+)", several).groups()
    page = (RECIPES / "torchrun.md").read_text()
    env = {
        "RANK": "5",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "8",
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
    }
    assert [sign for sign in NAMES["torchrun"].signs if f"`{sign}`" not in page] == []
    place = initialize_arguments.resolve(None, None, None, None, None, Surroundings(env)).place
    assert (place.address, place.count, place.index) == (f"{address}:{int(port) + 1}", 8, 5)
    assert f"{int(port) + 1} here" in page


# --------------------------------------------------------------------------------- Kubernetes


def documents(name):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return list(yaml.safe_load_all((RECIPES / name).read_text()))


def pods(job, name, domain):
    """What the processes of an Indexed Job detect from the variables that Kubernetes sets."""
    spec = job["template"]["spec"]
    [container] = spec["containers"]
    template = {entry["name"]: entry["value"] for entry in container["env"]}
    assert job["completionMode"] == "Indexed"
    assert job["completions"] == job["parallelism"]
    assert [port["containerPort"] for port in container["ports"]] == [KUBERNETES_PORT]
    found = []
    for i in range(job["completions"]):
        env = template | {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": str(i)}
        here = Surroundings(env, list, lambda i=i: f"{name}-{i}.{domain}")
        arguments = initialize_arguments.resolve(None, None, None, None, None, here)
        found.append(initialize_arguments.complete(arguments))
    assert [(p.count, p.index) for p in found] == [(len(found), i) for i in range(len(found))]
    assert {p.local_devices for p in found} == {None}
    [address] = {p.address for p in found}
    return address


def test_an_indexed_job():
    service, job = documents("kubernetes.yaml")
    name, domain = job["metadata"]["name"], service["metadata"]["name"]
    assert job["spec"]["template"]["spec"]["subdomain"] == domain
    assert service["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"batch.kubernetes.io/job-name": name},
    }
    full = f"{domain}.default.svc.cluster.local"
    assert pods(job["spec"], name, full) == f"{name}-0.{full}:{KUBERNETES_PORT}"


def test_a_job_set():
    [job_set] = documents("jobset.yaml")
    [workers] = job_set["spec"]["replicatedJobs"]
    assert job_set["spec"]["network"] == {
        "enableDNSHostnames": True,
        "publishNotReadyAddresses": True,
    }
    assert workers["replicas"] == 1
    name = f"{job_set['metadata']['name']}-{workers['name']}-0"
    full = f"{job_set['metadata']['name']}.default.svc.cluster.local"
    job = workers["template"]["spec"]
    assert pods(job, name, full) == f"{name}-0.{full}:{KUBERNETES_PORT}"
