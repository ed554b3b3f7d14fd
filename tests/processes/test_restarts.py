"""`shardwise launch` over several machines, and restarts."""

import re
import signal
import socket
from contextlib import ExitStack

import psutil
import pytest

from tests.helpers.everyday import everyday
from tests.helpers.joining import free_port
from tests.helpers.launching import Launch, launch
from tests.helpers.patience import seconds

pytestmark = pytest.mark.processes


def without_pids(lines):
    return [re.sub(r"\(host [^,]+, pid \d+\)", "(HERE)", line) for line in lines]


def said_by_launcher(lines):
    return [line for line in without_pids(lines) if line.startswith("shardwise launch: ")]


GENERATIONS = """
    import os, sys, time
    own = {{k.removeprefix("SHARDWISE_"): v for k, v in os.environ.items()}}
    generation, rank = int(own["GENERATION"]), int(own["PROCESS_ID"])
    print("generation", generation, "of", own["NUM_PROCESSES"], flush=True)
    if generation < {good} and rank == {bad}:
        {end}
    if generation < {good}:
        time.sleep(10**4)
"""


def generations(good, bad=1, end="sys.exit(3)"):
    return GENERATIONS.format(good=good, bad=bad, end=end)


def test_all_are_started_again():
    source = generations(2, end="os.kill(os.getpid(), 9)")
    done = launch("-n", "2", "--restarts", "2", source=source)
    assert (done.status, done.left) == (0, [])
    first = [line for line in done.out if line.startswith("[0]")]
    assert first[-1] == "[0] generation 2 of 2"  # earlier ones may have been stopped early
    assert [x for x in done.out if x not in first] == [f"[1] generation {g} of 2" for g in range(3)]
    how = "was killed by SIGKILL (the kernel does this when memory runs out)"
    assert said_by_launcher(done.err) == [
        f"shardwise launch: process 1 (HERE) {how}; generation {g} starts (restart {g} of 2)"
        for g in (1, 2)
    ]


def not_more_often_than_asked():
    done = launch("-n", "2", "--restarts", "1", source=generations(9))
    assert (done.status, done.left) == (3, [])
    how = "process 1 (HERE) failed with exit status 3"
    assert said_by_launcher(done.err) == [
        f"shardwise launch: {how}; generation 1 starts (restart 1 of 1)",
        f"shardwise launch: {how}. It printed no error.",
    ]


def a_signal_is_no_reason_to_start_again():
    with Launch("-n", "2", "--restarts", "5", source=generations(9, bad=7)) as running:
        running.until(lambda: len(running.lines()) == 2)
        running.signal(signal.SIGTERM)
        done = running.done()
    assert (done.status, len(done.out), done.left) == (143, 2, [])


def a_lost_coordinator_is_replaced():
    joins = "\n    import shardwise as sw; print(sw.device_count())"
    source = generations(1, bad=7).replace("\n    if", f"{joins}\n    if", 1)
    with Launch("-n", "2", "--restarts", "1", source=source) as running:
        running.until(lambda: len(running.lines()) == 4)
        (coordinator,) = [
            p for p in running.left() if p.cmdline()[-1].endswith("coordination/coordinator.py")
        ]
        coordinator.kill()
        done = running.done()
    assert (done.status, len(done.out), done.left) == (0, 8, [])


# --------------------------------------------------------------------------- many machines


class Machines(ExitStack):
    """The launchers of several nodes, all on this machine."""

    def __init__(self, count, *options, source, missing=()):
        super().__init__()
        self.address = f"127.0.0.1:{free_port()}"
        self.count, self.options, self.source = count, options, source
        self.nodes = {k: self.node(k) for k in reversed(range(count)) if k not in missing}

    def node(self, rank):
        where = ["--coordinator", self.address, "--nodes", str(self.count)]
        words = ["-n", "1", "--node-rank", str(rank), *where, *self.options]
        return self.enter_context(Launch(*words, source=self.source))

    def done(self):
        return [self.nodes[k].done() for k in range(self.count)]


