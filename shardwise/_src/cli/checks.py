"""The checks of `shardwise doctor` that run no multi-device program."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from shardwise._src.base import config
from shardwise._src.cli.findings import Clock, Line, run_program
from shardwise._src.compiling.disk_cache import disk_cache
from shardwise._src.distributed.cluster import DETECTORS, Surroundings, present
from shardwise._src.distributed.initialize_arguments import ARGUMENTS, Resolved, complete, resolve
from shardwise._src.distributed.start import address_of, address_towards, is_loopback
from shardwise._src.runtime import backend, cuda, processes, tpu
from shardwise._version import __version__

GIB = 2**30
LITTLE_DISK, LITTLE_MEMORY = 1 * GIB, 2 * GIB


# ------------------------------------------------------------------------------------ versions


def versions() -> Iterator[Line]:
    yield Line(None, "shardwise", __version__, facts={"version": __version__})
    yield Line(None, "Python", f"{platform.python_version()} on {platform.platform()}")
    for name in ("numpy", "ml_dtypes", "psutil", "rich"):
        yield Line(None, name, _version(name) or "not installed")
    yield Line(None, "jaxlib", backend.JAXLIB_VERSION)
    for name, use in (("tensorstore", "checkpoints"), ("scipy", "sparse matrices of SciPy")):
        yield Line(None, name, _version(name) or f"not installed; required by {use}")
    plugins = [f"jax-cuda{v}-plugin" for v in ("13", "12")]
    found = [(name, version) for name in plugins if (version := _version(name))]
    for name, version in found:
        if version == backend.JAXLIB_VERSION:
            yield Line(True, name, version)
            continue
        text = f"{version}, but jaxlib is {backend.JAXLIB_VERSION}: the versions must match"
        yield Line(False, name, text, f"pip install {name}=={backend.JAXLIB_VERSION}")
    if not found:
        yield Line(None, "plugin for GPUs", "none (pip install 'shardwise[cuda13]')")
    yield from _compilers()


def _compilers() -> Iterator[Line]:
    """The compilers for machines that are not attached."""
    for name, module in (("GPUs", cuda), ("TPUs", tpu)):
        title, version = f"compiler for {name}", module.compiler_version()
        if version is None:
            yield Line(None, title, f"none (pip install '{module.COMPILER}')")
            continue
        try:
            module.check_compiler()
        except ImportError as error:
            text, _, advice = str(error).rpartition(": ")
            yield Line(False, title, text, advice)
        else:
            yield Line(True, title, version)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


# ------------------------------------------------------------------------------------- devices

DEVICES = """
import json
import shardwise as sw
rows = []
for device in sw.devices():
    stats = device.memory_stats() or {}
    rows.append([device.platform, device.device_kind, stats.get("bytes_limit", 0)])
print(json.dumps(rows))
"""


def devices(clock: Clock) -> Iterator[Line]:
    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    if asked is not None:
        yield Line(None, "CUDA_VISIBLE_DEVICES", repr(asked))
    if os.environ.get("XLA_FLAGS"):
        yield Line(None, "XLA_FLAGS", os.environ["XLA_FLAGS"])
    here = os.path.exists("/dev/nvidiactl") and asked != ""
    usable = cuda.available()
    text = "visible" if usable else "none that can be used"
    advice = "there are GPUs, but no plugin for them: pip install 'shardwise[cuda13]'"
    yield Line(None, "NVIDIA GPUs", text, advice if here and not usable else "")
    ran = run_program(DEVICES, [sys.executable], [], clock.left(20.0))
    if not ran.ok:
        yield Line(False, "devices", ran.text, "the last lines show why the start failed")
        return
    rows = [tuple(row) for row in json.loads(ran.text.splitlines()[-1])]
    text = "\n".join(
        [
            f"{rows.count(row)} x {row[0]}: {row[1]}"
            + (f", {row[2] / GIB:.1f} GiB" if row[2] else "")
            for row in dict.fromkeys(rows)
        ]
    )
    text += f"\nstarted in {ran.seconds:.1f} s"
    advice = "starting is slow: is the disk slow, or are all processors busy?"
    facts = {"devices": rows, "seconds": ran.seconds}
    yield Line(True, "devices", text, advice if ran.seconds > 8 else "", facts)


def machine() -> Iterator[Line]:
    """Processors and memory of the host, and their limits."""
    import psutil

    usable, quota = len(os.sched_getaffinity(0)), _quota()
    cores = min(usable, quota or usable)
    limited = f"; a quota of {quota:.1f}" if quota and quota < usable else ""
    load = os.getloadavg()[0]
    text = f"{usable} of {os.cpu_count()}{limited}, load {load:.1f}"
    advice = "other programs keep the processors busy: programs will run slower than they could"
    facts = {"cores": cores, "load": load}
    yield Line(None, "processors", text, advice if load > 1.5 * cores else "", facts)
    memory = psutil.virtual_memory()
    limit = _number("/sys/fs/cgroup/memory.max")
    total = min(memory.total, limit or memory.total)
    free = min(memory.available, total)
    text = f"{free / GIB:.1f} GiB free of {total / GIB:.1f} GiB"
    advice = "little memory is free: programs may be killed (SIGKILL)"
    facts = {"free": free, "total": total}
    yield Line(None, "memory", text, advice if free < LITTLE_MEMORY else "", facts)


def _quota() -> float | None:
    """The container's CPU quota, in processors."""
    with suppress(OSError, ValueError, ZeroDivisionError):
        share, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return int(share) / int(period)
    return None


