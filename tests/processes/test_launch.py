"""`shardwise launch` on one machine: output, exit statuses, signals, and complete cleanup."""

import os
import re
import signal
import subprocess
import sys
import textwrap

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwise._src.cli import launch as command
from shardwise._src.launch.worker_output import Transport, prefix
from shardwise._src.launch.worker_reports import Report, ending, first, last_words, report, verdict
from tests.helpers import patience
from tests.helpers.everyday import everyday
from tests.helpers.launching import Launch, launch

pytestmark = pytest.mark.processes


def without_pids(lines):
    return [re.sub(r"\(host [^,]+, pid \d+\)", "(HERE)", line) for line in lines]


# --------------------------------------------------------------------------- output


def test_lines_have_numbers_and_are_never_mixed():
    source = """
        import os, sys
        rank = os.environ["SHARDWISE_PROCESS_ID"]
        for i in range(2000):
            sys.stdout.write(f"{rank} line ")
            sys.stdout.write(f"{i} " + "x" * (i % 300) + "\\n")
        print("to stderr", rank, file=sys.stderr)
        tail = "is connected to 1 peer ranks. Expected number of connected peer ranks is : 1"
        print("[Gloo] Rank 0", tail, "\\n[Gloo] Rank [Gloo] Rank 01", tail, flush=True)
        print("half", "[Gloo] Rank 0", tail, "\\nof a line", flush=True)
        sys.stdout.buffer.write(b"\\xff\\x00\\xfe junk\\n")
        print("no end", end="")
    """
    done = launch("-n", "3", source=source)
    assert (done.status, done.left) == (0, [])
    for rank in range(3):
        mine = [line for line in done.out if line.startswith(f"[{rank}] ")]
        wanted = [f"[{rank}] {rank} line {i} " + "x" * (i % 300) for i in range(2000)]
        assert mine[:2000] == wanted
        assert mine[2000:] == [
            f"[{rank}] {text}" for text in ("half of a line", "\udcff\x00\udcfe junk", "no end")
        ]
    assert len(done.out) == 3 * 2003
    assert sorted(done.err) == [f"[{rank}] to stderr {rank}" for rank in range(3)]


def test_lines_of_gloo():
    tail = b"is connected to 1 peer ranks. Expected number of connected peer ranks is : 1"
    line = b"[Gloo] Rank 0 " + tail + b"\n"
    transport = Transport()
    for came, shown in (
        ([line, b"1\n"], [b"1\n"]),
        ([b"[Gloo] Rank [Gloo] Rank 01 " + tail + b" " + tail[:-1] + b"\n"], []),
        ([b"a line between\n"], [b"a line between\n"]),
        ([b"1\n"], []),  # the other half
        ([b"the sum is " + line, line], []),  # print pauses between its arguments
        ([b"1\n", b"2\n"], [b"the sum is 1\n", b"2\n"]),
        ([b"a [Gloo] Rank [Gloo] Rank 01 " + tail + b" " + tail[:-1] + b"\n"], []),
        ([b"1\n"], []),
        ([b"and\rb\n"], [b"a and\rb\n"]),
    ):
        assert transport.without(came, last=False) == shown
    lines = [b"1\n", b"\n", tail, b"I am [Gloo] Rank 1\n", b"x" * 9]
    assert transport.without(lines, last=False) == lines
    assert transport.without([b"no end " + line], last=True) == [b"no end "]


def gloo_lines(rank, ranks):
    """The pieces that one of Gloo's threads prints."""
    words = (
        b"[Gloo] Rank ",
        b"%d" % rank,
        b" is connected to ",
        b"%d" % (ranks - 1),
        b" peer ranks. ",
        b"Expected number of connected peer ranks is : ",
        b"%d" % (ranks - 1),
        b"\n",
    )
    return list(words)


@settings(max_examples=300, deadline=None)
@given(st.integers(2, 4).flatmap(lambda n: st.permutations(list(range(n)) * 8)))
def test_lines_of_gloo_in_any_order_of_their_pieces(turns):
    ranks = max(turns) + 1
    left = [gloo_lines(rank, ranks) for rank in range(ranks)]
    text = b"".join(left[rank].pop(0) for rank in turns)
    assert Transport().without(text.splitlines(keepends=True), last=True) == []


def test_colours():
    assert prefix(2, False) == b"[2] "
    assert prefix(2, True) == b"\x1b[33m[2]\x1b[0m "
    assert prefix(8, True) == b"\x1b[33m[8]\x1b[0m "


