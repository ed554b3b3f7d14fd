"""`shardwise doctor`: what it finds, and that it notices what is wrong."""

import os
import re
import subprocess
import sys

import pytest

import shardwise as sw
from shardwise._src.cli import doctor, main
from shardwise._src.cli.doctor import Line
from shardwise._src.runtime.backend import JAXLIB_VERSION
from shardwise._src.runtime.processes import HAS_TLS
from tests.distributed import recorded

# What may stand in the environment of these tests themselves.
OURS = ("SLURM", "PMI", "OMPI", "MPI_", "SHARDWISE_", "JAX_", "KUBERNETES", "JOB_", "RANK", "WORLD")


@pytest.fixture
def cluster(monkeypatch):
    """Sets the environment, and gives what is found of clusters then."""
    for name in os.environ:
        if name.startswith(OURS):
            monkeypatch.delenv(name)

    def found(env):
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        return [line for line in doctor.clusters() if line.name != "mpi4py"]

    return found


def test_the_whole_command_where_all_is_well():
    line = [sys.executable, "-m", "shardwise", "doctor"]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SHARDWISE_", "JAX_"))}
    ended = subprocess.run(
        line, env=env | {"SHARDWISE_PLATFORMS": "cpu"}, capture_output=True, text=True, timeout=100
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    out = ended.stdout
    assert re.findall(r"^\w+$", out, re.MULTILINE) == list(doctor.SECTIONS)
    assert f"     jaxlib               {JAXLIB_VERSION}\n" in out
    assert re.search(r"  ok one process          psum over 8 devices in \d+ us \(", out)
    assert re.search(r"  ok two processes        psum over 4 devices in \d+ us \(", out)
    assert out.endswith("\n\nall is well\n")


def test_what_is_wrong_is_counted(monkeypatch, capsys):
    def bad():
        yield Line(False, "a thing", "is broken\nin two ways")
        yield Line(True, "another", "works")
        yield Line(None, "a third", "")

    monkeypatch.setattr(doctor, "SECTIONS", {"things": bad})
    assert main(["doctor"]) == 1
    assert capsys.readouterr().out == (
        "things\n"
        "  !! a thing              is broken\n"
        "                          in two ways\n"
        "  ok another              works\n"
        "     a third              \n"
        "\n1 problem found\n"
    )


def test_its_arguments(capsys):
    assert main(["doctor", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: shardwise doctor\n")
    assert main(["doctor", "--loudly"]) == 2
    assert capsys.readouterr().err.startswith("usage: shardwise doctor\n")


@pytest.mark.parametrize("program, text", [
    ("raise ValueError('no collectives today')", "ValueError: no collectives today"),
    ("import os; os.abort()", "failed with status -6"),
])
def test_programs_that_fail(monkeypatch, program, text):
    monkeypatch.setattr(doctor, "COLLECTIVES", program)
    alone, together = doctor.self_test()
    assert (alone.ok, together.ok) == (False, False)
    assert text in alone.text


def test_programs_that_do_not_end(monkeypatch):
    monkeypatch.setattr(doctor, "COLLECTIVES", "import time; time.sleep(60)")
    monkeypatch.setattr(doctor, "SECONDS", 0.5)
    alone, together = doctor.self_test()
    assert alone == Line(False, "one process", "did not end within 0 s")
    assert together.text.startswith("not all processes ended within 0.5 s")


# ----------------------------------------------------------------------------------- clusters


def test_no_cluster(cluster):
    text = "none: programs are of one process, but for `shardwise launch`"
    assert cluster({}) == [Line(None, "cluster", text)]


def test_a_cluster_and_what_overrides_it(cluster):
    env = recorded.SLURM | {"JAX_COORDINATOR_ADDRESS": "10.0.0.1:1234"}
    assert cluster(env) == [
        Line(None, "slurm", "is here"),
        Line(None, "coordinator_address", "10.0.0.1:1234  (by JAX_COORDINATOR_ADDRESS)"),
        Line(None, "num_processes", "2  (by slurm)"),
        Line(None, "process_id", "1  (by slurm)"),
        Line(None, "local_device_ids", "(1,)  (by slurm)"),
        Line(True, "initialize()", "knows all that it needs"),
    ]


def test_several_clusters(cluster):
    found = cluster(recorded.MPICH_IN_SLURM)
    assert found[:3] == [
        Line(None, "pmi", "is here"),
        Line(None, "slurm", "is here"),
        Line(None, "which one counts", "pmi, before slurm: it is what started this process most "
             "directly (else: cluster_detection_method)"),
    ]
    assert found[4] == Line(None, "num_processes", "2  (by pmi)")


def test_a_cluster_that_does_not_say_all(cluster):
    found = cluster(recorded.MPICH | {"PMI_SIZE": "4"})
    assert found[1] == Line(None, "coordinator_address", "not known")
    assert found[-1] == Line(
        False, "initialize()",
        "coordinator_address: not given, and 'pmi' does not say. On several hosts, PMI does not "
        "say where process 0 runs. Set SHARDWISE_COORDINATOR_ADDRESS, or install mpi4py and pass "
        "cluster_detection_method='mpi4py'. `shardwise doctor` shows what is found.",
    )


def test_signs_that_are_not_all_there(cluster):
    found = cluster(recorded.SLURM_BATCH)
    assert found[0] == Line(None, "slurm", "not all of its signs: SLURM_STEP_NODELIST not set")
    assert found[1].name == "cluster"


def test_a_part_of_slurm(cluster):
    found = cluster(recorded.SLURM_PMI2)
    assert found[0] == Line(None, "pmi", "is here, as part of Slurm")
    assert found[1] == Line(None, "slurm", "is here")


def test_a_variable_that_cannot_be(cluster):
    found = cluster({"JAX_NUM_PROCESSES": "two"})
    assert found == [Line(
        False, "arguments", "initialize: the environment variable JAX_NUM_PROCESSES must be an "
        "integer; it is 'two'.",
    )]


# ------------------------------------------------------------------------------------ the rest


def test_proxies(monkeypatch):
    for name in [n for n in os.environ if n.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    assert next(doctor.network()) == Line(None, "proxies", "none")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "localhost")
    assert next(doctor.network()) == Line(
        None, "proxies", "HTTPS_PROXY, no_proxy: are not used between processes"
    )


def test_files_for_tls(tmp_path):
    cert = tmp_path / "cert.pem"
    cert.touch()
    without = f"jaxlib {JAXLIB_VERSION} has none between processes; 0.11 and later have"
    there = "is there, and not asked for (`mtls_cert_file`, SECURITY.md)"
    assert list(doctor.network())[1] == Line(None, "TLS", there if HAS_TLS else without)
    sw.config.update("mtls_cert_file", str(cert))
    try:
        text = "no file for mtls_key_file, mtls_ca_file"
        assert list(doctor.network())[1] == Line(False, "TLS", text if HAS_TLS else without)
    finally:
        sw.config.update("mtls_cert_file", None)


@pytest.fixture
def cache_at():
    """Has the cache of compiled programs in another folder."""
    names = ("enable_compilation_cache", "compilation_cache_dir")
    before = {name: getattr(sw.config, name) for name in names}
    sw.config.update("enable_compilation_cache", True)
    yield lambda folder: sw.config.update("compilation_cache_dir", str(folder))
    for name, value in before.items():
        sw.config.update(name, value)


def test_the_cache(tmp_path, cache_at):
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "cache"
    cache_at(folder)
    text = f"{folder} cannot be written to"
    assert list(doctor.caches()) == [Line(False, "compiled programs", text)]
    cache_at(tmp_path / "new")
    text = f"{tmp_path / 'new'}: 0 of 0.0 MiB"
    assert list(doctor.caches()) == [Line(True, "compiled programs", text)]
    sw.config.update("enable_compilation_cache", False)
    text = "are not kept on disk (`enable_compilation_cache`)"
    assert list(doctor.caches()) == [Line(None, "compiled programs", text)]