def _number(path: str) -> int | None:
    with suppress(OSError, ValueError):
        return int(Path(path).read_text())
    return None


# -------------------------------------------------------------------------------------- caches


def caches() -> Iterator[Line]:
    """The compiled programs on disk: location, number, and whether caching and lookup work."""
    name, cache = "compiled programs", disk_cache()
    if cache is None:
        text = "are not cached on disk (`enable_compilation_cache`)"
        advice = (
            "each process compiles its programs again: set SHARDWISE_ENABLE_COMPILATION_CACHE=1"
        )
        yield Line(None, name, text, advice)
        return
    folder = cache.folder
    there = next(p for p in (folder, *folder.parents) if p.exists())
    if not _writable(there):
        advice = "set SHARDWISE_COMPILATION_CACHE_DIR to a folder that you can write to"
        yield Line(False, name, f"{folder} is not writable", advice)
        return
    sizes = [p.stat().st_size for p in folder.glob("*.program")]
    limit = "no limit" if cache.limit < 0 else f"at most {cache.limit / GIB:.1f} GiB"
    free = shutil.disk_usage(there).free
    text = f"{folder}: {len(sizes)}, {sum(sizes) / 2**20:.1f} MiB in all, {limit}"
    facts = {"folder": str(folder), "programs": len(sizes), "bytes": sum(sizes)}
    yield Line(True, name, text, facts=facts)
    full = "the disk is nearly full: no more programs will be cached" if free < LITTLE_DISK else ""
    yield Line(None, "free on its disk", f"{free / GIB:.1f} GiB", full, {"free": free})
    name, least = "found again", config.persistent_cache_min_compile_time_secs.value
    if "--xla_dump_" in os.environ.get("XLA_FLAGS", ""):
        text = "nothing: XLA_FLAGS requests dumps, so all programs are compiled again"
        yield Line(None, name, text, "remove --xla_dump_to from XLA_FLAGS")
    else:
        text = f"programs that took {least:g} s or longer to compile, with the same jaxlib, "
        yield Line(None, name, f"{text}processor, devices and XLA_FLAGS")


