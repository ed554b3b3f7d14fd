"""`shardwise doctor`: what this machine and this environment have, and whether it works.

It prints, a section each: versions, devices, the cache of compiled programs, the cluster that this
process is in and who said what of it, proxies, TLS; then it runs programs over eight virtual
devices and over two processes. The exit status is 0 if all is well.

What could start devices or join others happens in processes of its own, with a time limit.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from shardwise._src.base import config
from shardwise._src.compiling.disk_cache import disk_cache
from shardwise._src.distributed.arguments import complete, resolve
from shardwise._src.distributed.cluster import DETECTORS, LAUNCHED, Surroundings, present
from shardwise._src.runtime import backend, cuda, processes
from shardwise._src.testing.processes import run_processes, without_transport
from shardwise._version import __version__

SECONDS = 60.0  # for each program that is run


class Line(NamedTuple):
    """One finding. ok: None where it only tells."""

    ok: bool | None
    name: str
    text: str


def run(arguments: Sequence[str]) -> int:
    """Prints all sections; gives the exit status."""
    if arguments:
        wanted = "-h" in arguments or "--help" in arguments
        stream = sys.stdout if wanted else sys.stderr
        print(f"usage: shardwise doctor\n\n{__doc__ or ''}", end="", file=stream)
        return 0 if wanted else 2
    problems = 0
    for name, section in SECTIONS.items():
        print(name)
        for line in section():
            problems += line.ok is False
            mark = {True: "ok", False: "!!", None: "  "}[line.ok]
            first, *others = line.text.splitlines() or [""]
            print(f"  {mark} {line.name:<20} {first}")
            for other in others:
                print(f"     {'':<20} {other}")
        print(flush=True)
    print(f"{problems} problem{'s' * (problems != 1)} found" if problems else "all is well")
    return 1 if problems else 0


# ------------------------------------------------------------------------------------ what is here


def versions() -> Iterator[Line]:
    yield Line(None, "shardwise", __version__)
    yield Line(None, "Python", f"{platform.python_version()} on {platform.platform()}")
    for name in ("numpy", "ml_dtypes", "psutil"):
        yield Line(None, name, _version(name) or "not installed")
    yield Line(None, "jaxlib", backend.JAXLIB_VERSION)
    plugins = [f"jax-cuda{v}-plugin" for v in ("13", "12")]
    found = [(name, version) for name in plugins if (version := _version(name))]
    for name, version in found:
        same = version == backend.JAXLIB_VERSION
        yield Line(same, name, version if same else (
            f"{version}, but jaxlib is {backend.JAXLIB_VERSION}: they must be of one version"
        ))
    if not found:
        yield Line(None, "plugin for GPUs", "none (pip install 'shardwise[cuda13]')")


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


DEVICES = """
import shardwise as sw
for device in sw.devices():
    print(device.platform, device.device_kind, sep=": ")
"""


def devices() -> Iterator[Line]:
    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    if asked is not None:
        yield Line(None, "CUDA_VISIBLE_DEVICES", repr(asked))
    yield Line(None, "NVIDIA GPUs", "visible" if cuda.available() else "none that can be used")
    ok, text, seconds = _program(DEVICES)
    kinds = text.splitlines()
    if ok:
        text = "\n".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds))
    yield Line(ok, "devices", f"{text}\nstarted in {seconds:.1f} s" if ok else text)


def caches() -> Iterator[Line]:
    cache = disk_cache()
    if cache is None:
        yield Line(None, "compiled programs", "are not kept on disk (`enable_compilation_cache`)")
        return
    folder = cache.folder
    there = next(p for p in (folder, *folder.parents) if p.exists())
    if not (there.is_dir() and os.access(there, os.W_OK)):
        yield Line(False, "compiled programs", f"{folder} cannot be written to")
        return
    sizes = [p.stat().st_size for p in folder.glob("*.program")]
    yield Line(True, "compiled programs",
               f"{folder}: {len(sizes)} of {sum(sizes) / 2**20:.1f} MiB")


def clusters() -> Iterator[Line]:
    """Which clusters' signs are here, which of them counts, and who said what."""
    here = Surroundings()
    for detector in DETECTORS:
        unset = [sign for sign in detector.signs if sign not in here.env]
        if detector.signs and len(unset) < len(detector.signs):
            why = f"not all of its signs: {', '.join(unset)} not set" if unset else "is here"
            other = not unset and detector.is_other(here.env)
            yield Line(None, detector.name, "is here, as part of Slurm" if other else why)
    found = present(here)
    if len(found) > 1:
        others = ", ".join(d.name for d in found[1:])
        yield Line(None, "which one counts", f"{found[0].name}, before {others}: it is what "
                   "started this process most directly (else: cluster_detection_method)")
    yield from _resolved(here)
    if _version("mpi4py"):
        yield Line(None, "mpi4py", "is installed: cluster_detection_method='mpi4py' asks it")