def colours_are_for_terminals_that_want_them():
    line = [sys.executable, "-m", "shardwise", "launch", "-m", "this"]
    for env, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        ours, theirs = os.openpty()
        with subprocess.Popen(
            line, stdout=theirs, stderr=subprocess.PIPE, env={**os.environ, "TERM": "xterm", **env}
        ) as process:
            os.close(theirs)
            assert process.wait(patience.seconds(60)) == 0
        came = os.read(ours, 100)
        os.close(ours)
        start = b"\x1b[31m[0]\x1b[0m " if coloured else b"[0] "
        assert came.startswith(start + b"The Zen of Python")


def test_logs(tmp_path):
    source = """
        import os, sys
        print("out", os.environ["SHARDWISE_PROCESS_ID"], os.environ["SHARDWISE_GENERATION"])
        print("err", file=sys.stderr)
        print("[Gloo] Rank 0 is connected to 3 peer ranks.")
        sys.exit(os.environ["SHARDWISE_GENERATION"] == "0")
    """
    folder = tmp_path / "some" / "logs"
    done = launch("-n", "2", "--restarts", "1", "--log-dir", str(folder), source=source)
    assert (done.status, done.left) == (0, [])
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    assert texts.keys() == {
        "rank-0.log",
        "rank-1.log",
        "rank-0.generation-1.log",
        "rank-1.generation-1.log",
    }
    for rank in range(2):
        assert sorted(texts[f"rank-{rank}.generation-1.log"].splitlines()) == [
            "err",
            f"out {rank} 1",
        ]


def nobody_reads_the_output_any_more():
    source = "while True: print('a line of some length, again and again')"
    with Launch("-n", "2", source=source) as running:
        running.process.send_signal(signal.SIGKILL)  # only its program file is needed
        line = [
            sys.executable,
            "-m",
            "shardwise",
            "launch",
            "-n",
            "2",
            str(running.path / "program.py"),
        ]
        with subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        ) as process:
            assert process.stdout is not None and process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.wait(patience.seconds(60)) == 128 + signal.SIGPIPE
            assert process.stderr.read().endswith(b"shardwise launch: stopped by SIGPIPE\n")


# --------------------------------------------------------------------------- what is started

PLACE = """
    import os, sys
    keys = ("NUM_PROCESSES", "PROCESS_ID", "LOCAL_PROCESS_ID", "GENERATION", "NUM_CPU_DEVICES",
            "LOCAL_DEVICE_IDS", "COORDINATOR_STARTED")
    print(*[os.environ.get("SHARDWISE_" + key) for key in keys], sys.argv[1:])
"""


@pytest.mark.parametrize("separated", everyday([False, True], 1))
def test_processes_know_their_place_and_get_the_arguments(separated):
    words = ["--"] if separated else []
    done = launch(
        "-n",
        "2",
        "--devices-per-process",
        "3",
        *words,
        "{}",
        "-n",
        "5",
        "--",
        "-m",
        "x",
        source=PLACE,
    )
    rest = "1 ['-n', '5', '--', '-m', 'x']"
    assert sorted(done.out) == [f"[0] 2 0 0 0 3 0,1,2 {rest}", f"[1] 2 1 1 0 3 3,4,5 {rest}"]
    assert done.err == []


@pytest.mark.parametrize("separated", everyday([False, True], 1))
def test_modules(tmp_path, separated):
    (tmp_path / "tool.py").write_text(textwrap.dedent(PLACE))
    words = ["--"] if separated else []
    done = launch("-n", "1", *words, "-m", "tool", "--flag", "-m", cwd=tmp_path)
    assert done.out == ["[0] 1 0 0 0 None None 1 ['--flag', '-m']"]


def test_a_program_joins_by_itself():
    source = """
        import sys
        import numpy as np
        import shardwise as sw
        import shardwise.numpy as snp
        from shardwise.sharding import NamedSharding, PartitionSpec as P
        mesh = sw.make_mesh((4,), ("x",))
        split = NamedSharding(mesh, P("x"))
        x = sw.make_array_from_callback((8,), split, lambda i: np.arange(8.0)[i])
        print(sw.process_index(), sw.process_count(), sw.device_count(), float(sw.jit(snp.sum)(x)))
    """
    done = launch("-n", "2", "--devices-per-process", "2", source=source)
    assert (done.status, sorted(done.out), done.err, done.left) == (
        0,
        ["[0] 0 2 4 28.0", "[1] 1 2 4 28.0"],
        [],
        [],
    )


