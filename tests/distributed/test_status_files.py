"""What processes show to `shardwise top`: complete cards, rates, and no cost without a viewer."""

import contextlib
import json
import os
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

import shardwise as sw
from shardwise._src.distributed import status_files as boards
from shardwise._src.distributed.status_files import (
    LaunchStatus,
    ProcessStatus,
    Progress,
    folder,
    make_private,
    write,
)
from shardwise.distributed import report_progress
from tests.helpers.patience import seconds


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "shardwise"


# -------------------------------------------------------------------------------------- cards


def test_a_card_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "card"
    for record in ({"long": "x" * 5000}, {"short": 1}, {"ä\n": [None, 0.5]}):
        write(path, record)
        assert boards.read(path) == record
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("data", [b"", b"junk", b"{", b"[]", b"\xff", b'{"a": 1}{}'], ids=repr)
def test_what_is_no_card_says_nothing(tmp_path, data):
    (tmp_path / "card").write_bytes(data)
    assert boards.read(tmp_path / "card") == {}
    assert boards.read(tmp_path / "none") == {}


def test_readers_see_whole_records_while_they_change(tmp_path):
    path, stop = tmp_path / "card", threading.Event()
    write(path, {"n": 0, "pad": ""})

    def change():
        n = 0
        while not stop.is_set():
            n += 1
            write(path, {"n": n, "pad": "x" * (n % 977)})

    thread = threading.Thread(target=change)
    thread.start()
    try:
        found = [boards.read(path) for _ in range(200)]
    finally:
        stop.set()
        thread.join()
    whole = [record for record in found if record]
    assert len(whole) == 200
    assert all(len(r["pad"]) == r["n"] % 977 for r in whole)
    assert [r["n"] for r in whole] == sorted(r["n"] for r in whole)


def test_a_link_is_not_followed(tmp_path):
    for name in ("card", "card.new"):
        (tmp_path / name).symlink_to(tmp_path / "elsewhere")
        with contextlib.suppress(OSError):
            write(tmp_path / "card", {})
    assert not (tmp_path / "elsewhere").exists()


# -------------------------------------------------------------------------------------- rates


def test_rates_are_over_the_last_seconds():
    progress = Progress()
    assert progress.record(0.0) == {}
    for n in range(100):  # 10 steps a second, with 8 tokens each; then 2 a second
        progress.add(n, 8, {}, 0.1 * n)
    record = progress.record(9.9)
    assert record["step"] == 99 and record["ago"] == 0
    assert record["steps_per_second"] == pytest.approx(10)
    assert record["tokens_per_second"] == pytest.approx(80)
    for n in range(30):
        progress.add(100 + n, 8, {"loss": n}, 10.4 + 0.5 * n)
    record = progress.record(24.9)
    assert record["steps_per_second"] == pytest.approx(2)
    assert record["facts"] == {"loss": 29}


def test_many_reports_are_kept_in_little():
    progress = Progress()
    for n in range(20000):
        progress.add(n, 1, {}, n * 1e-3)
    assert progress.record(20.0)["steps_per_second"] == pytest.approx(1000, rel=0.02)
    assert len(progress._past) <= boards.WINDOW / boards.APART + 3


def test_a_program_that_stands_still_slows_down():
    progress = Progress()
    for n in range(10):
        progress.add(n, 0, {}, float(n))
    assert progress.record(9.0)["steps_per_second"] == pytest.approx(1)
    assert progress.record(99.0)["steps_per_second"] < 0.11
    assert "tokens_per_second" not in progress.record(9.0)
    progress.add(3, 0, {}, 100.0)  # restarted from a checkpoint
    assert "steps_per_second" not in progress.record(100.0)
    progress.add(4, 0, {}, 101.0)
    assert progress.record(101.0)["steps_per_second"] == pytest.approx(1)


# ------------------------------------------------------------------------------------- a process


def test_a_process_shows_itself_to_those_who_look(tmp_path):
    path = tmp_path / "rank-0"
    board = ProcessStatus(str(path))
    board.report(3, 10, {"loss": 0.5})
    assert not path.exists()  # there is no viewer
    (tmp_path / "looked").touch()
    board.show({"waiting": "x"})
    record = boards.read(path)
    assert (record["pid"], record["step"], record["facts"]) == (os.getpid(), 3, {"loss": 0.5})
    assert record["waiting"] == "x"
    os.utime(tmp_path / "looked", (1, 1))
    board.show({"waiting": "y"})
    assert boards.read(path)["waiting"] == "x"


