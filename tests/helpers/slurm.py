"""A private Slurm of one node, with its MUNGE, in a separate folder and on separate ports.

For example:

    with running(folder) as env:
        subprocess.run(["srun", "-n", "2", "hostname"], env=env, check=True)
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.helpers import patience

NEEDED = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo")
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=500 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
SlurmdParameters=config_overrides
FirstJobId={first_job}
"""


def missing() -> str:
    """Why Slurm cannot run here; "" if it can."""
    absent = [name for name in NEEDED if shutil.which(name, path=_PATH) is None]
    if absent:
        return f"{', '.join(absent)} are not installed (`make clusters`)"
    return "" if os.geteuid() == 0 else "slurmd needs to be root"


@contextmanager
def running(folder: Path) -> Iterator[dict[str, str]]:
    """Yields the environment in which srun and sbatch find it, once its node is ready."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    controller, node = _free_ports(2)
    conf = folder / "slurm.conf"
    conf.write_text(
        CONFIGURATION.format(
            host=socket.gethostname().partition(".")[0],
            folder=folder,
            controller=controller,
            node=node,
            first_job=1 + secrets.randbelow(60_000),  # the ports depend on it
        )
    )
    env = {"PATH": _PATH, "HOME": str(folder), "SLURM_CONF": str(conf), "LANG": "C.UTF-8"}
    started = []
    try:
        started.append(_munge(folder, env))
        for command in ("slurmctld", "slurmd"):
            with open(folder / f"{command}.out", "wb") as out:
                started.append(
                    subprocess.Popen(
                        [command, "-D", "-f", str(conf)], env=env, stdout=out, stderr=out
                    )
                )
        _await_node(folder, env)
        yield env
    finally:
        for process in reversed(started):
            _stop(process)


def _munge(folder: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    options = {
        "socket": "munge.sock",
        "key-file": "munge.key",
        "pid-file": "munged.pid",
        "seed-file": "munged.seed",
        "log-file": "munged.log",
    }
    with open(folder / "munged.out", "wb") as out:
        return subprocess.Popen(
            [
                "munged",
                "--foreground",
                "--force",
                *[f"--{option}={folder / name}" for option, name in options.items()],
            ],
            env=env,
            stdout=out,
            stderr=out,
        )


def _await_node(folder: Path, env: dict[str, str]) -> None:
    def state() -> str:
        return subprocess.run(
            ["sinfo", "-h", "-o", "%T"],
            env=env,
            capture_output=True,
            text=True,
            timeout=patience.seconds(60),
        ).stdout.strip()

    def logs() -> str:
        found = [f"{p.name}:\n{p.read_text()[-2000:]}" for p in sorted(folder.glob("*.out"))]
        return "\n".join([f"Slurm's node is {state()!r}, not idle", *found])

    patience.until(lambda: state() == "idle", about=logs)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(patience.seconds(10))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports
