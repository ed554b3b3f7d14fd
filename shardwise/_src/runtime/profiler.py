"""Profiles of the devices and the host, for Perfetto and XProf, and annotations in them.

    with trace("profile", create_perfetto_trace=True):
        step(state).block_until_ready()

One profile is collected at a time, by XLA's profiler. XProf's files are written to a folder, and
with `create_perfetto_trace` also a `perfetto_trace.json.gz` for https://ui.perfetto.dev.
"""

from __future__ import annotations

import functools
import gzip
import http.server
import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from jaxlib import _profile_data, _profiler

from shardwise._src.runtime import backend

if TYPE_CHECKING:  # for users' programs: there jaxlib has no stubs
    ProfileData: TypeAlias = Any
    ProfileEvent: TypeAlias = Any
    ProfileLine: TypeAlias = Any
    ProfilePlane: TypeAlias = Any
    ProfileOptions: TypeAlias = Any
    ProfilerServer: TypeAlias = Any
else:
    ProfileData = _profile_data.ProfileData
    ProfileEvent = _profile_data.ProfileEvent
    ProfileLine = _profile_data.ProfileLine
    ProfilePlane = _profile_data.ProfilePlane
    ProfileOptions = _profiler.ProfileOptions
    ProfilerServer = _profiler.ProfilerServer
_TraceMe: Any = _profiler.TraceMe  # as above

PERFETTO_FILE = "perfetto_trace.json.gz"
PERFETTO_PORT = 9001  # the port that Perfetto's page may load from
PathLike = str | os.PathLike[str]
P = ParamSpec("P")
R = TypeVar("R")


class TraceAnnotation(_TraceMe):
    """Shows a `with` block as a named event in the current profile.

    Args:
      name: the name of the event.
      **kwargs: numbers and strings that are shown with it.
    """


class StepTraceAnnotation(TraceAnnotation):
    """The same for one step of a training loop, by which profiles are split: `step_num=i`."""

    def __init__(self, name: str, **kwargs: Any):
        super().__init__(name, _r=1, **kwargs)  # pyright: ignore[reportUnknownMemberType] (jaxlib's)


def annotate_function(
    func: Callable[P, R], name: str | None = None, **decorator_kwargs: Any
) -> Callable[P, R]:
    """The function with a `TraceAnnotation` around each call.

    Args:
      func: any function.
      name: the name of the events; by default that of the function.
      **decorator_kwargs: numbers and strings that are shown with each event.
    """
    shown = name or getattr(func, "__qualname__", None) or type(func).__name__

    @functools.wraps(func)
    def annotated(*args: P.args, **kwargs: P.kwargs) -> R:
        with TraceAnnotation(shown, **decorator_kwargs):
            return func(*args, **kwargs)

    return annotated


class ProfileSession:
    """A profile that is collected between `start` and `stop`, or in a `with` block.

    profile_data: the collected profile, once it has stopped; None before. collected: its bytes.
    """

    def __init__(
        self,
        log_dir: PathLike | None = None,
        create_perfetto_link: bool = False,
        create_perfetto_trace: bool = False,
        profiler_options: Any = None,
    ):
        self._written = log_dir, create_perfetto_link, create_perfetto_trace
        self._options = profiler_options
        self._raw: _profiler.ProfilerSession | None = None
        self.collected: bytes | None = None

    @property
    def is_running(self) -> bool:
        return _state.session is self

    @property
    def profile_data(self) -> Any:
        if self.collected is None:
            return None
        return _profile_data.ProfileData.from_serialized_xspace(self.collected)

    def start(self) -> ProfileSession:
        """Starts collecting, and the devices. Raises RuntimeError if another profile is running."""
        backend.client()  # first, so that device activity is collected
        with _state.lock:
            if _state.session is not None:
                raise RuntimeError(
                    "a profile is already being collected, and only one at a time is possible: "
                    "call shardwise.profiler.stop_trace() first."
                )
            self._raw = _profiler.ProfilerSession(self._options or _profiler.ProfileOptions())
            self.collected = None
            _state.session = self
        return self

    def stop(self) -> Any:
        """Stops collecting; writes the profile, if there is a folder, and returns it.

        Raises RuntimeError for a session that is not running.
        """
        with _state.lock:
            if _state.session is not self:
                raise RuntimeError(
                    "no profile is being collected: it was not started, or was already stopped."
                )
            assert self._raw is not None  # set by `start`, as the session is
            self.collected = self._raw.stop()
            _state.session = None
        log_dir, link, perfetto = self._written
        if log_dir is not None:
            export_profile_data(self, log_dir, link, perfetto)
        return self.profile_data

    def export_profile_data(
        self,
        log_dir: PathLike,
        create_perfetto_link: bool = False,
        create_perfetto_trace: bool = False,
        session_id: str | None = None,
    ) -> None:
        """Writes the collected profile: see `shardwise.profiler.export_profile_data`."""
        export_profile_data(self, log_dir, create_perfetto_link, create_perfetto_trace, session_id)

    def __enter__(self) -> ProfileSession:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.stop()