def test_without_a_launcher_it_is_only_kept():
    boards.board.progress.__init__()
    report_progress(7, tokens=np.int64(3), loss=np.float32(0.25))
    assert boards.board.progress.record(0.0)["facts"] == {"loss": 0.25}
    assert boards.board._path is None


def test_bytes_on_devices():
    before = boards._device_bytes()
    x = sw.numpy.zeros((256, 1024), "float32")
    x.block_until_ready()
    assert (boards._device_bytes() or 0) - (before or 0) == x.nbytes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            dict(step=sw.numpy.int32(1)),
            "step must be an integer of Python or NumPy; got Array. Reading "
            "an array would have to wait for it: pass int(step) if that is intended.",
        ),
        (
            dict(step=1.5),
            "step must be an integer of Python or NumPy; got float. Reading an array "
            "would have to wait for it: pass int(step) if that is intended.",
        ),
        (
            dict(step=1, tokens="3"),
            "tokens must be an integer of Python or NumPy; got str. Reading an "
            "array would have to wait for it: pass int(tokens) if that is intended.",
        ),
        (
            dict(step=1, loss=sw.numpy.float32(1)),
            "loss must be a number of Python or NumPy; got Array. "
            "Reading an array would have to wait for it: pass float(loss) if that is intended.",
        ),
    ],
)
def test_what_is_no_number(arguments, message):
    with pytest.raises(TypeError, match=f"^{re.escape('report_progress: ' + message)}$"):
        report_progress(**arguments)


def test_a_child_of_a_process_shows_nothing(root):
    """Programs that a process starts inherit its environment."""
    make_private(root)
    here = root / str(os.getpid())
    make_private(here)
    code = (
        "import os, pathlib; from shardwise.distributed import report_progress; "
        f"(pathlib.Path(os.environ[{boards.VARIABLE!r}]).parent / 'looked').touch(); "
        "report_progress(1)"  # a look lasts a few seconds, and the import may take longer
    )
    env = {**os.environ, boards.VARIABLE: str(here / "rank-0")}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=seconds(60))
    assert boards.read(here / "rank-0")["step"] == 1
    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}], check=True)"
    env[boards.VARIABLE] = str(here / "rank-1")
    subprocess.run([sys.executable, "-c", inner], env=env, check=True, timeout=seconds(60))
    assert not (here / "rank-1").exists()


# ------------------------------------------------------------------------------------- a launcher


def test_a_launch_is_found_while_its_launcher_lives(root):
    notice = LaunchStatus({"command": ["a.py"]})
    assert notice.why == ""
    notice.show(generation=1)
    (path,) = boards.launches(root)
    assert path == root / str(os.getpid())
    assert boards.read(path / "launch")["generation"] == 1
    assert notice.card_of(3) == str(path / "rank-3")
    assert root.stat().st_mode & 0o777 == 0o700
    notice.remove()
    notice.show(generation=2)
    assert boards.launches(root) == [] and not path.exists()


def test_what_a_killed_launcher_left_is_swept(root):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = root / str(dead.pid)
    make_private(root)
    make_private(left)
    write(left / "launch", {})
    assert boards.launches(root) == []
    notice = LaunchStatus({})
    assert not left.exists()
    notice.remove()


def test_a_folder_of_somebody_else_is_not_used(root):
    root.mkdir(mode=0o755)
    notice = LaunchStatus({})
    why = f"{root} is not a folder that only this user can use"
    assert notice.why == f"`shardwise top` will not show this launch: {why}"
    assert notice.card_of(0) == ""
    notice.show(x=1)
    notice.remove()
    root.rmdir()
    root.symlink_to(root.parent)
    with pytest.raises(PermissionError):
        make_private(root)


def test_the_folder(root, monkeypatch, tmp_path):
    assert folder() == root
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert folder() == tmp_path / f"shardwise-{os.getuid()}"


def test_records_are_json_and_nothing_else(tmp_path):
    write(tmp_path / "card", {"a": 1})
    assert json.loads((tmp_path / "card").read_bytes()) == {"a": 1}
