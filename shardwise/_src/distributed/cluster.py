"""Cluster detection: the rank of this process and the process count, from the environment.

Each `Detector` recognizes one kind of cluster by the variables of its processes. `detected` tries
them in order. Several may match: `mpirun` in a Slurm allocation, `torchrun` in a Slurm step. The
launcher that started this process most directly is then used: the variables of `shardwise launch`
and `torchrun` rarely occur below another launcher; between MPI and Slurm, the nearest ancestor
process decides; if none is visible, as in a container, the first in the list is used.

Arguments of `initialize` and its environment variables take precedence: see `initialize_arguments`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from shardwise._src.base.errors import did_you_mean

Env = Mapping[str, str]


@dataclass(frozen=True)
class Place:
    """The facts that a cluster provides about this process; None for unknown ones.

    address:       of the coordinator, host:port.
    count, index:  the number of processes, and the index of this one.
    local_count, local_index: the same on its machine.
    local_devices: ids of the devices that this process uses; None for all.
    started:       whether the launcher of this process has also started the coordinator.
    """

    address: str | None = None
    count: int | None = None
    index: int | None = None
    local_count: int | None = None
    local_index: int | None = None
    local_devices: tuple[int, ...] | None = None
    started: bool = False


def _ancestors() -> Sequence[tuple[int, str]]:
    import psutil

    try:
        return [(p.pid, p.name()) for p in psutil.Process().parents()]
    except psutil.Error:
        return ()  # they are not visible from here


class Surroundings(NamedTuple):
    """The inputs of detectors.

    ancestors: pid and name of the ancestor processes of this one, the nearest first.
    full_name: the name of this machine, with its domain if it has one.
    """

    env: Env = os.environ
    ancestors: Callable[[], Sequence[tuple[int, str]]] = _ancestors
    full_name: Callable[[], str] = socket.getfqdn


class Detector(NamedTuple):
    """One kind of cluster.

    name:     its value of `cluster_detection_method`.
    signs:    the environment variables that identify it.
    place:    returns its facts; called only if it is present.
    starters: prefixes of the names of processes that start its processes.
    is_other: whether the signs that are present belong to another cluster.
    hint:     a remedy if it does not provide all facts.
    """

    name: str
    signs: tuple[str, ...]
    place: Callable[[Surroundings], Place]
    starters: tuple[str, ...] = ()
    is_other: Callable[[Env], bool] = lambda env: False
    hint: str = ""

    def is_here(self, env: Env) -> bool:
        if not self.signs:  # it is requested by name
            return importlib.util.find_spec(self.name) is not None
        return all(sign in env for sign in self.signs) and not self.is_other(env)


PORTS = 4000  # from 61,000 on: above the ephemeral ones of Linux


def port_of(job: int | str) -> int:
    """A port that is the same in all processes of a job, and unlikely to be that of another job."""
    return 61_000 + (zlib.crc32(job.encode()) if isinstance(job, str) else job) % PORTS


def at(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def number(env: Env, *names: str) -> int:
    """The value of the first variable that is set."""
    for name in names:
        if name in env:
            try:
                return int(env[name])
            except ValueError:
                raise ValueError(
                    f"initialize: the environment variable {name} must be an integer; got "
                    f"{env[name]!r}."
                ) from None
    raise ValueError(
        f"initialize: the environment variable {' or '.join(names)} is not set, which this kind of "
        "cluster sets."
    )


def _maybe(env: Env, name: str) -> int | None:
    return number(env, name) if name in env else None


def _local(env: Env, index: int | None) -> dict[str, Any]:
    """The fields of a place for a process's index on its machine, and for its devices: one GPU for
    each process, unless the cluster makes only its own GPU visible to each."""
    shown = env.get("CUDA_VISIBLE_DEVICES")
    listed = None if shown is None else len([d for d in shown.split(",") if d])
    is_chosen = listed is not None and index is not None and (listed == 1 or index >= listed)
    devices = None if index is None or is_chosen else (index,)
    return {"local_index": index, "local_devices": devices}


# --------------------------------------------------------------------------- shardwise launch

LAUNCHED = ("SHARDWISE_COORDINATOR_ADDRESS", "SHARDWISE_NUM_PROCESSES", "SHARDWISE_PROCESS_ID")


def _launched(here: Surroundings) -> Place:
    env = here.env
    return Place(
        address=env[LAUNCHED[0]],
        count=number(env, LAUNCHED[1]),
        index=number(env, LAUNCHED[2]),
        local_index=_maybe(env, "SHARDWISE_LOCAL_PROCESS_ID"),
        started=env.get("SHARDWISE_COORDINATOR_STARTED") == "1",
    )


# -------------------------------------------------------------------------------------- Slurm


def _slurm(here: Surroundings) -> Place:
    """A step, started by `srun`. A batch script itself is not a step."""
    env = here.env
    # Steps of one job may run concurrently.
    step = re.sub(r"\D", "", env.get("SLURM_STEP_ID", "")) or "0"
    port = port_of(number(env, "SLURM_JOB_ID") + 61 * int(step))
    return Place(
        address=at(first_host(env["SLURM_STEP_NODELIST"]), port),
        count=number(env, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        index=number(env, "SLURM_PROCID"),
        local_count=_slurm_local_count(env),
        **_local(env, number(env, "SLURM_LOCALID")),
    )


def _slurm_local_count(env: Env) -> int | None:
    """The task count of this node, from a list of all nodes such as `2(x3),1`."""
    text, node = env.get("SLURM_STEP_TASKS_PER_NODE"), _maybe(env, "SLURM_NODEID")
    counts: list[int] = []
    for part in (text or "").split(","):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if found is None:
            return None
        counts += [int(found[1])] * int(found[2] or 1)
    return counts[node] if node is not None and node < len(counts) else None


def first_host(nodes: str) -> str:
    """The first host in Slurm's compact notation: `a[1-2]-ib[3,5]` begins with a1-ib3."""
    end, depth = len(nodes), 0
    for i, char in enumerate(nodes):
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            end = i
            break
    name = re.sub(r"\[([^\]]*)\]", lambda m: re.split(r"[-,]", m[1])[0], nodes[:end]).strip()
    if not name or "[" in name:
        raise ValueError(
            f"initialize: Slurm's list of nodes, {nodes!r}, does not name a host. Pass "
            "coordinator_address."
        )
    return name