SUM = """
    import numpy as np
    import shardwise as sw
    import shardwise.numpy as snp
    from shardwise.sharding import NamedSharding, PartitionSpec as P
    mesh = sw.make_mesh((sw.device_count(),), ("x",))
    split = NamedSharding(mesh, P("x"))
    x = sw.make_array_from_callback((8,), split, lambda i: np.arange(8.0)[i])
    print(sw.process_index(), sw.process_count(), float(sw.jit(snp.sum)(x)))
"""


def test_two_nodes():
    with Machines(2, "-n", "2", source=SUM) as machines:
        first, second = machines.done()
    assert [d.status for d in (first, second)] == [0, 0]
    assert sorted(first.out) == ["[0] 0 4 28.0", "[1] 1 4 28.0"]
    assert sorted(second.out) == ["[2] 2 4 28.0", "[3] 3 4 28.0"]
    assert (first.err, second.err, first.left, second.left) == ([], [], [], [])


@pytest.mark.parametrize("bad", everyday([0, 1], 1))
def test_a_failure_on_one_node_ends_all_nodes(bad):
    """Also before anything has joined: the launchers notify each other."""
    source = f"""
        import os, sys, time
        if os.environ["SHARDWISE_PROCESS_ID"] == "{bad}":
            sys.exit("it went wrong")
        time.sleep(10**4)
    """
    with Machines(2, source=source) as machines:
        results = machines.done()
    for done in results:
        assert (done.status, done.left) == (1, [])
        assert without_pids(done.err)[-2:] == [
            f"shardwise launch: process {bad} (HERE) failed with exit status 1. Its last output:",
            f"[{bad}] it went wrong",
        ]


def test_all_nodes_start_again():
    with Machines(2, "--restarts", "2", source=generations(2)) as machines:
        first, second = machines.done()
    assert (first.status, second.status, first.left, second.left) == (0, 0, [], [])
    assert first.out[-1] == "[0] generation 2 of 2"  # earlier ones may have been stopped early
    assert second.out == [f"[1] generation {g} of 2" for g in range(3)]
    assert said_by_launcher(first.err) == [
        "shardwise launch: process 1 (HERE) failed with exit status 3; generation "
        f"{g} starts (restart {g} of 2)"
        for g in (1, 2)
    ]
    assert said_by_launcher(second.err) == [
        f"shardwise launch: generation {g} starts" for g in (1, 2)
    ]


def a_node_that_is_lost_may_come_again():
    with Machines(2, "--restarts", "1", source=generations(1, bad=7)) as machines:
        for node in machines.nodes.values():
            node.until(node.lines)
        machines.nodes[1].signal(signal.SIGKILL)
        machines.nodes[0].said("generation 1 starts", "err")
        machines.nodes[1].until(lambda: not machines.nodes[1].left())
        machines.nodes[1] = machines.node(1)
        first, second = machines.done()
    assert (first.status, second.status, first.left, second.left) == (0, 0, [], [])
    assert first.out == ["[0] generation 0 of 2", "[0] generation 1 of 2"]
    assert second.out == ["[1] generation 1 of 2"]
    assert said_by_launcher(first.err) == [
        "shardwise launch: the launcher of node 1 is gone: it was stopped, or its machine went "
        "down; generation 1 starts (restart 1 of 1)"
    ]


@pytest.mark.parametrize("number", everyday([signal.SIGTERM, signal.SIGKILL], 1))
def test_without_node_0_all_end(number):
    with Machines(2, source=generations(1, bad=7)) as machines:
        for node in machines.nodes.values():
            node.until(node.lines)
        machines.nodes[0].signal(number)
        done = machines.nodes[1].done()
        machines.nodes[0].until(lambda: not machines.nodes[0].left())
    killed = number == signal.SIGKILL
    assert (done.status, done.left) == (1 if killed else 143, [])
    assert said_by_launcher(done.err) == [
        "shardwise launch: the launcher of node 0 is gone: it exited, or its machine went down."
        if killed
        else "shardwise launch: node 0 was stopped by SIGTERM"
    ]


