"""The final report of a launcher about a process that failed."""

import pytest

from shardwise._src.distributed.stacks import in_a_line
from shardwise._src.launch.worker_reports import Verdict, report, verdict, without_messages
from tests.helpers.launching import launch

BEGIN = "Traceback (most recent call last):"
FRAMES = [BEGIN, '  File "f.py", line 1, in <module>', "    g()"]
LATER = "During handling of the above exception, another exception occurred:"
NOTICED = b"shardwise: process 3 (host a, pid 4) is lost: its connection closed: it was killed\n"
LONG = ["ValueError: one", "  two", "", "three"]


def test_a_long_message_is_not_repeated():
    short = ["ValueError: one", "  (3 more lines above)"]
    assert without_messages([*FRAMES, *LONG]) == [*FRAMES, *short]
    chained = [*FRAMES, *LONG, "", LATER, "", *FRAMES, "KeyError: 1"]
    assert without_messages(chained) == [*FRAMES, *short, "", LATER, "", *FRAMES, "KeyError: 1"]
    after = [*FRAMES, *LONG, "", "shardwise: process 0 is lost.", "so"]
    assert without_messages(after) == [*FRAMES, *short, "", "shardwise: process 0 is lost.", "so"]


@pytest.mark.parametrize("lines", [
    [], ["no traceback", "  at all"], [*FRAMES, "KeyError: 1"], [*FRAMES, "KeyError: 1", "a note"],
    [*FRAMES, "KeyError: 1", "", LATER, "", *FRAMES, "E: x", ""],
    ["  + Exception Group " + BEGIN, "  |   File", "  | ExceptionGroup: one", "  | two", "  | 3"],
])  # fmt: skip
def test_what_is_short_is_repeated(lines):
    assert without_messages(lines) == lines


def test_the_message_is_brief_where_the_process_has_written_it():
    errors = [f"{line}\n".encode() for line in (*FRAMES, *LONG)]
    end = verdict([report(2, "process 2", 1, errors)])
    assert end.shown(range(2, 4)).splitlines()[-1] == "[2]   (3 more lines above)"
    assert end.shown(range(2)).splitlines()[-1] == "[2] three"
    assert Verdict.from_dict(end._asdict()) == end


@pytest.mark.parametrize(("status", "words", "found"), [
    (-9, [], (False, True)), (-9, [NOTICED], (True, True)), (-15, [], (False, True)),
    (-15, [NOTICED], (True, False)), (-11, [], (False, False)), (75, [NOTICED], (True, False)),
    (1, [], (False, False)),
])  # fmt: skip
def test_a_process_is_lost_if_it_is_killed_also_after_it_noticed_another_one(status, words, found):
    end = report(1, "process 1", status, words)
    assert (end.second, end.lost) == found


def test_a_text_in_a_line():
    assert [in_a_line(text) for text in ("", "a", "a\nb", "a\nb\nc")] == [
        "",
        "a",
        "a (1 more line)",
        "a (2 more lines)",
    ]


@pytest.mark.processes
def test_an_exception_is_shown_in_full_once():
    source = """
        import shardwise as sw
        from shardwise.experimental.multihost_utils import sync_global_devices
        sync_global_devices("all are here")
        if sw.process_index() == 1:
            raise ValueError("it is bad:\\n  the second line\\n  the third line")
        sync_global_devices("never")
    """
    done = launch("-n", "2", source=source)
    assert (done.status, done.left) == (1, [])
    said = [line[4:] for line in done.err if line.startswith("[")]
    assert said.count("  the third line") == 1
    assert said[-2:] == ["ValueError: it is bad:", "  (2 more lines above)"]
    (lost,) = [line for line in said if line.startswith("shardwise: ")]
    assert " is lost: it failed with ValueError: it is bad: (2 more lines). Its last" in lost