# --------------------------------------------------------------------------------------- MPI


def _open_mpi(here: Surroundings) -> Place:
    env = here.env
    host = _open_mpi_host(env)
    job = env.get("PMIX_NAMESPACE") or env.get("OMPI_MCA_orte_hnp_uri", "").partition(".")[0]
    return Place(
        address=at(host, port_of(job)) if host else None,
        count=number(env, "OMPI_COMM_WORLD_SIZE"),
        index=number(env, "OMPI_COMM_WORLD_RANK"),
        local_count=_maybe(env, "OMPI_COMM_WORLD_LOCAL_SIZE"),
        **_local(env, _maybe(env, "OMPI_COMM_WORLD_LOCAL_RANK")),
    )


def _open_mpi_host(env: Env) -> str | None:
    """The host of `mpirun`, on which process 0 runs by default."""
    if env.get("OMPI_COMM_WORLD_LOCAL_SIZE") == env.get("OMPI_COMM_WORLD_SIZE"):
        return "localhost"
    # Open MPI 4: 1531576320.0;tcp://10.0.0.1,10.1.0.1:34911;tcp6://[fe80::1,2620::2]:43370
    uri = env.get("OMPI_MCA_orte_hnp_uri", "")
    found = re.search(r"tcp://([^,:]+)", uri) or re.search(r"tcp6://\[([^,\]]+)", uri)
    # Open MPI 5: prterun-HOST-PID@1
    found = found or re.match(r"pr(?:te|terun|un)-(.+)-\d+@", env.get("PMIX_NAMESPACE", ""))
    return found[1] if found else None


def _pmi(here: Surroundings) -> Place:
    """MPICH, Intel MPI and others that describe their processes through PMI."""
    env = here.env
    count, local_count = number(env, "PMI_SIZE"), _maybe(env, "MPI_LOCALNRANKS")
    address = None
    if local_count == count:
        proxy = [pid for pid, name in here.ancestors() if name.startswith(_HYDRA)]
        job = env.get("I_MPI_HYDRA_UUID") or env.get("PMI_PORT") or str(proxy[:1])
        address = at("localhost", port_of(job))
    elif nodes := env.get("SLURM_JOB_NODELIST"):  # Hydra takes its hosts from Slurm
        address = at(first_host(nodes), port_of(number(env, "SLURM_JOB_ID")))
    return Place(
        address=address,
        count=count,
        index=number(env, "PMI_RANK"),
        local_count=local_count,
        **_local(env, _maybe(env, "MPI_LOCALRANKID")),
    )


def _is_pmi_of_slurm(env: Env) -> bool:
    """Whether PMI is that of `srun --mpi=pmi2`; the Slurm detector provides more facts."""
    step = f"{env.get('SLURM_JOB_ID')}.{env.get('SLURM_STEP_ID')}"
    return env.get("PMI_JOBID") == step and "MPI_LOCALRANKID" not in env


def _mpi4py(here: Surroundings) -> Place:
    """Communicates over MPI itself, wherever mpi4py works."""
    from mpi4py import MPI  # pyright: ignore[reportMissingImports]

    world: Any = MPI.COMM_WORLD
    node: Any = world.Split_type(MPI.COMM_TYPE_SHARED)
    count = world.Get_size()
    alone = node.Get_size() == count
    address = at("localhost" if alone else socket.gethostname(), _free_port())
    return Place(
        address=world.bcast(address, root=0),
        count=count,
        index=world.Get_rank(),
        local_count=node.Get_size(),
        **_local(here.env, node.Get_rank()),
    )


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("", 0))
        return sock.getsockname()[1]


