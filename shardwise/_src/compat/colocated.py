"""Stands for `jax.experimental.colocated_python`: Python that runs beside devices of other hosts.

Only Pathways has such devices. Libraries import this module all the same, and its functions raise.
"""

from __future__ import annotations

from typing import Any, NoReturn

DeviceList = tuple  # what a list of devices is, in annotations


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(
        f"jax.experimental.colocated_python.{name}: Python functions run in the processes of their "
        "devices here, and there is no other place for them. Only Pathways has colocated Python."
    )


def colocated_cpu_devices(devices: Any) -> NoReturn:
    """Refuses: there are no such devices."""
    _refuse("colocated_cpu_devices")


def colocated_python(fun: Any) -> Any:
    """A function that refuses to be called."""
    return lambda *args, **kwargs: _refuse("colocated_python")


def colocated_python_class(cls: type) -> Any:
    """A class that refuses to be instantiated."""
    return lambda *args, **kwargs: _refuse("colocated_python_class")
