"""Settings for all tests: eight virtual CPU devices, unless the environment says otherwise.

jaxlib reads these when it is first imported, so they are set here, before any test module. A run
takes the everyday cases, the same on every date and machine, or all in a sweep: `tests.helpers`'
`everyday` and `shards`. What tests cost: `tests.helpers.costs`.
"""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

DEVICE_COUNT = "--xla_force_host_platform_device_count"
# Everyday tests compile CPU programs faster, at LLVM level 1 and in one thread; sweeps compile
# as user programs do. XLA's own passes are the same.
FASTER = {"--xla_backend_optimization_level": 1, "--xla_cpu_parallel_codegen_split_count": 1}
if version("jaxlib").startswith("0.10."):  # later releases have no other way to emit fusions
    FASTER["--xla_cpu_use_fusion_emitters"] = "false"  # an MLIR pipeline for each fusion

if DEVICE_COUNT not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {DEVICE_COUNT}=8".strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # LAPACK on eight devices at once
os.environ["SHARDWISE_ENABLE_COMPILATION_CACHE"] = "0"  # leave the user's cache alone

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # by a background shell
    signal.signal(signal.SIGINT, signal.default_int_handler)  # programs that tests start inherit it

pytest_plugins = ["tests.helpers.costs", "tests.helpers.shards"]

MAPS = Path("/proc/self/maps")
_tests = 0  # run by this process so far


def pytest_configure(config: pytest.Config) -> None:
    """Hypothesis tries the same examples in every run (`--hypothesis-profile=search`: others), and
    has no deadlines: an example takes most of its time to compile."""
    flags = os.environ["XLA_FLAGS"]
    if not config.option.sweep:
        added = [f"{flag}={value}" for flag, value in FASTER.items() if flag not in flags]
        os.environ["XLA_FLAGS"] = " ".join([flags, *added])
    if config.pluginmanager.hasplugin("hypothesispytest"):
        from hypothesis import settings

        settings.register_profile("shardwise", deadline=None, derandomize=True)
        settings.register_profile("search", deadline=None, print_blob=True)
        settings.load_profile(config.getoption("--hypothesis-profile") or "shardwise")


def pytest_report_header(config: pytest.Config) -> str:
    if config.option.sweep:
        return f"shardwise: a sweep, {config.option.shard or 'all'} cases"
    return "shardwise: the everyday cases"


def pytest_collection_finish() -> None:
    """Existing objects are permanent: the garbage collector need not traverse them repeatedly."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def programs_go_with_their_module() -> Iterator[None]:
    """Clears the caches of compiled programs, which take gigabytes for all tests together."""
    yield
    forget_programs()


@pytest.fixture(autouse=True)
def programs_are_not_too_many() -> Iterator[None]:
    """The same within a module that compiles very many: each CPU program has its own mappings, and
    the kernel allows a process 65,530. When a further mapping fails, XLA ends the process."""
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
    gc.freeze()  # what is left stays: modules that were imported since, and their caches


@pytest.fixture
def flags_restored() -> Iterator[None]:
    context = sys.modules["shardwise._src.base.context"]
    before = dict(context.ROOT.flags)
    yield
    context.update_root(flags=before)