# -------------------------------------------------------------------------- Kubernetes, torchrun

KUBERNETES_PORT = 8476  # each pod has its own address


def _kubernetes(here: Surroundings) -> Place:
    """An Indexed Job, alone or in a JobSet: its pods are JOB-INDEX.SERVICE, a headless service.

    A pod does not know how many pods there are.
    """
    index = number(here.env, "JOB_COMPLETION_INDEX")
    host, _, domain = here.full_name().partition(".")
    job = host.removesuffix(f"-{index}")
    known = domain and job != host
    return Place(
        address=f"{job}-0.{domain}:{KUBERNETES_PORT}" if known else None,
        index=index,
        local_count=1,
        local_index=0,
    )


def _torchrun(here: Surroundings) -> Place:
    env = here.env
    port = number(env, "MASTER_PORT")  # where torch's own store listens
    return Place(
        address=at(env["MASTER_ADDR"], port + 1 if port < 65535 else port - 1),
        count=number(env, "WORLD_SIZE"),
        index=number(env, "RANK"),
        local_count=_maybe(env, "LOCAL_WORLD_SIZE"),
        **_local(env, number(env, "LOCAL_RANK")),
    )


_HYDRA = ("hydra_", "pmi_proxy", "mpiexec.hydra")
DETECTORS = (
    Detector("shardwise", LAUNCHED, _launched),
    Detector(
        "torchrun", ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"), _torchrun
    ),
    Detector(
        "ompi",
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        _open_mpi,
        starters=("mpirun", "mpiexec", "orte", "prte", "prun"),
        hint="The environment of Open MPI does not specify where process 0 runs. Set "
        "SHARDWISE_COORDINATOR_ADDRESS, or install mpi4py and pass "
        "cluster_detection_method='mpi4py'.",
    ),
    Detector(
        "pmi",
        ("PMI_RANK", "PMI_SIZE"),
        _pmi,
        starters=_HYDRA,
        is_other=_is_pmi_of_slurm,
        hint="On several hosts, PMI does not specify where process 0 runs. Set "
        "SHARDWISE_COORDINATOR_ADDRESS, or install mpi4py and pass "
        "cluster_detection_method='mpi4py'.",
    ),
    Detector(
        "slurm",
        ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_PROCID", "SLURM_LOCALID"),
        _slurm,
        starters=("slurmstepd",),
    ),
    Detector(
        "k8s",
        ("KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX"),
        _kubernetes,
        hint="A pod does not know the number of pods: set SHARDWISE_NUM_PROCESSES in the template "
        "to the job's `completions`. Other pods reach it through a headless service: set "
        "`subdomain` in the template to that service. See docs/clusters/kubernetes.yaml.",
    ),
    Detector("mpi4py", (), _mpi4py),
)
NAMES = {d.name: d for d in DETECTORS}


def present(here: Surroundings) -> list[Detector]:
    """The detectors whose signs are in the environment; the one that applies comes first."""
    found = [d for d in DETECTORS if d.signs and d.is_here(here.env)]
    with_starters = [d for d in found if d.starters]
    if len(with_starters) < 2 or any(not d.starters for d in found[:1]):
        return found
    for _, name in here.ancestors():
        # Process names of Hydra and Open MPI share prefixes: the longest matching prefix wins.
        fits = [(len(s), d) for d in with_starters for s in d.starters if name.startswith(s)]
        if fits:
            nearest = max(fits, key=lambda fit: fit[0])[1]
            return [nearest, *[d for d in found if d is not nearest]]
    return found


def detected(method: str | None, here: Surroundings) -> tuple[str, Place]:
    """The name of this process's cluster, and the facts it provides; ("", Place()) if none.

    method: the only detector to use; "deactivate" for none.
    """
    if method == "deactivate":
        return "", Place()
    if method is None:
        found = present(here)
        return (found[0].name, found[0].place(here)) if found else ("", Place())
    if method not in NAMES:
        raise ValueError(
            f"initialize: cluster_detection_method must be one of {', '.join(NAMES)}, or "
            f"'deactivate'; got {method!r}.{did_you_mean(method, NAMES)}"
        )
    chosen = NAMES[method]
    if not chosen.is_here(here.env):
        why = "its PMI belongs to Slurm" if chosen.signs else "mpi4py is not installed"
        if unset := [sign for sign in chosen.signs if sign not in here.env]:
            why = f"the environment has no {', '.join(unset)}"
        raise ValueError(f"initialize: this process was not started by {method!r}: {why}.")
    return method, chosen.place(here)