class _State:
    session: ProfileSession | None = None  # the running one
    server: _profiler.ProfilerServer | None = None
    lock = threading.Lock()


_state = _State()


def start_trace(
    log_dir: PathLike,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: Any = None,
) -> ProfileSession:
    """Collects a profile until `stop_trace` is called.

    Args:
      log_dir: the folder that it is then written to, in XProf's format.
      create_perfetto_link: whether to then serve it to https://ui.perfetto.dev, through a link that
        is printed; the program waits until it is opened.
      create_perfetto_trace: whether to also write a file for that page.
      profiler_options: a `ProfileOptions` that selects what is collected.

    Raises:
      RuntimeError: another profile is being collected.
    """
    return ProfileSession(
        log_dir, create_perfetto_link, create_perfetto_trace, profiler_options
    ).start()


def stop_trace() -> ProfileData:
    """Stops the profile begun by `start_trace`, writes it, and returns it as a `ProfileData`.

    Raises:
      RuntimeError: no profile is being collected.
    """
    session = _state.session
    if session is None:
        raise RuntimeError(
            "no profile is being collected: call shardwise.profiler.start_trace(folder) first."
        )
    return session.stop()


@contextmanager
def trace(
    log_dir: PathLike | None = None,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: Any = None,
) -> Generator[ProfileSession]:
    """Collects a profile inside a `with` block, and yields its session.

    The arguments are those of `start_trace`; without a folder nothing is written, and
    `session.profile_data` has the whole profile.
    """
    with ProfileSession(
        log_dir, create_perfetto_link, create_perfetto_trace, profiler_options
    ) as session:
        yield session


def export_profile_data(
    profile_data: Any,
    log_dir: PathLike,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    session_id: str | None = None,
) -> None:
    """Writes a profile to a folder, in XProf's layout: `plugins/profile/SESSION/`.

    Args:
      profile_data: a session that has stopped.
      log_dir: the folder.
      create_perfetto_link, create_perfetto_trace: see `start_trace`.
      session_id: the name of the folder inside; by default the current time.

    Raises:
      TypeError: for a bare `ProfileData`, since jaxlib does not expose its bytes.
      ValueError: for a session that has collected nothing yet.
    """
    if not isinstance(profile_data, ProfileSession):
        raise TypeError(
            "export_profile_data expects a stopped session, as shardwise.profiler.trace returns; "
            f"got an object of type {type(profile_data).__name__}. jaxlib does not expose the "
            "bytes of a ProfileData."
        )
    collected = profile_data.collected
    if collected is None:
        raise ValueError("export_profile_data: the session has no data yet: stop it first.")
    name = session_id or time.strftime("%Y_%m_%d_%H_%M_%S")
    folder = Path(log_dir).absolute() / "plugins" / "profile" / name
    folder.mkdir(parents=True, exist_ok=True)
    index = backend.process_index()
    host = f"{os.uname().nodename}{f'_{index}' if index else ''}"  # processes may share one
    (folder / f"{host}.xplane.pb").write_bytes(collected)
    if create_perfetto_trace or create_perfetto_link:
        path = folder / PERFETTO_FILE
        with warnings.catch_warnings():
            # Python issues a warning about a jaxlib class on first use. As an error, it would end
            # the process.
            warnings.simplefilter("ignore", DeprecationWarning)
            events = _perfetto(profile_data.profile_data)
        with gzip.open(path, "wt", encoding="utf-8") as file:
            json.dump(events, file)
        if create_perfetto_link:
            _serve(path)