COUNTS = """
    import os, time
    own = {k.removeprefix("SHARDWISE_"): v for k, v in os.environ.items()}
    print("generation", own["GENERATION"], "of", own["NUM_PROCESSES"], flush=True)
    time.sleep(0.2 if own["GENERATION"] == "3" else 10**4)
"""


def test_fewer_nodes_and_processes_go_on():
    """The launch continues without a lost node until the node returns; it continues permanently
    without a node whose only process was killed."""
    options = ["--restarts", "3", "--min-processes", "1"]
    with Machines(3, *options, source=COUNTS) as machines:
        zero, one, two = [machines.nodes[k] for k in range(3)]
        for node in machines.nodes.values():
            node.until(node.lines)
        two.signal(signal.SIGKILL)
        one.said("[1] generation 1 of 2")
        zero.said("[0] generation 1 of 2")
        again = machines.nodes[2] = machines.node(2)
        zero.said("node 2 is back", "err")
        psutil.Process(zero.pid(0)).kill()  # the launcher of node 0 continues without a process
        again.said("[1] generation 2 of 2")
        one.said("[0] generation 2 of 2")
        psutil.Process(one.pid(0)).kill()
        first, second, third = machines.done()
    assert [d.status for d in (first, second, third)] == [0, 0, 0]
    assert [d.left for d in (first, second, third)] == [[], [], []]
    assert first.out == ["[0] generation 0 of 3", "[0] generation 1 of 2"]
    assert third.out == ["[1] generation 2 of 2", "[0] generation 3 of 1"]
    how = "was killed by SIGKILL (the kernel does this when memory runs out)"
    assert said_by_launcher(first.err) == [
        "shardwise launch: the launcher of node 2 is gone: it was stopped, or its machine went "
        "down; generation 1 starts with 2 processes (restart 1 of 3)",
        "shardwise launch: node 2 is back: it takes part again after the next failure",
        f"shardwise launch: process 0 (HERE) {how}; generation 2 starts with 2 processes (restart "
        "2 of 3)",
        f"shardwise launch: process 0 (HERE) {how}; generation 3 starts with 1 process (restart 3 "
        "of 3)",
    ]
    assert said_by_launcher(second.err) == [
        "shardwise launch: generation 1 starts with 2 processes",
        "shardwise launch: generation 2 starts with 2 processes",
        "shardwise launch: generation 3 starts with 1 process",
    ]


def test_a_node_that_had_no_process_any_more_is_not_awaited():
    """Its launcher is lost after its only process was lost."""
    options = ["--restarts", "2", "--min-processes", "1"]
    options += ["--initialization-timeout", str(seconds(5))]
    with Machines(3, *options, source=generations(2, bad=7)) as machines:
        zero, one, two = [machines.nodes[k] for k in range(3)]
        for node in machines.nodes.values():
            node.until(node.lines)
        psutil.Process(two.pid(2)).kill()
        for node in (zero, one):
            node.said("generation 1 of 2")
        two.signal(signal.SIGKILL)
        two.until(lambda: two.process.poll() is not None)
        psutil.Process(one.pid(1)).kill()
        first, second = zero.done(), one.done()
    assert [(d.status, d.left) for d in (first, second)] == [(0, [])] * 2
    assert first.out == [f"[0] generation {g} of {3 - g}" for g in range(3)]
    how = "was killed by SIGKILL (the kernel does this when memory runs out)"
    assert said_by_launcher(first.err) == [
        f"shardwise launch: process 2 (HERE) {how}; generation 1 starts with 2 processes (restart "
        "1 of 2)",
        f"shardwise launch: process 1 (HERE) {how}; generation 2 starts with 1 process (restart 2 "
        "of 2)",
    ]