def _resolved(here: Surroundings) -> Iterator[Line]:
    try:
        resolved = resolve(None, None, None, None, None, here)
    except ValueError as error:
        yield Line(False, "arguments", str(error))
        return
    place = resolved.place
    if not resolved.cluster and not resolved.sources:
        yield Line(None, "cluster", "none: programs are of one process, but for `shardwise launch`")
        return
    for field, name in (
        ("address", "coordinator_address"), ("count", "num_processes"), ("index", "process_id"),
        ("local_devices", "local_device_ids"),
    ):
        value = getattr(place, field)
        source = resolved.sources.get(field)
        yield Line(None, name, f"{value}  (by {source})" if source else "not known")
    try:
        complete(resolved)
        yield Line(True, "initialize()", "knows all that it needs")
    except ValueError as error:
        yield Line(False, "initialize()", str(error).removeprefix("initialize: "))


def network() -> Iterator[Line]:
    found = sorted(name for name in os.environ if name.lower().endswith("_proxy"))
    text = f"{', '.join(found)}: are not used between processes" if found else "none"
    yield Line(None, "proxies", text)
    files = [config.mtls_cert_file, config.mtls_key_file, config.mtls_ca_file]
    given = [flag.name for flag in files if flag.value]
    if not processes.HAS_TLS:
        why = f"jaxlib {backend.JAXLIB_VERSION} has none between processes; 0.11 and later have"
        yield Line(False if given else None, "TLS", why)
    elif not given:
        yield Line(None, "TLS", "is there, and not asked for (`mtls_cert_file`, SECURITY.md)")
    else:
        bad = ", ".join(f.name for f in files if not (f.value and os.path.isfile(f.value)))
        yield Line(not bad, "TLS", f"no file for {bad}" if bad else "all files are there")


# -------------------------------------------------------------------------------- whether it works

COLLECTIVES = """
import time

import shardwise as sw
import shardwise.numpy as jnp

n = sw.device_count()
mesh = sw.make_mesh((n,), ("x",))
x = jnp.arange(16.0 * n, device=sw.NamedSharding(mesh, sw.P("x")))
f = sw.jit(sw.shard_map(lambda x: sw.lax.psum(x, "x"), mesh=mesh, in_specs=sw.P("x"),
                        out_specs=sw.P()))
expected = 16 * sum(range(n)) + n * jnp.arange(16.0)
assert bool((f(x) == expected).all()), f(x)
begin = time.perf_counter()
for _ in range(20):
    f(x).block_until_ready()
print(f"psum over {n} devices in {(time.perf_counter() - begin) / 20 * 1e6:.0f} us")
"""


def self_test() -> Iterator[Line]:
    ok, text, seconds = _program(COLLECTIVES, SHARDWISE_NUM_CPU_DEVICES="8")
    yield Line(ok, "one process", f"{text} ({seconds:.1f} s in all)" if ok else text)
    begin = time.monotonic()
    try:
        results = run_processes(COLLECTIVES, 2, devices=2, timeout=SECONDS, env=PLAIN)
    except (AssertionError, TimeoutError, OSError) as error:
        yield Line(False, "two processes", str(error))
        return
    said = {result.out.strip() for result in results}
    seconds = time.monotonic() - begin
    yield Line(True, "two processes", f"{min(said)} ({seconds:.1f} s in all)")


# A program of this machine alone, whatever the environment says of TLS and transports.
PLAIN = {
    "SHARDWISE_PLATFORMS": "cpu", "SHARDWISE_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
    "SHARDWISE_MTLS_CERT_FILE": "", "SHARDWISE_MTLS_KEY_FILE": "", "SHARDWISE_MTLS_CA_FILE": "",
    "SHARDWISE_MTLS_PEER_URI_PREFIX": "", "SHARDWISE_DISTRIBUTED_VERIFY_SECURE_CREDENTIALS": "0",
}


def _program(source: str, **env: str) -> tuple[bool, str, float]:
    """Runs a program by itself; whether it ended well, what it said, and its seconds."""
    # Without the launcher's variables, by which it would join others.
    own = {k: v for k, v in os.environ.items() if k not in LAUNCHED} | (PLAIN if env else {}) | env
    begin = time.monotonic()
    try:
        ended = subprocess.run(
            [sys.executable, "-c", source], env=own, capture_output=True, text=True,
            timeout=SECONDS, stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return False, f"did not end within {SECONDS:.0f} s", SECONDS
    seconds = time.monotonic() - begin
    if ended.returncode:
        last = "\n".join(ended.stderr.strip().splitlines()[-8:])
        return False, f"failed with status {ended.returncode}:\n{last}", seconds
    return True, without_transport(ended.stdout).strip(), seconds


SECTIONS: dict[str, Callable[[], Iterator[Line]]] = {
    "versions": versions, "devices": devices, "caches": caches, "cluster": clusters,
    "network": network, "collectives": self_test,
}