# --------------------------------------------------------------------------- failures

FAILS = """
    import os, sys, time
    rank = int(os.environ["SHARDWISE_PROCESS_ID"])
    print("before", rank, file=sys.stderr)
    if rank == 1:
        try:
            [][1]
        except IndexError:
            raise ValueError("it is bad")
    time.sleep(10**4)
"""


def test_the_first_failure_ends_all_and_is_shown_last():
    done = launch("-n", "3", source=FAILS)
    assert (done.status, done.out, done.left) == (1, [], [])
    lines = [i for i, line in enumerate(done.err) if line.startswith("shardwise launch: ")]
    (begin,) = lines
    assert [re.sub('File ".*"', "File F", w) for w in without_pids(done.err[begin:])] == [
        "shardwise launch: process 1 (HERE) failed with exit status 1. Its last output:",
        "[1] Traceback (most recent call last):",
        "[1]   File F, line 7, in <module>",
        "[1]     [][1]",
        "[1]     ~~^^^",
        "[1] IndexError: list index out of range",
        "[1]",
        "[1] During handling of the above exception, another exception occurred:",
        "[1]",
        "[1] Traceback (most recent call last):",
        "[1]   File F, line 9, in <module>",
        '[1]     raise ValueError("it is bad")',
        "[1] ValueError: it is bad",
    ]


@pytest.mark.parametrize(
    ("end", "status", "how"),
    [
        ("sys.exit(7)", 7, "failed with exit status 7"),
        (
            "os.kill(os.getpid(), 9)",
            137,
            "was killed by SIGKILL (the kernel does this when memory runs out)",
        ),
    ],
)
def test_exit_statuses_are_kept(end, status, how):
    source = f"""
        import os, signal, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # such a one is killed
        if os.environ["SHARDWISE_PROCESS_ID"] == "2":
            {end}
        time.sleep(10**4)
    """
    done = launch("-n", "3", "--grace", "0.5", source=source)
    assert (done.status, done.out, done.left) == (status, [], [])
    assert without_pids(done.err) == [
        f"shardwise launch: process 2 (HERE) {how}. It printed no error."
    ]


def test_the_culprit_is_the_one_that_the_others_name():
    """Process 2 is killed while all processes are in a program; the others end because of it."""
    source = """
        import os, time
        import numpy as np
        import shardwise as sw
        import shardwise.numpy as snp
        from shardwise.sharding import NamedSharding, PartitionSpec as P
        mesh = sw.make_mesh((3,), ("x",))
        x = sw.make_array_from_callback((3,), NamedSharding(mesh, P("x")), lambda i: np.ones(3)[i])
        f = sw.jit(snp.sum)
        for i in range(10**6):
            float(f(x))
            if i == 5 and sw.process_index() == 2:
                os.kill(os.getpid(), 9)
    """
    done = launch("-n", "3", source=source)
    assert (done.status, done.left) == (137, [])
    how = "was killed by SIGKILL (the kernel does this when memory runs out)"
    assert without_pids(done.err)[-1] == (
        f"shardwise launch: process 2 (HERE) {how}. It printed no error."
    )


def one_that_is_stopped_is_named():
    """It sends no heartbeat; the other process ends because of it."""
    source = """
        import os, signal
        import shardwise as sw
        import shardwise.numpy as snp
        from shardwise.sharding import NamedSharding, PartitionSpec as P
        split = NamedSharding(sw.make_mesh((2,), ("x",)), P("x"))
        x = snp.ones(2, device=split)
        if sw.process_index() == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        print(x.sum())
    """
    options = ["--heartbeat-timeout-seconds", str(patience.seconds(2)), "--grace", "0.5"]
    done = launch("-n", "2", *options, source=source)
    assert (done.status, done.out, done.left) == (1, [], [])
    (line,) = [line for line in without_pids(done.err) if line.startswith("shardwise launch: ")]
    assert line == (
        "shardwise launch: process 0 (HERE) failed with exit status 1, because of process 1. Its "
        "last output:"
    )
    why = "ProcessFailureError: sum: process 1 (HERE) is lost: there was no heartbeat"
    assert any(why in line for line in without_pids(done.err[-3:]))


def a_process_that_cannot_be_started():
    with Launch("-n", "2", "--log-dir", "/proc/self", source="print(1)") as running:
        done = running.done()
    assert (done.status, done.out, done.left) == (1, [], [])
    assert done.err == [
        "shardwise launch: could not start a process: [Errno 2] No such file or directory: "
        "'/proc/self/rank-0.log'."
    ]


