"""Programs on disk: stored, found, rejected, evicted; many processes, damage, full disks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.base import context
from shardwise._src.base.config import config
from shardwise._src.base.context import ROOT
from shardwise._src.compiling import disk_cache, module_cache
from shardwise._src.compiling.disk_cache import FORMAT, DiskCache, default_folder, key_of
from shardwise._src.runtime.backend import RuntimeFailure
from shardwise._src.runtime.compiler import fingerprint
from shardwise._src.runtime.compiler.modules import LoadedModule
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

REPOSITORY = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(autouse=True)
def flags_restored() -> Iterator[None]:
    before = dict(ROOT.flags)
    yield
    context.update_root(flags=before)
    sw.clear_caches()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for the cache, which is enabled and stores every program."""
    where = tmp_path / "cache"
    config.update("jax_enable_compilation_cache", True)
    config.update("jax_compilation_cache_dir", where)
    config.update("jax_persistent_cache_min_compile_time_secs", 0)
    sw.clear_caches()
    return where


def programs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.program")) if folder.exists() else []


def sources(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The sources of the programs since the last call: compiled, loaded or found."""
    lines = [r.getMessage() for r in caplog.records if r.name == "shardwise.jit"]
    caplog.clear()
    return [line.split()[0] for line in lines if not line.startswith("traced")]


def poly(x):
    return (jnp.sin(x) * 2 + x @ x.T).sum(0)


# --------------------------------------------------------------- a loaded program is the program

MESH = Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y"))
X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)


def test_what_is_loaded_is_what_was_compiled(folder, caplog):
    x = sw.device_put(X, NamedSharding(MESH, P("x", "y")))

    def once():
        sw.clear_caches()
        f = sw.jit(poly)
        exe = f.lower(x).compile()
        return exe, f(x)

    with sw.log_compiles(True):
        (first, y), (second, z) = once(), once()
    assert sources(caplog) == ["compiled", "found", "loaded", "found"]
    np.testing.assert_array_equal(np.asarray(y), np.asarray(z))
    assert y.sharding == z.sharding and first.output_shardings == second.output_shardings
    ours, theirs = first.executable.module, second.executable.module
    assert ours is not theirs and ours.has_collectives and theirs.has_collectives
    assert ours.window is theirs.window is not None
    assert first.as_text().count("all-") == second.as_text().count("all-") > 0
    assert first.cost_analysis()["flops"] == second.cost_analysis()["flops"]
    sizes = ("argument_size_in_bytes", "output_size_in_bytes", "temp_size_in_bytes")
    for size in sizes:
        assert getattr(first.memory_analysis(), size) == getattr(second.memory_analysis(), size)


def test_a_loaded_program_knows_of_its_collectives_without_its_text(folder, monkeypatch):
    x = sw.device_put(X, NamedSharding(MESH, P("x", "y")))
    sw.jit(poly)(x)
    sw.clear_caches()
    monkeypatch.setattr("shardwise._src.runtime.compiler.modules._communicates", None)
    assert sw.jit(poly).lower(x).compile().executable.module.has_collectives


def test_donation_survives(folder, caplog):
    with sw.log_compiles(True):
        for _ in range(2):
            sw.clear_caches()
            x = jnp.arange(4096.0) + 0
            pointer = x.unsafe_buffer_pointer()
            f = sw.jit(lambda a: a * 2, donate_argnums=0)
            y = f(x)
            assert y.unsafe_buffer_pointer() == pointer and x.is_deleted()
            np.testing.assert_array_equal(np.asarray(y), np.arange(4096) * 2)
    assert sources(caplog).count("loaded") >= 1


def test_eager_ops_are_kept_too(folder, caplog):
    with sw.log_compiles(True):
        jnp.sin(jnp.ones(3))
        sw.clear_caches()
        jnp.sin(jnp.ones(3))
    assert sources(caplog) == ["compiled", "compiled", "loaded", "loaded"]
    assert len(programs(folder)) == 2


def test_only_what_took_time_and_room_is_kept(folder):
    config.update("persistent_cache_min_compile_time_secs", 1000.0)
    sw.jit(poly)(X)
    assert programs(folder) == []
    config.update("persistent_cache_min_compile_time_secs", 0.0)
    config.update("persistent_cache_min_entry_size_bytes", 1 << 30)
    sw.clear_caches()
    sw.jit(poly)(X)
    assert programs(folder) == []
    config.update("persistent_cache_min_entry_size_bytes", -1)
    sw.clear_caches()
    sw.jit(poly)(X)
    assert len(programs(folder)) == 1


def test_it_can_be_turned_off(folder, caplog):
    sw.jit(poly)(X)
    sw.clear_caches()
    config.update("enable_compilation_cache", False)
    with sw.log_compiles(True):
        sw.jit(poly)(X)
    assert sources(caplog) == ["compiled"] and len(programs(folder)) == 1


def test_who_asks_xla_for_dumps_gets_them(folder, tmp_path, monkeypatch):
    for _ in range(2):
        sw.clear_caches()
        dump = tmp_path / f"dump{len(list(tmp_path.iterdir()))}"
        sw.jit(poly, compiler_options={"xla_dump_to": str(dump)})(X)
        assert list(dump.iterdir())
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/somewhere")
    sw.clear_caches()
    sw.jit(poly)(X)
    assert programs(folder) == []


def test_programs_that_call_the_host_are_kept_nowhere(folder):
    text = """module @jit_host { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
      %r = stablehlo.custom_call @xla_ffi_python_cpu_callback(%a) {api_version = 4 : i32,
        has_side_effect = false, backend_config = {index = 0 : ui64}}
        : (tensor<4xf32>) -> tensor<4xf32>
      return %r : tensor<4xf32> } }"""
    x = sw.device_put(np.arange(4, dtype=np.float32))
    held, before = len(module_cache._modules), len(programs(folder))
    for factor in (2, 3):  # each call gets its own function
        program = module_cache.loaded_for(
            text, tuple(sw.devices()[:1]), (), callbacks=(lambda a, n=factor: (np.asarray(a) * n,),)
        )
        (raw,) = program.launch([x._impl], [x._sig.handler])
        np.testing.assert_array_equal(np.asarray(raw), np.arange(4) * factor)
    assert (len(module_cache._modules), len(programs(folder))) == (held, before)


# ------------------------------------------------------------------------- what keys distinguish


def test_another_program_device_option_or_runtime_is_another_file(folder, monkeypatch):
    def kept(**options) -> int:
        sw.clear_caches()
        sw.jit(poly, **options)(X)
        return len(programs(folder))

    assert kept() == kept() == 1
    assert kept(device=sw.devices()[1]) == 2
    assert kept(compiler_options={"xla_cpu_enable_fast_math": True}) == 3
    assert kept(compiler_options={"xla_cpu_enable_fast_math": False}) == 4
    monkeypatch.setattr(fingerprint, "JAXLIB_VERSION", "0.0.1")
    assert kept() == 5
    monkeypatch.setattr(fingerprint, "_machine", lambda: b"another processor")
    assert kept() == 6
    monkeypatch.setattr(fingerprint, "_environment", lambda: b"[('XLA_FLAGS', '--xla_other')]")
    assert kept() == kept() == 7


def test_the_processor_is_told_by_what_does_not_change():
    facts = fingerprint._machine().decode()
    assert os.uname().machine in facts and "MHz" not in facts and "processor" not in facts
    if Path("/proc/cpuinfo").exists():
        assert len(facts.splitlines()) > 1


def test_keys_keep_their_parts_apart():
    keys = {key_of(parts) for parts in ([b"ab", b"c"], [b"a", b"bc"], [b"abc"], [b"abc", b""])}
    assert len(keys) == 4 and all(len(key) == 64 for key in keys)


# ------------------------------------------------------------------------------ damage, full disks


DAMAGE = {
    "cut": lambda data: data[: len(data) // 2],
    "only a head": lambda data: data[:20],
    "empty": lambda data: b"",
    "a byte flipped": lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
    "another format": lambda data: data.replace(FORMAT, b"shardwise program 0\n"),
    "something else": lambda data: b"\x00" * len(data),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_file_is_replaced(folder, caplog, how):
    sw.jit(poly)(X)
    (path,) = programs(folder)
    good = path.read_bytes()
    path.write_bytes(DAMAGE[how](good))
    sw.clear_caches()
    caplog.clear()
    sw.jit(poly)(X)
    (line,) = [r.getMessage() for r in caplog.records if r.name == "shardwise.cache"]
    assert line == f"{path} is damaged; its program is compiled again."
    assert path.read_bytes()[: len(FORMAT)] == FORMAT and DiskCache(folder, -1).read(path.stem)


def test_a_file_that_jaxlib_cannot_load_is_replaced(folder, caplog):
    sw.jit(poly)(X)
    (path,) = programs(folder)
    for junk in (b"", b"\x00no executable"):
        DiskCache(folder, -1).write(path.stem, junk)
        sw.clear_caches()
        caplog.clear()
        np.testing.assert_allclose(sw.jit(poly)(X), poly(jnp.asarray(X)), rtol=1e-5, atol=1e-6)
        (line,) = [r.getMessage() for r in caplog.records if r.name == "shardwise.cache"]
        assert line == f"{path} cannot be loaded; its program is compiled again."


def test_the_least_recently_used_goes_first(tmp_path):
    cache = DiskCache(tmp_path, 10_000)
    for i in range(9):
        cache.write(f"{i}", bytes(1000 - len(FORMAT) - 32))
        os.utime(tmp_path / f"{i}.program", (i, i))
    assert cache.read("0") is not None  # used just now
    cache = DiskCache(tmp_path, 5_000)  # another process with a smaller limit
    cache.write("new", bytes(900))
    assert {p.stem for p in programs(tmp_path)} == {"0", "new", "7", "8"}
    assert sum(p.stat().st_size for p in programs(tmp_path)) <= 5_000


def test_the_limit_holds_after_every_write(tmp_path):
    cache = DiskCache(tmp_path, 20_000)
    for i in range(100):
        cache.write(f"{i:03}", bytes(300 + 7 * i))
        assert sum(p.stat().st_size for p in programs(tmp_path)) <= 20_000
        assert programs(tmp_path)[-1].stem == f"{i:03}"
    assert len(programs(tmp_path)) > 12


def test_what_is_larger_than_the_limit_is_not_kept_and_throws_nothing_out(tmp_path):
    cache = DiskCache(tmp_path, 1000)
    cache.write("small", bytes(100))
    cache.write("large", bytes(1000))
    assert [p.stem for p in programs(tmp_path)] == ["small"]
    DiskCache(tmp_path, 0).write("none", b"")
    DiskCache(tmp_path, -1).write("any", bytes(5000))
    assert [p.stem for p in programs(tmp_path)] == ["any", "small"]


def test_other_files_and_unfinished_ones_of_others_are_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_bytes(bytes(5000))
    (tmp_path / "a.1.program.tmp").write_bytes(bytes(10))
    (tmp_path / "b.2.program.tmp").write_bytes(bytes(10))
    os.utime(tmp_path / "b.2.program.tmp", (0, time.time() - 2 * disk_cache.STALE))
    DiskCache(tmp_path, 1000).write("new", bytes(100))
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "a.1.program.tmp",
        "new.program",
        "notes.txt",
    ]


def test_a_folder_that_cannot_be_used_is_logged_once(tmp_path, caplog):
    (tmp_path / "file").write_text("no folder")
    cache = DiskCache(tmp_path / "file" / "cache", -1)
    for key in ("a", "b"):
        cache.write(key, b"content")
        assert cache.read(key) is None
    (line,) = [r.getMessage() for r in caplog.records]
    folder = tmp_path / "file" / "cache"
    assert line == (
        f"no compiled programs are stored in {folder}: [Errno 20] Not a directory: '{folder}'"
    )


NO_ROOM = """
import resource, sys
from pathlib import Path
from shardwise._src.compiling.disk_cache import DiskCache
resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
cache = DiskCache(Path(sys.argv[1]), -1)
for key in ("a", "b"):
    cache.write(key, bytes(1000))
