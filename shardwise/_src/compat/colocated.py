"""Stand-in for `jax.experimental.colocated_python`: Python that runs on the hosts of devices.

Only Pathways has such devices. Some libraries import this module anyway; its functions raise.
"""

from __future__ import annotations

from typing import Any, NoReturn

DeviceList = tuple  # the type of a list of devices, for annotations


def _reject(name: str) -> NoReturn:
    raise NotImplementedError(
        f"jax.experimental.colocated_python.{name}: Python functions already run in the "
        "processes of their devices here. Only Pathways has colocated Python."
    )


def colocated_cpu_devices(devices: Any) -> NoReturn:
    """Raises: there are no such devices."""
    _reject("colocated_cpu_devices")


def colocated_python(fun: Any) -> Any:
    """A function that raises when called."""
    return lambda *args, **kwargs: _reject("colocated_python")


def colocated_python_class(cls: type) -> Any:
    """A class that raises when instantiated."""
    return lambda *args, **kwargs: _reject("colocated_python_class")
