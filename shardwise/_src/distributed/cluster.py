"""Where this process stands among others, as the environment says that a cluster has set up.

Each `Detector` knows one kind of cluster by the variables of its processes. `detected` asks them in
turn; what a program passes to `initialize` goes before what they find.
"""

from __future__ import annotations

import importlib.util
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from shardwise._src.base.errors import did_you_mean

Env = Mapping[str, str]


@dataclass(frozen=True)
class Place:
    """What a cluster says of this process; None where it does not.

    address:       of the coordinator, host:port.
    count, index:  of the processes, and of this one among them.
    local_count, local_index: the same on its machine.
    local_devices: ids of the devices that this process is to use; None for all.
    started:       whether the coordinator was started by whoever started this process.
    """

    address: str | None = None
    count: int | None = None
    index: int | None = None
    local_count: int | None = None
    local_index: int | None = None
    local_devices: tuple[int, ...] | None = None
    started: bool = False


class Detector(NamedTuple):
    """One kind of cluster.

    name:     as `cluster_detection_method` takes it.
    signs:    the variables that it is known by.
    is_here:  whether this process was started by it.
    place:    what it says; called where it is here.
    asked_for: used only if asked for by its name.
    """

    name: str
    signs: tuple[str, ...]
    is_here: Callable[[Env], bool]
    place: Callable[[Env], Place]
    asked_for: bool = False


PORTS = 4000  # from 61,000 on: above the ephemeral ones of Linux


def port_of(job: str) -> int:
    """A port that all processes of a job work out alike, and other jobs hardly."""
    digits = re.sub(r"\D", "", job)
    number = int(digits) if digits else sum(map(ord, job))
    return 61_000 + number % PORTS


def _int(env: Env, *names: str) -> int:
    for name in names:
        if name in env:
            try:
                return int(env[name])
            except ValueError:
                raise ValueError(
                    f"the environment variable {name} must be an integer; it is {env[name]!r}."
                ) from None
    raise ValueError(f"none of the environment variables {', '.join(names)} is set.")


def _has(*names: str) -> Callable[[Env], bool]:
    return lambda env: all(name in env for name in names)


# --------------------------------------------------------------------------- shardwise launch

LAUNCHED = (
    "SHARDWISE_COORDINATOR_ADDRESS", "SHARDWISE_NUM_PROCESSES", "SHARDWISE_PROCESS_ID",
)


def _launched(env: Env) -> Place:
    local = "SHARDWISE_LOCAL_PROCESS_ID" in env
    return Place(
        address=env[LAUNCHED[0]],
        count=_int(env, LAUNCHED[1]),
        index=_int(env, LAUNCHED[2]),
        local_index=_int(env, "SHARDWISE_LOCAL_PROCESS_ID") if local else None,
        local_devices=_ids(env.get("SHARDWISE_LOCAL_DEVICE_IDS")),
        started=env.get("SHARDWISE_COORDINATOR_STARTED") == "1",
    )


def _ids(text: str | None) -> tuple[int, ...] | None:
    return tuple([int(n) for n in text.split(",")]) if text else None


# -------------------------------------------------------------------------------------- Slurm