"""


def test_a_file_that_does_not_fit_is_logged_once_and_leaves_nothing(tmp_path):
    process = start(NO_ROOM, str(tmp_path))
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (
        0,
        f"no compiled programs are stored in {tmp_path}: [Errno 27] File too large\n",
    )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_may_only_be_read_still_gives_what_it_has(folder, monkeypatch, caplog):
    sw.jit(poly)(X)
    sw.clear_caches()

    def denied(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "utime", denied)
    monkeypatch.setattr(Path, "mkdir", denied)
    disk_cache._opened.cache_clear()
    with sw.log_compiles(True):
        sw.jit(poly)(X)
        sw.jit(lambda a: a - 41)(X)
    assert sources(caplog) == ["loaded", "compiled"] and len(programs(folder)) == 1


def test_a_folder_that_disappears_is_made_again(tmp_path):
    cache = DiskCache(tmp_path / "cache", 10_000)
    cache.write("a", b"1")
    (tmp_path / "cache" / "a.program").unlink()
    (tmp_path / "cache").rmdir()
    assert cache.read("a") is None
    cache.write("b", b"2")
    assert cache.read("b") == b"2"
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


def test_a_platform_that_cannot_serialize_is_no_error(folder, monkeypatch):
    def reject(self):
        raise RuntimeFailure("UNIMPLEMENTED")

    monkeypatch.setattr(LoadedModule, "serialize", reject)
    sw.jit(poly)(X)
    assert programs(folder) == []


def test_the_default_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "shardwise"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert default_folder() == Path("/home/somebody/.cache/shardwise")


def test_remote_folders_are_refused():
    with pytest.raises(ValueError) as caught:
        config.update("compilation_cache_dir", "gs://bucket/cache")
    assert str(caught.value) == (
        "compilation_cache_dir must be a folder on this machine; got 'gs://bucket/cache'. Mount "
        "remote storage, or copy the folder."
    )


# ------------------------------------------------------------------------------------ processes

USE = """
import sys, logging
logging.basicConfig(stream=sys.stdout, format="%(message)s")
import shardwise as sw, shardwise.numpy as jnp
sw.config.update("log_compiles", True)
x = sw.device_put(__import__("numpy").ones((8, 8), "float32"))
f = sw.jit(lambda a: jnp.tanh(a @ a).sum() + a.mean())
print("result", float(f(x)))
"""
WRITE = """
import sys
from pathlib import Path
from shardwise._src.compiling.disk_cache import DiskCache
cache, content = DiskCache(Path(sys.argv[1]), 3_000_000), bytes(range(256)) * 4000
print("ready", flush=True)
for i in range(int(sys.argv[2])):
    key = f"{i % 7}"
    cache.write(key, content)
    assert cache.read(key) in (None, content)