def test_which_failure_is_the_first():
    lines = [
        b"Traceback (most recent call last):\n",
        b"shardwise.errors.ProcessFailureError: process 1 (host h, pid 5) is lost: so.\n",
    ]
    follower = report(0, "process 0", 1, lines)
    assert (follower.second, follower.named) == (True, (1,))
    assert report(0, "process 0", 75, []).second
    heard = [b"\n", b"shardwise: process 1 (host h, pid 5) is lost: so.\n", b"NameError: x\n"]
    assert report(0, "process 0", 1, heard).second
    waits = [b"shardwise: waiting for 30 s at f for process 1: process 1 (host h, pid 5) is at ?"]
    assert not report(0, "process 0", 1, waits).second
    culprit = report(1, "process 1", 3, [b"x\n"])
    assert first([follower, culprit]) is culprit
    both = Report(1, "process 1", "failed", 75, True)
    assert first([follower, both]) is both
    other = report(2, "process 2", 75, [])
    assert first([other, follower]) is other
    assert verdict([follower])[:2] == (
        1,
        "process 0 failed with exit status 1, because of process 1. Its last output:\n"
        "[0] Traceback (most recent call last):\n"
        "[0] shardwise.errors.ProcessFailureError: process 1 (host h, pid 5) is lost: so.",
    )
    assert verdict([report(0, "process 0", -11, [])])[:2] == (
        139,
        "process 0 was killed by SIGSEGV. It printed no error.",
    )
    assert ending(-99) == "was killed by signal 99"
    assert Report.from_dict(follower._asdict()) == follower


def test_last_words():
    lines = [f"line {i}" for i in range(30)]
    assert last_words(lines) == lines[-20:]
    trace = ["Traceback (most recent call last):", "  at", "E: x"]
    assert last_words([*lines, *trace, "after", *trace, "end"]) == [*trace, "end"]


# --------------------------------------------------------------------------- signals

WAITS = """
    import os, signal, subprocess, sys, time
    sub = [sys.executable, "-c", "import time; time.sleep(10**4)"]
    subprocess.Popen(sub)
    subprocess.Popen(sub, start_new_session=True)
    print("ready", flush=True)
    time.sleep(10**4)
"""


def ready(running, count):
    running.until(lambda: len(running.lines()) == count)


@pytest.mark.parametrize("name", everyday(["SIGINT", "SIGTERM", "SIGHUP"], 1))
def test_signals_end_the_whole_tree(name):
    with Launch("-n", "2", source=WAITS) as running:
        ready(running, 2)
        running.signal(getattr(signal, name))
        done = running.done()
        assert (done.status, done.left) == (128 + getattr(signal, name), [])
        assert done.err[-1] == f"shardwise launch: stopped by {name}"


def a_second_signal_makes_it_quick():
    stays = "signal.signal(signal.SIGINT, lambda *_: print('stays', flush=True)); print("
    source = WAITS.replace("print(", stays)
    with Launch("-n", "2", "--grace", "50", source=source) as running:
        ready(running, 2)
        running.signal(signal.SIGINT)
        ready(running, 4)  # the launcher has received the signal, and waits for both
        assert len(running.left()) > 2
        running.signal(signal.SIGINT)
        done = running.done()
        assert (done.status, done.left) == (130, [])


