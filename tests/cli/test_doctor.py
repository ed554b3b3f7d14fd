"""`shardwise doctor`: its findings, and the problems that it detects."""

import json
import os
import re
import socket
import subprocess
import sys
import threading

import psutil
import pytest

import shardwise as sw
from shardwise._src.cli import checks, doctor, main, selftest
from shardwise._src.cli.findings import Clock, Line, Ran, run_program, within
from shardwise._src.runtime.backend import JAXLIB_VERSION
from shardwise._src.runtime.processes import HAS_TLS
from tests.distributed import recorded
from tests.helpers.everyday import everyday
from tests.helpers.patience import seconds

# Variables that may be set in the environment of these tests.
SLURM_IS_HERE = "detected: SLURM_JOB_ID, SLURM_STEP_NODELIST, SLURM_PROCID, SLURM_LOCALID are set"
OURS = ("SLURM", "PMI", "OMPI", "MPI_", "SHARDWISE_", "JAX_", "KUBERNETES", "JOB_", "RANK", "WORLD")


@pytest.fixture
def cluster(monkeypatch):
    """Sets the environment, and returns the findings about clusters."""
    for name in os.environ:
        if name.startswith(OURS):
            monkeypatch.delenv(name)

    def found(env):
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        return [line._replace(facts={}) for line in checks.clusters() if line.name != "mpi4py"]

    return found