"""


def start(program: str, *arguments: str, **variables: str) -> subprocess.Popen:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SHARDWISE_")}
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=REPOSITORY,
        env=environment | variables,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def test_a_second_process_finds_the_programs_of_the_first_where_the_user_keeps_caches(tmp_path):
    variables = {"XDG_CACHE_HOME": str(tmp_path), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    first = finish(start(USE, **variables, PYTHONHASHSEED="1"))
    second = finish(start(USE, **variables, PYTHONHASHSEED="2"))
    assert first.splitlines()[-1] == second.splitlines()[-1]
    assert "compiled _lambda_" in first and "loaded" not in first
    assert "loaded _lambda_ from disk" in second and "compiled" not in second
    assert programs(tmp_path / "shardwise")


def test_processes_that_write_at_the_same_time(tmp_path):
    writers = [start(WRITE, str(tmp_path), "60") for _ in range(2)]
    for writer in writers:
        finish(writer)
    assert all(DiskCache(tmp_path, -1).read(p.stem) for p in programs(tmp_path))
    assert all(p.name.endswith(".program") for p in tmp_path.iterdir())
    # Each of the two may have counted before the other one wrote.
    assert sum(p.stat().st_size for p in programs(tmp_path)) <= 3_000_000 + 1_100_000


def test_a_process_that_is_killed_while_it_writes(tmp_path, caplog):
    for i in range(6):
        writer = start(WRITE, str(tmp_path), "1000000")
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
        time.sleep(0.01 + 0.013 * i)
        writer.send_signal(signal.SIGKILL)
        writer.communicate(timeout=60)
    cache = DiskCache(tmp_path, 3_000_000)
    assert programs(tmp_path) and all(cache.read(p.stem) for p in programs(tmp_path))
    assert not caplog.records
    for left in tmp_path.glob("*.tmp"):
        os.utime(left, (0, 0))
    cache.write("new", b"1")
    assert not list(tmp_path.glob("*.tmp"))