def what_is_ignored_stays_so():
    source = """
        import pathlib, sys, time
        print("ready")
        while not pathlib.Path(sys.argv[0]).with_name("go").exists():
            time.sleep(0.01)
    """
    with Launch("-n", "1", source=source) as running:
        line = [sys.executable, "-m", "shardwise", "launch", str(running.path / "program.py")]
        with subprocess.Popen(
            ["nohup", *line], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"[0] ready\n"
            process.send_signal(signal.SIGHUP)
            (running.path / "go").touch()
            assert process.wait(patience.seconds(60)) == 0


def test_a_killed_launcher_leaves_nothing():
    source = WAITS + "\n    import shardwise as sw\n"
    with Launch("-n", "2", source=source) as running:
        ready(running, 2)
        assert len(running.left()) >= 1 + 2 * 3
        running.signal(signal.SIGKILL)
        running.until(lambda: not running.left())


def test_what_programs_leave_behind_is_ended():
    """A child in its own session, without a parent and with another environment."""
    source = """
        import os, subprocess, sys
        sub = [sys.executable, "-c", "import time; time.sleep(10**4)"]
        kept = {"TESTED_LAUNCH": os.environ["TESTED_LAUNCH"]}
        for env in (os.environ, kept):
            if os.fork() == 0:
                subprocess.Popen(sub, start_new_session=True, env=env)
                os._exit(0)
            os.wait()
        print("ended")
    """
    done = launch("-n", "2", source=source)
    assert (done.status, sorted(done.out), done.left) == (0, ["[0] ended", "[1] ended"], [])


def a_stopped_process_is_ended_with_the_others():
    """It is resumed for that: the launch need not wait until its grace period is over."""
    with Launch("-n", "2", "--grace", "60", source=WAITS) as running:
        ready(running, 2)
        psutil.Process(running.pid(1)).suspend()
        running.signal(signal.SIGTERM)
        done = running.done()
        assert (done.status, done.left) == (143, [])


# --------------------------------------------------------------------------- bad usage


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "no program: pass a script.py, or a module with -m."),
        (["-n", "2", "nowhere.py"], "there is no file 'nowhere.py'."),
        (
            ["-n", "2", "python3.11", "x.py"],
            "there is no file 'python3.11'. The launcher starts Python itself: pass only the script.",
        ),
        (
            ["--device_per_process", "2", "x.py"],
            "unknown option '--device_per_process'. Did you mean '--devices-per-process'?",
        ),
        (["--nproc_per_node=2", "x.py"], "unknown option '--nproc_per_node'. Did you mean '-n'?"),
        (["--nnodes", "2", "x.py"], "unknown option '--nnodes'. Did you mean '--nodes'?"),
        (["--quite-another", "x.py"], "unknown option '--quite-another'."),
        (["-n", "0", "x.py"], "argument -n/--processes: it must be 1 or more; got 0."),
        (["-n", "two", "x.py"], "argument -n/--processes: it must be an integer; got 'two'."),
        (
            ["-n", "2:4", "x.py"],
            "argument -n/--processes: it must be an integer; got '2:4'. If 2 are enough after a "
            "failure, pass -n 4 --restarts N --min-processes 2.",
        ),
        (["--restarts", "-1"], "argument --restarts: it must be an integer; got '-1'."),
        (
            ["-n", "4", "--restarts", "1", "--min-processes", "5", "x"],
            "--min-processes must be from 1 to 4, the processes in all; got 5.",
        ),
        (
            ["-n", "4", "--min-processes", "2", "x"],
            "--min-processes applies to restarts: it requires --restarts N.",
        ),
        (
            ["-n", "4", "--restarts", "1", "--min-np", "2", "x"],
            "unknown option '--min-np'. Did you mean '--min-processes'?",
        ),
        (
            ["--grace", "0", "x"],
            "argument --grace: it must be a positive number of seconds; got '0'.",
        ),
        (["-m"], "-m requires a module name."),
        (
            ["--node-rank", "1", "-m", "this"],
            "--node-rank must be from 0 to --nodes - 1; got 1 with --nodes 1.",
        ),
        (
            ["--nodes", "2", "-m", "this"],
            "--nodes requires --node-rank, and the same --coordinator HOST:PORT on all nodes.",
        ),
        (
            ["--coordinator", "here", "-m", "this"],
            "--coordinator must be host:port, as in '10.0.0.1:1234' or '[::1]:1234', with a port "
            "from 1 to 65535; got 'here'.",
        ),
        (["--log-dir", "/dev/null/x", "-m", "this"], "--log-dir /dev/null/x: Not a directory."),
    ],
)
def test_bad_usage(arguments, expected, capsys):
    with pytest.raises(SystemExit) as end:
        command.run(arguments)
    assert end.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"shardwise launch: error: {expected}"


def test_help_names_all_options(capsys):
    with pytest.raises(SystemExit) as end:
        command.run(["--help"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    for option in ("--devices-per-process", "--restarts", "--log-dir", "--coordinator", "-m "):
        assert option in out


OTHERS = [
    colours_are_for_terminals_that_want_them,
    nobody_reads_the_output_any_more,
    a_second_signal_makes_it_quick,
    what_is_ignored_stays_so,
    a_stopped_process_is_ended_with_the_others,
    one_that_is_stopped_is_named,
    a_process_that_cannot_be_started,
]


@pytest.mark.parametrize("case", everyday(OTHERS, 1 / 3), ids=lambda case: case.__name__)
def test_others(case):
    case()