def command(*words):
    """Runs the command, with enough time for the busiest machine."""
    limit = max(600, seconds(doctor.SECONDS))
    program = (
        f"import sys; from shardwise._src.cli import doctor, main; doctor.SECONDS = doctor.QUICK = {limit}; "
        f"sys.exit(main(['doctor', *sys.argv[1:]]))"
    )
    line = [sys.executable, "-c", program, *words]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SHARDWISE_", "JAX_"))}
    return subprocess.run(
        line,
        env=env | {"SHARDWISE_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=2 * limit,
    )


KINDS = ["all-reduce", "all-gather", "all-to-all", "permute"]


def test_the_whole_command_where_all_is_well():
    ended = command("--json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    record = json.loads(ended.stdout)
    assert (record["problems"], record["shardwise"]) == (0, sw.__version__)
    assert record["seconds"] > 0
    assert list(record["sections"]) == [
        "versions",
        "devices",
        "machine",
        "caches",
        "cluster",
        "network",
        "collectives",
    ]
    found = {line["name"]: line for lines in record["sections"].values() for line in lines}
    assert found["jaxlib"]["text"] == JAXLIB_VERSION
    assert found["loopback"]["ok"] and found["loopback"]["facts"]["seconds"] > 0
    assert found["memory"]["facts"]["total"] > found["memory"]["facts"]["free"] > 0
    for name, count in (("one process", 8), ("two processes", 4)):
        assert found[name]["ok"], found[name]
        rows = found[name]["facts"]["measured"]
        assert [row["collective"] for row in rows] == KINDS * 2
        assert [row["bytes"] for row in rows] == [256] * 4 + [1 << 20] * 4
        assert all(row["devices"] == count and row["seconds"] > 0 for row in rows)


def quickly():
    ended = command("--quick")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    out = ended.stdout
    names = ["versions", "devices", "machine", "caches", "cluster", "network", "collectives"]
    assert re.findall(r"^\w+$", out, re.MULTILINE) == names
    assert f"     jaxlib               {JAXLIB_VERSION}\n" in out
    assert "  ok one process          collectives over 8 virtual CPU devices return" in out
    for kind in KINDS:
        measured = r"256 bytes per device: +[\d,]+ us\n"
        assert re.search(f"       {kind} +{measured}", out)
    assert "two processes" not in out
    assert re.search(r"\n\neverything works(; \d+ things? can be improved \(->\))?\n$", out)


def it_fits_into_its_time_when_everything_hangs(monkeypatch, capsys):
    hangs = "import time; time.sleep(600)"
    monkeypatch.setattr(selftest, "COLLECTIVES", hangs)
    monkeypatch.setattr(checks, "DEVICES", hangs)
    monkeypatch.setattr(doctor, "SECONDS", 2.0)
    assert main(["doctor", "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    found = {line["name"]: line for lines in record["sections"].values() for line in lines}
    for name in ("devices", "one process", "two processes"):
        assert found[name]["ok"] is False
        assert re.fullmatch(r"did not finish within \d s", found[name]["text"])
    assert record["problems"] == 3
    assert "it hangs, or this machine is very busy" in found["two processes"]["advice"]


def test_what_is_wrong_is_counted(monkeypatch, capsys):
    def bad():
        yield Line(False, "a thing", "is broken\nin two ways", "repair it")
        yield Line(True, "another", "works")
        yield Line(None, "a third", "", "buy a better one")

    monkeypatch.setattr(doctor, "sections", lambda clock, quick: {"things": bad})
    assert main(["doctor"]) == 1
    assert capsys.readouterr().out == (
        "things\n"
        "  !! a thing              is broken\n"
        "                          in two ways\n"
        "                          -> repair it\n"
        "  ok another              works\n"
        "     a third              \n"
        "                          -> buy a better one\n"
        "\n1 problem found (!!), and 1 thing can be improved (->)\n"
    )
    assert main(["doctor", "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert record["problems"] == 1
    assert record["sections"]["things"][0] == {
        "ok": False,
        "name": "a thing",
        "text": "is broken\nin two ways",
        "advice": "repair it",
        "facts": {},
    }
    monkeypatch.setattr(doctor, "sections", lambda clock, quick: {})
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out == "everything works\n"


def test_a_section_that_hangs_or_fails():
    gate = threading.Event()

    def hangs():
        yield Line(True, "first", "works")
        gate.wait()

    def fails():
        yield Line(True, "first", "works")
        raise KeyError("x")

    first = Line(True, "first", "works")
    assert within(0.2, hangs, "s") == [first, Line(False, "s", "did not finish within 0 s")]
    gate.set()
    wrong = Line(False, "s", "check failed: KeyError: 'x'")
    assert within(seconds(60), fails, "s") == [first, wrong]


def test_its_arguments(capsys):
    assert main(["doctor", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: shardwise doctor ")
    assert main(["doctor", "--loudly"]) == 2
    err = capsys.readouterr().err
    assert err.endswith("shardwise doctor: error: unrecognized arguments: --loudly\n")


@pytest.mark.parametrize(
    "program, text",
    [
        ("raise ValueError('no collectives today')", "ValueError: no collectives today"),
        ("import os; os.abort()", "failed with status -6"),
        ("print('hello')", "hello"),
        ("", "printed nothing"),
    ],
)
def test_programs_that_fail(monkeypatch, program, text):
    monkeypatch.setattr(selftest, "COLLECTIVES", program)
    (alone,) = selftest.one_process(Clock(seconds(60)), quick=True)
    assert alone.ok is False and alone.advice
    assert text in alone.text


def two_processes_that_fail(monkeypatch, capsys):
    monkeypatch.setattr(selftest, "COLLECTIVES", "raise ValueError('none today')")
    (line,) = selftest.two_processes(Clock(seconds(60)))
    assert line.ok is False and "ValueError: none today" in line.text


def no_time_is_no_problem(monkeypatch, capsys):
    monkeypatch.setattr(selftest, "COLLECTIVES", "import time; time.sleep(600)")
    (line,) = selftest.one_process(Clock(1.0), quick=True)
    assert line == Line(
        None,
        "one process",
        "not tested: it takes longer than 1 s",
        "run without --quick to allow more time",
    )


def wrong_values_are_found(monkeypatch, capsys):
    wrong = selftest.COLLECTIVES.replace("np.roll(v, 1, 0)", "np.roll(v, 2, 0)")
    assert wrong != selftest.COLLECTIVES
    monkeypatch.setattr(selftest, "COLLECTIVES", wrong)
    (line,) = selftest.one_process(Clock(seconds(60)), quick=True)
    assert line.ok is False
    assert "permute of 256 bytes returned wrong values on " in line.text


def test_a_launch_that_hangs_leaves_nothing(tmp_path):
    """It is terminated together with its processes."""
    mark = str(tmp_path / "mark")
    launch = [sys.executable, "-m", "shardwise", "launch", "-n", "2"]
    ran = run_program("import time; time.sleep(600)", launch, [mark], 3.0)
    assert ran == Ran(False, "did not finish within 3 s", 3.0)
    left = [p for p in psutil.process_iter(["cmdline"]) if mark in (p.info["cmdline"] or [])]
    assert left == []


def test_what_is_slow_has_advice():
    row: dict[str, object] = {"collective": "permute", "bytes": 256, "seconds": 0.02, "devices": 8}
    slow = selftest._measured(row)
    assert slow.text == "      256 bytes per device:   20,000 us"
    assert slow.advice == (
        "this is slow: do other programs use the processors (`uptime`), or is their number limited "
        "(by a container's quota)?"
    )
    assert selftest._measured(row | {"seconds": 0.001}).advice == ""
    large = selftest._measured(row | {"bytes": 1 << 20})
    assert large.text == "1,048,576 bytes per device:   20,000 us,   0.052 GB/s"


def test_lines_fit_a_terminal():
    path = "/a/long/path/that-stays-in-one-piece/as-it-may-be-copied"
    part = doctor.Found("part", [
        Line(True, "name", f"some words before {path}: and words behind it\nsecond", "do this, and "
             "that, and at the end of it also something else"), Line(None, "other", ""),
    ])  # fmt: skip
    assert doctor.shown(part, 70).splitlines() == [
        "part",
        "  ok name                 some words before",
        f"                          {path}:",
        "                          and words behind it",
        "                          second",
        "                          -> do this, and that, and at the end of it",
        "                             also something else",
        "     other                ",
    ]
    assert max(map(len, doctor.shown(part).splitlines())) > 100


OTHERS = [
    quickly,
    it_fits_into_its_time_when_everything_hangs,
    two_processes_that_fail,
    wrong_values_are_found,
    no_time_is_no_problem,
]


@pytest.mark.parametrize("case", everyday(OTHERS, 6), ids=lambda case: case.__name__)
def test_others(case, monkeypatch, capsys):
    case(monkeypatch, capsys) if case is not quickly else case()


# ----------------------------------------------------------------------------------- clusters


def test_no_cluster(cluster):
    text = "none: programs run in one process, except under `shardwise launch`"
    assert cluster({}) == [Line(None, "cluster", text)]


def test_a_cluster_and_what_overrides_it(cluster):
    env = recorded.SLURM | {"JAX_COORDINATOR_ADDRESS": "10.0.0.1:1234"}
    assert cluster(env) == [
        Line(None, "slurm", SLURM_IS_HERE),
        Line(
            None,
            "coordinator_address",
            "10.0.0.1:1234  (by JAX_COORDINATOR_ADDRESS; "
            "SHARDWISE_COORDINATOR_ADDRESS or coordinator_address= take precedence)",
        ),
        Line(
            None,
            "num_processes",
            "2  (by slurm; SHARDWISE_NUM_PROCESSES or num_processes= take precedence)",
        ),
        Line(
            None, "process_id", "1  (by slurm; SHARDWISE_PROCESS_ID or process_id= take precedence)"
        ),
        Line(
            None,
            "local_device_ids",
            "(1,)  (by slurm; SHARDWISE_LOCAL_DEVICE_IDS or local_device_ids= take precedence)",
        ),
        Line(True, "initialize()", "has all required arguments"),
    ]


def test_several_clusters(cluster):
    found = cluster(recorded.MPICH_IN_SLURM)
    assert found[:3] == [
        Line(None, "pmi", "detected: PMI_RANK, PMI_SIZE are set"),
        Line(None, "slurm", SLURM_IS_HERE),
        Line(
            None,
            "selected",
            "pmi, before slurm: it started this process most directly "
            "(to choose another: cluster_detection_method)",
        ),
    ]
    assert found[4] == Line(
        None,
        "num_processes",
        "2  (by pmi; SHARDWISE_NUM_PROCESSES or num_processes= take precedence)",
    )


def test_a_cluster_that_does_not_say_all(cluster):
    found = cluster(recorded.MPICH | {"PMI_SIZE": "4"})
    assert found[1] == Line(None, "coordinator_address", "not known")
    assert found[-1] == Line(
        False,
        "initialize()",
        "coordinator_address: missing, and 'pmi' does not specify it. On several hosts, PMI does "
        "not specify where process 0 runs. Set SHARDWISE_COORDINATOR_ADDRESS, or install mpi4py "
        "and pass cluster_detection_method='mpi4py'. `shardwise doctor` shows what is detected.",
    )


def test_signs_that_are_not_all_there(cluster):
    found = cluster(recorded.SLURM_BATCH)
    assert found[0] == Line(
        None, "slurm", "only some of its variables are set; missing: SLURM_STEP_NODELIST"
    )
    assert found[1].name == "cluster"


def test_a_part_of_slurm(cluster):
    found = cluster(recorded.SLURM_PMI2)
    assert found[0] == Line(None, "pmi", "detected, as part of Slurm")
    assert found[1] == Line(None, "slurm", SLURM_IS_HERE)


def test_a_variable_that_cannot_be(cluster):
    found = cluster({"JAX_NUM_PROCESSES": "two"})
    assert found == [
        Line(
            False,
            "arguments",
            "initialize: the environment variable JAX_NUM_PROCESSES must be an integer; got 'two'.",
        )
    ]


# ------------------------------------------------------------------------------------ the rest


def test_proxies(monkeypatch):
    for name in [n for n in os.environ if n.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    assert next(checks.network()) == Line(None, "proxies", "none")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "localhost")
    assert next(checks.network()) == Line(
        None, "proxies", "HTTPS_PROXY, no_proxy: not used between processes"
    )


def test_files_for_tls(tmp_path):
    cert = tmp_path / "cert.pem"
    cert.touch()
    without = f"jaxlib {JAXLIB_VERSION} does not support it between processes; 0.11.2 and later do"
    there = "available, but not enabled (`mtls_cert_file`, SECURITY.md)"
    assert list(checks.network())[1] == Line(None, "TLS", there if HAS_TLS else without)
    sw.config.update("mtls_cert_file", str(cert))
    try:
        text = "missing file for mtls_key_file, mtls_ca_file"
        assert list(checks.network())[1] == Line(False, "TLS", text if HAS_TLS else without)
    finally:
        sw.config.update("mtls_cert_file", None)


@pytest.fixture
def cache_at():
    """Moves the cache of compiled programs to another folder."""
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
    text = f"{folder} is not writable"
    remedy = "set SHARDWISE_COMPILATION_CACHE_DIR to a folder that you can write to"
    assert list(checks.caches()) == [Line(False, "compiled programs", text, remedy)]
    cache_at(tmp_path / "new")
    first, free, found = checks.caches()
    text = f"{tmp_path / 'new'}: 0, 0.0 MiB in all, at most 2.0 GiB"
    assert (first.ok, first.text, first.facts["programs"]) == (True, text, 0)
    assert free.facts["free"] > 0
    assert found.text == (
        "programs that took 0.05 s or longer to compile, with the same jaxlib, processor, devices "
        "and XLA_FLAGS"
    )
    sw.config.update("enable_compilation_cache", False)
    text = "are not cached on disk (`enable_compilation_cache`)"
    (line,) = checks.caches()
    assert (line.ok, line.text) == (None, text)
    assert line.advice.endswith("set SHARDWISE_ENABLE_COMPILATION_CACHE=1")


def test_dumps_are_not_kept(tmp_path, cache_at, monkeypatch):
    cache_at(tmp_path)
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/tmp/x")
    line = list(checks.caches())[2]
    assert line.text == "nothing: XLA_FLAGS requests dumps, so all programs are compiled again"
    assert line.advice == "remove --xla_dump_to from XLA_FLAGS"


def test_a_full_disk(tmp_path, cache_at, monkeypatch):
    cache_at(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("U", (), {"free": 2**29})())
    line = list(checks.caches())[1]
    assert (line.text, line.advice) == (
        "0.5 GiB",
        "the disk is nearly full: no more programs will be cached",
    )


def test_a_busy_machine(monkeypatch):
    monkeypatch.setattr("os.getloadavg", lambda: (1e4, 0, 0))
    line = next(checks.machine())
    assert "load 10000.0" in line.text and line.advice.startswith("other programs keep the")
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0, 0))
    assert next(checks.machine()).advice == ""


# ------------------------------------------------------------------------------------- ports


def test_ports(cluster):
    cluster({})
    loopback, own = checks.ports()
    assert loopback.ok and loopback.text.startswith("127.0.0.1 can listen and connect")
    assert own.name == "own address" and own.ok is not False


def test_the_port_of_the_coordinator(cluster):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        cluster(
            {
                "SHARDWISE_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
                "SHARDWISE_NUM_PROCESSES": "2",
                "SHARDWISE_PROCESS_ID": "0",
            }
        )
        line = list(checks.ports())[-1]
        assert line[:4] == (
            False,
            "coordinator's port",
            f"127.0.0.1:{port}: Address already in use",
            "another "
            "program uses it, or the address does not belong to this machine: set "
            "SHARDWISE_COORDINATOR_PORT or SHARDWISE_COORDINATOR_ADDRESS",
        )
    assert list(checks.ports())[-1][:3] == (True, "coordinator's port", f"127.0.0.1:{port} is free")


def test_a_host_that_is_not_found(cluster):
    cluster({"SHARDWISE_COORDINATOR_ADDRESS": "nowhere.invalid:1234"})
    line = list(checks.ports())[-1]
    assert line.ok is False and line.text.startswith("nowhere.invalid cannot be resolved: ")
    assert line.advice == "use addresses instead of host names, or fix /etc/hosts or the DNS"


def test_an_address_that_is_not_here():
    line = checks._connects("own address", "192.0.2.1")
    assert (line.ok, line.text) == (
        False,
        "192.0.2.1 cannot listen or connect: [Errno 99] Cannot assign requested address",
    )