def _writable(folder: Path) -> bool:
    """Whether a file can be created; also False for a full or read-only disk."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(b"x" * 4096)
            file.flush()
        return True
    except OSError:
        return False


# ------------------------------------------------------------------------------------- cluster


def clusters() -> Iterator[Line]:
    """The detected clusters, which of them applies, and the source of each fact."""
    here = Surroundings()
    for detector in DETECTORS:
        unset = [sign for sign in detector.signs if sign not in here.env]
        if detector.signs and len(unset) < len(detector.signs):
            if unset:
                why = f"only some of its variables are set; missing: {', '.join(unset)}"
            elif detector.is_other(here.env):
                why = "detected, as part of Slurm"
            else:
                why = f"detected: {', '.join(detector.signs)} are set"
            yield Line(None, detector.name, why)
    found = present(here)
    if len(found) > 1:
        others = ", ".join(d.name for d in found[1:])
        why = "it started this process most directly (to choose another: cluster_detection_method)"
        yield Line(None, "selected", f"{found[0].name}, before {others}: {why}")
    yield from _resolved(here)
    if _version("mpi4py"):
        yield Line(None, "mpi4py", "is installed: used with cluster_detection_method='mpi4py'")


def _resolved(here: Surroundings) -> Iterator[Line]:
    try:
        resolved = resolve(None, None, None, None, None, here)
    except ValueError as error:
        yield Line(False, "arguments", str(error))
        return
    if not resolved.cluster and not resolved.sources:
        text = "none: programs run in one process, except under `shardwise launch`"
        yield Line(None, "cluster", text)
        return
    for field, name in ARGUMENTS.items():
        value, source = getattr(resolved.place, field), resolved.sources.get(field)
        text = f"{value}  (by {source}; {_override(name, source)})" if source else "not known"
        yield Line(None, name, text, facts={"value": value, "source": source})
    try:
        complete(resolved)
        yield Line(True, "initialize()", "has all required arguments")
    except ValueError as error:
        yield Line(False, "initialize()", str(error).removeprefix("initialize: "))


def _override(name: str, source: str) -> str:
    """A message about the setting that would take precedence."""
    variable = f"SHARDWISE_{name.upper()}"
    other = f"{name}= takes" if source == variable else f"{variable} or {name}= take"
    return f"{other} precedence"


# ------------------------------------------------------------------------------------- network


def network() -> Iterator[Line]:
    found = sorted(name for name in os.environ if name.lower().endswith("_proxy"))
    text = f"{', '.join(found)}: not used between processes" if found else "none"
    yield Line(None, "proxies", text)
    files = [config.mtls_cert_file, config.mtls_key_file, config.mtls_ca_file]
    given = [flag.name for flag in files if flag.value]
    if not processes.HAS_TLS:
        why = (
            f"jaxlib {backend.JAXLIB_VERSION} does not support it between processes; 0.11.2 and "
            "later do"
        )
        yield Line(False if given else None, "TLS", why)
    elif not given:
        yield Line(None, "TLS", "available, but not enabled (`mtls_cert_file`, SECURITY.md)")
    else:
        bad = ", ".join(f.name for f in files if not (f.value and os.path.isfile(f.value)))
        yield Line(not bad, "TLS", f"missing file for {bad}" if bad else "all files exist")


def ports() -> Iterator[Line]:
    """Whether this machine can listen and connect, on loopback and on its external address."""
    yield _connects("loopback", "127.0.0.1")
    resolved: Resolved | None = None
    with suppress(ValueError):  # reported in the section `cluster`
        resolved = resolve(None, None, None, None, None, Surroundings())
    address = resolved.place.address if resolved else None
    host, port = socket.gethostname(), 9
    if address:
        with suppress(ValueError):
            host, port = address_of("coordinator_address", address)
    try:
        own = address_towards(host, port)
    except OSError as error:
        text = f"{host} cannot be resolved: {error}"
        advice = "use addresses instead of host names, or fix /etc/hosts or the DNS"
        yield Line(False if address else None, "own address", text, advice)
        return
    if is_loopback(own):
        yield Line(None, "own address", f"{own} ({host}): other machines cannot reach it")
    else:
        yield _connects("own address", own, f" (towards {host})" if address else "")
    if resolved and address and not resolved.place.started and resolved.place.index == 0:
        yield _free(own if not is_loopback(host) else host, port)


def _connects(name: str, host: str, end: str = "") -> Line:
    try:
        with socket.socket(_family(host)) as listener:
            listener.bind((host, 0))
            listener.listen()
            listener.settimeout(2.0)
            begin = time.perf_counter()
            with socket.create_connection(listener.getsockname()[:2], timeout=2.0) as one:
                two, _ = listener.accept()
                with two:
                    two.settimeout(2.0)
                    one.sendall(b"x")
                    if two.recv(1) != b"x":
                        raise OSError("the data did not arrive")
            seconds = time.perf_counter() - begin
    except OSError as error:
        advice = "a firewall or a sandbox blocks it, so processes cannot find each other"
        return Line(False, name, f"{host}{end} cannot listen or connect: {error}", advice)
    text = f"{host}{end} can listen and connect, in {seconds * 1e6:.0f} us"
    return Line(True, name, text, facts={"host": host, "seconds": seconds})


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _free(host: str, port: int) -> Line:
    """Whether the coordinator's port is available to process 0."""
    name = "coordinator's port"
    try:
        with socket.socket(_family(host)) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
    except OSError as error:
        advice = (
            "another program uses it, or the address does not belong to this machine: set "
            "SHARDWISE_COORDINATOR_PORT or SHARDWISE_COORDINATOR_ADDRESS"
        )
        return Line(False, name, f"{host}:{port}: {error.strerror or error}", advice)
    return Line(True, name, f"{host}:{port} is free")
