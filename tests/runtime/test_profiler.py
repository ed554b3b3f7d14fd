"""Profiles: their contents, the files written, and the arguments rejected."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise import profiler
from shardwise._src.runtime import profiler as inner
from tests.helpers.patience import seconds

X = np.ones((64, 64), np.float32)


@sw.jit
def profiled(x: Any) -> Any:
    return snp.tan(x) @ x


def options() -> Any:
    found = profiler.ProfileOptions()
    found.python_tracer_level = 0  # do not trace every Python call
    return found


def work() -> None:
    with profiler.StepTraceAnnotation("train", step_num=7):
        profiled(X).block_until_ready()
    with profiler.TraceAnnotation("reading", rows=64):
        profiler.annotate_function(np.sum, name="summing")(X)


def names(data: Any) -> set[str]:
    return {e.name for plane in data.planes for line in plane.lines for e in line.events}


def test_a_profile_is_written_for_xprof_and_perfetto(tmp_path: Path):
    with profiler.trace(tmp_path, create_perfetto_trace=True, profiler_options=options()) as run:
        assert run.is_running
        assert run.profile_data is None
        work()
    assert not run.is_running
    assert {"train", "reading", "summing"} <= names(run.profile_data)
    (folder,) = (tmp_path / "plugins" / "profile").iterdir()
    (plane_file,) = folder.glob("*.xplane.pb")
    assert names(profiler.ProfileData.from_file(str(plane_file))) == names(run.profile_data)
    with gzip.open(folder / "perfetto_trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    shown = {e["name"]: e for e in events if e["ph"] == "X"}
    assert shown["train"]["args"]["step_num"] == 7
    assert shown["reading"]["args"]["rows"] == 64
    assert all(e["dur"] >= 0 for e in shown.values())
    assert any(e["args"].get("hlo_module") == "jit_profiled" for e in shown.values())
    places = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in shown.values()} <= places


def test_start_and_stop(tmp_path: Path):
    profiler.start_trace(tmp_path / "a", profiler_options=options())
    with pytest.raises(RuntimeError) as error:
        profiler.start_trace(tmp_path / "b")
    assert str(error.value) == (
        "a profile is already being collected, and only one at a time is possible: call "
        "shardwise.profiler.stop_trace() first."
    )
    work()
    assert "reading" in names(profiler.stop_trace())
    assert len(list((tmp_path / "a").rglob("*.xplane.pb"))) == 1
    with pytest.raises(RuntimeError) as error:
        profiler.stop_trace()
    assert str(error.value) == (
        "no profile is being collected: call shardwise.profiler.start_trace(folder) first."
    )


def test_what_was_collected_is_written_later(tmp_path: Path):
    session = profiler.ProfileSession(profiler_options=options())
    with pytest.raises(ValueError) as error:
        profiler.export_profile_data(session, tmp_path)
    assert str(error.value) == ("export_profile_data: the session has no data yet: stop it first.")
    with session:
        work()
    session.export_profile_data(tmp_path, session_id="mine")
    (path,) = (tmp_path / "plugins" / "profile" / "mine").iterdir()
    assert path.suffix == ".pb"
    with pytest.raises(RuntimeError) as error:
        session.stop()
    assert str(error.value) == (
        "no profile is being collected: it was not started, or was already stopped."
    )
    with pytest.raises(TypeError) as error:
        profiler.export_profile_data(session.profile_data, tmp_path)
    assert str(error.value) == (
        "export_profile_data expects a stopped session, as shardwise.profiler.trace returns; got "
        "an object of type ProfileData. jaxlib does not expose the bytes of a ProfileData."
    )


def test_a_link_for_perfetto(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr(inner, "PERFETTO_PORT", free.getsockname()[1])
    with profiler.trace(profiler_options=options()) as session:
        work()
    serving = threading.Thread(
        target=session.export_profile_data, args=(tmp_path, True), daemon=True
    )
    serving.start()
    printed = ""
    while "url=" not in printed:
        printed += capsys.readouterr().out
        assert serving.is_alive()
        serving.join(0.01)
    url = printed.strip().partition("url=")[2]
    with urllib.request.urlopen(url, timeout=seconds(20)) as answer:
        assert answer.headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
        assert b"train" in gzip.decompress(answer.read())
    serving.join(seconds(20))
    assert not serving.is_alive()


def test_a_server(tmp_path: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ValueError, match="no profiler server is running"):
        profiler.stop_server()
    assert profiler.start_server(port) is not None
    try:
        socket.create_connection(("127.0.0.1", port), timeout=seconds(10)).close()
        with pytest.raises(ValueError) as error:
            profiler.start_server(port)
        assert str(error.value) == (
            "a profiler server is already running, and only one at a time is possible: call "
            "shardwise.profiler.stop_server() first."
        )
    finally:
        profiler.stop_server()


def test_memory_of_devices(tmp_path: Path):
    held = snp.ones((8, 1024))
    profiler.save_device_memory_profile(tmp_path / "memory.prof", backend="cpu")
    content = (tmp_path / "memory.prof").read_bytes()
    if content.startswith(b"\x1f\x8b"):
        content = gzip.decompress(content)
    assert b"buffer" in content
    assert held.shape == (8, 1024)


def test_costs_of_instructions(tmp_path):
    """Only for GPUs: a profile of CPU devices has no costs."""
    from shardwise.experimental.profiler import get_profiled_instructions_proto

    with sw.profiler.trace(tmp_path):
        sw.jit(lambda x: x + 1)(1.0).block_until_ready()
    (run,) = (tmp_path / "plugins" / "profile").iterdir()
    assert get_profiled_instructions_proto(str(run)) == b""
