"""Settings for all tests: eight virtual CPU devices, unless the environment says otherwise.

jaxlib reads these when it is first imported, so they are set here, before any test module.
"""

import os
import sys
from collections.abc import Iterator

import pytest

DEVICE_COUNT = "--xla_force_host_platform_device_count"

if DEVICE_COUNT not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {DEVICE_COUNT}=8".strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
os.environ["SHARDWISE_ENABLE_COMPILATION_CACHE"] = "0"  # nothing from or for the user's files


def pytest_configure(config: pytest.Config) -> None:
    """The same examples in every run; `--hypothesis-profile=search` tries others.

    No deadlines for hypothesis: an example's time is mostly that of compiling it.
    """
    if config.pluginmanager.hasplugin("hypothesispytest"):
        from hypothesis import settings

        settings.register_profile("shardwise", deadline=None, derandomize=True)
        settings.register_profile("search", deadline=None, print_blob=True)
        settings.load_profile(config.getoption("--hypothesis-profile") or "shardwise")


@pytest.fixture(autouse=True, scope="module")
def programs_go_with_their_module() -> Iterator[None]:
    """Empties the caches of compiled programs: those of all tests together hold gigabytes."""
    yield
    if eager := sys.modules.get("shardwise._src.running.eager"):
        eager.EAGER.cache.clear()
        sys.modules["shardwise._src.compiling.module_cache"]._modules.clear()
    if jax := sys.modules.get("jax"):
        jax.clear_caches()