def _slurm(env: Env) -> Place:
    job = env["SLURM_JOB_ID"]
    hosts = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or ""
    first = first_host(hosts) if hosts else "localhost"
    local_index = _int(env, "SLURM_LOCALID")
    return Place(
        address=f"{first}:{port_of(job)}",
        count=_int(env, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        index=_int(env, "SLURM_PROCID"),
        local_count=_slurm_local_count(env),
        local_index=local_index,
        local_devices=(local_index,),
    )


def _slurm_local_count(env: Env) -> int | None:
    """Of `2(x3),1`, the tasks of each node, the number for this one."""
    text, node = env.get("SLURM_STEP_TASKS_PER_NODE"), env.get("SLURM_NODEID")
    if not text or node is None:
        return None
    counts: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if found is None:
            return None
        counts += [int(found[1])] * int(found[2] or 1)
    return counts[int(node)] if int(node) < len(counts) else None


def first_host(nodes: str) -> str:
    """The first of the hosts that Slurm writes in short: `gpu[03-07,12],cpu1` begins with gpu03."""
    found = re.match(r"([^,\[]+)(?:\[([^\]]*)\])?([^,\[]*)", nodes)
    if found is None:
        raise ValueError(f"SLURM_JOB_NODELIST is {nodes!r}, which names no host.")
    head, ranges, tail = found.groups()
    return head + re.split(r"[-,]", ranges)[0] + tail if ranges else head + tail


# --------------------------------------------------------------------------------------- MPI


def _open_mpi(env: Env) -> Place:
    host = _open_mpi_host(env)
    local_index = _int(env, "OMPI_COMM_WORLD_LOCAL_RANK")
    job = env.get("PMIX_NAMESPACE") or env.get("OMPI_MCA_orte_hnp_uri") or "0"
    return Place(
        address=f"{host}:{port_of(job.partition('.')[0])}" if host else None,
        count=_int(env, "OMPI_COMM_WORLD_SIZE"),
        index=_int(env, "OMPI_COMM_WORLD_RANK"),
        local_count=_int(env, "OMPI_COMM_WORLD_LOCAL_SIZE"),
        local_index=local_index,
        local_devices=(local_index,),
    )


def _open_mpi_host(env: Env) -> str | None:
    """Where `mpirun` runs, and with it, unless told otherwise, process 0."""
    uri = env.get("OMPI_MCA_orte_hnp_uri", "")  # 1531576320.0;tcp://10.0.0.1,10.1.0.1:34911
    found = re.search(r"tcp[46]?://\[?([^,:\]]+)", uri)
    if found:
        return found[1]
    if env.get("OMPI_COMM_WORLD_LOCAL_SIZE") == env.get("OMPI_COMM_WORLD_SIZE"):
        return "localhost"
    return None


def _pmi(env: Env) -> Place:
    """MPICH, Intel MPI and others whose processes are told of by PMI."""
    count, index = _int(env, "PMI_SIZE"), _int(env, "PMI_RANK")
    local = "MPI_LOCALRANKID" in env
    local_count = _int(env, "MPI_LOCALNRANKS") if "MPI_LOCALNRANKS" in env else None
    local_index = _int(env, "MPI_LOCALRANKID") if local else None
    alone = local_count == count
    job = env.get("PMI_PORT") or str(os.getppid())
    return Place(
        address=f"localhost:{port_of(job)}" if alone else None,
        count=count, index=index, local_count=local_count, local_index=local_index,
        local_devices=None if local_index is None else (local_index,),
    )


def _mpi4py(env: Env) -> Place:
    """By communication over MPI itself, wherever mpi4py works."""
    from mpi4py import MPI  # pyright: ignore[reportMissingImports]

    world: Any = MPI.COMM_WORLD
    host = world.bcast(_address_here() if world.Get_rank() == 0 else None, root=0)
    node = world.Split_type(MPI.COMM_TYPE_SHARED)
    return Place(
        address=host, count=world.Get_size(), index=world.Get_rank(),
        local_count=node.Get_size(), local_index=node.Get_rank(),
        local_devices=(node.Get_rank(),),
    )


def _address_here() -> str:
    with socket.socket() as sock:
        sock.bind(("", 0))
        return f"{socket.gethostname()}:{sock.getsockname()[1]}"


# -------------------------------------------------------------------------- Kubernetes, torchrun


def _kubernetes(env: Env) -> Place:
    """An Indexed Job, alone or in a JobSet, with a headless service for its pods' names."""
    index = _int(env, "JOB_COMPLETION_INDEX")
    name = env.get("JOB_NAME") or re.sub(r"-\d+(-\w+)?$", "", env.get("HOSTNAME", ""))
    service = env.get("JOBSET_NAME") or env.get("SERVICE_NAME") or name
    counted = next((n for n in ("NUM_PROCESSES", "JOB_COMPLETIONS", "NUM_HOSTS") if n in env), None)
    return Place(
        address=f"{name}-0.{service}:{env.get('COORDINATOR_PORT', '8476')}" if name else None,
        count=None if counted is None else _int(env, counted),
        index=index, local_count=1, local_index=0,
    )


def _torchrun(env: Env) -> Place:
    port = _int(env, "MASTER_PORT")
    local_index = _int(env, "LOCAL_RANK")
    # The port itself is that of torchrun's store, where agents still listen.
    taken = env.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return Place(
        address=f"{env['MASTER_ADDR']}:{port + 1 if taken else port}",
        count=_int(env, "WORLD_SIZE"),
        index=_int(env, "RANK"),
        local_count=_int(env, "LOCAL_WORLD_SIZE") if "LOCAL_WORLD_SIZE" in env else None,
        local_index=local_index,
        local_devices=(local_index,),
    )


DETECTORS = (
    Detector("shardwise", LAUNCHED, _has(*LAUNCHED), _launched),
    Detector(
        "torchrun", ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"),
        _has("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"), _torchrun,
    ),
    Detector(
        "ompi", ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        _has("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), _open_mpi,
    ),
    Detector("pmi", ("PMI_RANK", "PMI_SIZE"), _has("PMI_RANK", "PMI_SIZE"), _pmi),
    Detector(
        "slurm", ("SLURM_JOB_ID", "SLURM_PROCID", "SLURM_LOCALID"),
        _has("SLURM_JOB_ID", "SLURM_PROCID", "SLURM_LOCALID"), _slurm,
    ),
    Detector(
        "k8s", ("KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX"),
        _has("KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX"), _kubernetes,
    ),
    Detector(
        "mpi4py", (), lambda env: importlib.util.find_spec("mpi4py") is not None, _mpi4py, True
    ),
)
NAMES = {d.name: d for d in DETECTORS}


def detected(method: str | None, env: Env | None = None) -> tuple[str, Place]:
    """The name of the cluster that this process is in, and what it says; ("", Place()) of none.

    method: the one detector to ask; "deactivate" for none.
    """
    env = os.environ if env is None else env
    if method == "deactivate":
        return "", Place()
    if method is not None:
        if method not in NAMES:
            raise ValueError(
                f"initialize: cluster_detection_method must be one of {', '.join(NAMES)}, or "
                f"'deactivate'; got {method!r}.{did_you_mean(method, NAMES)}"
            )
        chosen = NAMES[method]
        if not chosen.is_here(env):
            missing = [sign for sign in chosen.signs if sign not in env]
            raise ValueError(
                f"initialize: this process was not started by {method!r}: "
                + (f"{', '.join(missing)} are not set in the environment." if missing
                   else "mpi4py is not installed.")
            )
        return method, chosen.place(env)
    for detector in DETECTORS:
        if not detector.asked_for and detector.is_here(env):
            return detector.name, detector.place(env)
    return "", Place()