def test_what_fails_by_itself_starts_again_with_all():
    """An exception, an exit status, and a crash."""
    options = ["-n", "2", "--restarts", "3", "--min-processes", "1"]
    ends = "if generation: os.abort()\n            sys.exit(137)"
    done = launch(*options, source=generations(2, end=ends.replace("            ", " " * 8)))
    assert (done.status, done.left) == (0, [])
    second = [line for line in done.out if line.startswith("[1]")]  # process 0 may be stopped first
    assert second == [f"[1] generation {g} of 2" for g in range(3)]
    ends = ["failed with exit status 137", "was killed by SIGABRT"]
    assert said_by_launcher(done.err) == [
        f"shardwise launch: process 1 (HERE) {ends[g]}; generation {g + 1} starts (restart "
        f"{g + 1} of 3)"
        for g in range(2)
    ]


def nodes_that_do_not_come():
    options = ["--initialization-timeout", "1"]
    with Machines(3, *options, source=SUM, missing=(1, 2)) as machines:
        done = machines.nodes[0].done()
    assert (done.status, done.out, done.left) == (1, [], [])
    assert done.err == [
        "shardwise launch: nodes 1, 2 of 3 did not join within 1 s (--initialization-timeout). "
        "Start the same command there, with its own --node-rank."
    ]
    with Machines(2, *options, source=SUM, missing=(0,)) as machines:
        done = machines.nodes[1].done()
    assert (done.status, done.out, done.left) == (1, [], [])
    assert done.err == [
        f"shardwise launch: node 1 did not reach the launcher of node 0 at {machines.address} "
        "within 1 s (--initialization-timeout): Connection refused. Is it running there?"
    ]


def launchers_that_do_not_fit_are_refused():
    with Machines(2, source=SUM, missing=(1,)) as machines:
        where = ["--coordinator", machines.address, "--node-rank", "1"]
        with Launch("-n", "3", "--nodes", "2", *where, source=SUM) as other:
            done = other.done()
        assert (done.status, done.err) == (
            1,
            [
                "shardwise launch: node 1 has -n 3, but node 0 has -n 1: they must be the same "
                "on all nodes"
            ],
        )
        with Launch("-n", "1", "--nodes", "3", *where, source=SUM) as other:
            assert other.done().err == [
                "shardwise launch: node 1 has --nodes 3, but node 0 has --nodes 2: they must be "
                "the same on all nodes"
            ]
        with socket.create_connection(("127.0.0.1", int(machines.address[-5:]))) as stranger:
            stranger.sendall(b'GET / HTTP/1.1\r\n\r\n[1]\n{"op": 1}\n')
            assert stranger.recv(100) == b""
        machines.nodes[1] = machines.node(1)
        assert [d.status for d in machines.done()] == [0, 0]


def a_port_that_is_taken():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        where = ["--coordinator", f"127.0.0.1:{port}"]
        alone = launch(*where, source=SUM)
        many = launch(*where, "--nodes", "2", "--node-rank", "0", source=SUM)
    assert (alone.status, alone.err) == (
        1,
        [
            f"shardwise launch: the coordinator cannot listen at 127.0.0.1:{port}: Address already in "
            "use. Does another program use this port, or is another process also started as process 0, "
            "or does the address belong to another machine?"
        ],
    )
    assert (many.status, many.err) == (
        1,
        [
            f"shardwise launch: the launcher cannot listen at 127.0.0.1:{port}: Address already in "
            "use. Does another program use this port, or does the address belong to another machine? "
            "--coordinator must name node 0."
        ],
    )


OTHERS = [
    a_signal_is_no_reason_to_start_again,
    a_lost_coordinator_is_replaced,
    not_more_often_than_asked,
    a_node_that_is_lost_may_come_again,
    nodes_that_do_not_come,
    launchers_that_do_not_fit_are_refused,
    a_port_that_is_taken,
]


@pytest.mark.parametrize("case", everyday(OTHERS, 1 / 4), ids=lambda case: case.__name__)
def test_others(case):
    case()