def _perfetto(data: _profile_data.ProfileData) -> dict[str, Any]:
    """The events in Chrome's trace event format, which Perfetto reads. Times are in µs."""
    events: list[dict[str, Any]] = []
    for number, plane in enumerate(data.planes, 1):
        own = _events_of(plane, number)
        if own:
            events.append(_name("process_name", number, 0, plane.name))
            events += own
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _events_of(plane: _profile_data.ProfilePlane, process: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for thread, line in enumerate(plane.lines, 1):
        rows = [
            {
                "ph": "X",
                "pid": process,
                "tid": thread,
                "name": event.name,
                "ts": event.start_ns / 1e3,
                "dur": event.duration_ns / 1e3,
                "args": {str(key): _plain(value) for key, value in event.stats},
            }
            for event in line.events
        ]
        if rows:
            found += [_name("thread_name", process, thread, line.name), *rows]
    return found


def _name(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": thread, "name": kind, "args": {"name": name}}


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str) else str(value)


def _serve(path: Path) -> None:
    """Serves the file once to Perfetto's page, and prints the link to open."""
    content = path.read_bytes()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Access-Control-Allow-Origin", "https://ui.perfetto.dev")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            self.server.given = True  # pyright: ignore[reportAttributeAccessIssue]

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", PERFETTO_PORT), Handler) as server:
        address = f"http://127.0.0.1:{server.server_address[1]}/{path.name}"
        print(f"Open in a browser: https://ui.perfetto.dev/#!/?url={address}", flush=True)
        while not getattr(server, "given", False):
            server.handle_request()


def start_server(port: int, requires_backend: bool = True) -> ProfilerServer:
    """Starts a server through which XProf can profile this process, until `stop_server`.

    Args:
      port: the port it listens on.
      requires_backend: whether to start the devices first.

    Raises:
      ValueError: a server is running already.
    """
    with _state.lock:
        if _state.server is not None:
            raise ValueError(
                "a profiler server is already running, and only one at a time is possible: call "
                "shardwise.profiler.stop_server() first."
            )
        if requires_backend:
            backend.client()
        _state.server = _profiler.start_server(port)
        return _state.server


def stop_server() -> None:
    """Stops the server of `start_server`. Raises ValueError if no server is running."""
    with _state.lock:
        if _state.server is None:
            raise ValueError("no profiler server is running.")
        _state.server = None  # its destructor stops the server


def register_subprocess(pid: int, port: int) -> Callable[[], None]:
    """Makes CPU profiles of this process include those of another process's profiler server.

    Args:
      pid: of the other process.
      port: of its server.

    Returns:
      A function that ends this when called.
    """
    return _profiler.register_subprocess(pid, port)


def get_profiled_instructions_proto(tensorboard_dir: str) -> bytes:
    """The instruction costs measured by a profile, in the format that XLA's scheduler reads.

    Args:
      tensorboard_dir: the folder of one profile, `…/plugins/profile/RUN`.

    Returns:
      The bytes of a `ProfiledInstructionsProto` for a profile of NVIDIA GPUs; else empty.

    Raises:
      RuntimeFailure: the folder contains no profile.
    """
    return _profiler.get_profiled_instructions_proto(tensorboard_dir)


def device_memory_profile(backend: str | None = None) -> bytes:
    """A profile of device memory usage, in pprof's format.

    backend: a platform's name; by default the first platform.
    """
    return _client(backend).heap_profile()


def save_device_memory_profile(filename: PathLike, backend: str | None = None) -> None:
    """Writes `device_memory_profile` to a file. `pprof --web FILE` shows it."""
    Path(filename).write_bytes(device_memory_profile(backend))


_client = backend.client
