"""Settings for all tests: eight virtual CPU devices, unless the environment says otherwise.

jaxlib reads these when it is first imported, so they are set here, before any test module.

Every run takes other cases of what is exhaustive, by the day (`tests.helpers.sampling`); `--sweep`
takes all. What each test cost in seconds of CPU is a property in the JUnit file, and a test over
TOO_LONG is named at the end.
"""

import gc
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import sampling

DEVICE_COUNT = "--xla_force_host_platform_device_count"

if DEVICE_COUNT not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {DEVICE_COUNT}=8".strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # LAPACK on eight devices at once
os.environ["SHARDWISE_ENABLE_COMPILATION_CACHE"] = "0"  # nothing from or for the user's files

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # by a shell that runs this in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # programs of tests take it

TOO_LONG = 10  # seconds of CPU
CPU, MEMORY = "cpu_seconds", "peak_bytes"
MAPS = Path("/proc/self/maps")
_tests = 0  # of this process, so far


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("shardwise")
    group.addoption("--sweep", action="store_true", help="all cases, not only those of a day")
    group.addoption("--seed", metavar="YYYYMMDD", help="take the cases of that day; today's (UTC)")


def pytest_configure(config: pytest.Config) -> None:
    """The day, once for all workers, which get the controller's options.

    Hypothesis tries the same examples on the same day (`--hypothesis-profile=search`: others), and
    has no deadlines: an example's time is mostly that of compiling it.
    """
    config.option.seed = config.option.seed or sampling.today()
    try:
        sampling.choose(config.option.sweep, config.option.seed)
    except ValueError as error:
        raise pytest.UsageError(f"--seed is a day, YYYYMMDD: {error}") from None
    if config.pluginmanager.hasplugin("hypothesispytest"):
        from hypothesis import settings

        settings.register_profile("shardwise", deadline=None, derandomize=True)
        settings.register_profile("search", deadline=None, print_blob=True)
        settings.load_profile(config.getoption("--hypothesis-profile") or "shardwise")


def pytest_report_header(config: pytest.Config) -> str:
    if config.option.sweep:
        return "shardwise: a sweep, all cases"
    return f"shardwise: the cases of a day; again with --seed={config.option.seed}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out tests that take turns and have theirs on another day, unless they are named."""
    named = any("::" in arg for arg in config.args)
    idle: list[pytest.Item] = []
    kept: list[pytest.Item] = []
    for item in items:
        turns = item.get_closest_marker("turns")
        takes_part = not turns or named or sampling.has_its_turn(turns.args[0], item.nodeid)
        if item.get_closest_marker("sweep"):
            takes_part = named or config.option.sweep
        (kept if takes_part else idle).append(item)
    if idle:
        config.hook.pytest_deselected(items=idle)
        items[:] = kept


def pytest_collection_finish() -> None:
    """What is there now stays: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


def _cpu() -> float:
    """Seconds of CPU of this process and of those that it started and saw end."""
    return sum(os.times()[:4])


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    item.stash[_START] = _cpu()
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    if call.when == "teardown":  # the last report of a test, which has its properties
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        item.user_properties += [(CPU, round(_cpu() - item.stash[_START], 2)), (MEMORY, peak)]
    yield


_START = pytest.StashKey[float]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The sum, the peak, what took too long, and counts of what was tried."""
    costs: dict[str, float] = {}
    counts: dict[str, int] = {}
    peak = 0
    for report in (r for rs in terminalreporter.stats.values() for r in rs):
        if getattr(report, "when", "") == "teardown":
            found = dict(report.user_properties)
            costs[report.nodeid], peak = found.get(CPU, 0), max(peak, found.get(MEMORY, 0))
            for name in found.keys() - {CPU, MEMORY}:
                counts[name] = counts.get(name, 0) + found[name]
    terminalreporter.write_line(
        f"{sum(costs.values()):.0f} s of CPU in tests; at most {peak / 2**30:.1f} GiB in a process"
    )
    for name, count in counts.items():
        terminalreporter.write_line(f"{name}: {count}")
    for name, cost in sorted(costs.items(), key=lambda item: -item[1]):
        if cost > TOO_LONG:
            terminalreporter.write_line(f"too long, {cost:.1f} s of CPU: {name}", yellow=True)


@pytest.fixture(autouse=True, scope="module")
def programs_go_with_their_module() -> Iterator[None]:
    """Empties the caches of compiled programs: those of all tests together hold gigabytes."""
    yield
    forget_programs()


@pytest.fixture(autouse=True)
def programs_are_not_too_many() -> Iterator[None]:
    """The same within a module that makes very many: code of the CPU is in mappings of its own, and
    the kernel gives a process 65,530 of them. Without one more, XLA ends the process."""
    yield
    global _tests
    _tests += 1
    if _tests % 50 == 0 and MAPS.exists() and MAPS.read_bytes().count(b"\n") > 20_000:
        forget_programs()


def forget_programs() -> None:
    if eager := sys.modules.get("shardwise._src.running.eager"):
        eager.EAGER.cache.clear()
        sys.modules["shardwise._src.compiling.module_cache"]._modules.clear()
    if jax := sys.modules.get("jax"):
        jax.clear_caches()
    gc.collect()


@pytest.fixture
def flags_restored() -> Iterator[None]:
    context = sys.modules["shardwise._src.base.context"]
    before = dict(context.ROOT.flags)
    yield
    context.update_root(flags=before)
