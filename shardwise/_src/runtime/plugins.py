"""Clients of PJRT plugins, which are shared libraries of hardware vendors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxlib import _jax
from jaxlib import xla_client as xc

from shardwise._src.runtime import processes

_apis: dict[str, Any] = {}


def c_api(name: str) -> Any:
    """The API of a plugin that has a client."""
    if name not in _apis:
        raise RuntimeError(
            f"the plugin of the platform {name!r} is not loaded yet; use one of its devices first."
        )
    return _apis[name]


def make_client(name: str, library_path: str, options: Mapping[str, Any]) -> _jax.Client:
    """Loads a plugin under a name and returns its client.

    options: for the plugin; those for several processes are added.
    """
    _apis[name] = xc.load_pjrt_plugin_dynamically(name, library_path)
    xc.initialize_pjrt_plugin(name)
    here = processes.link()
    given = {**options, **processes.plugin_options()}
    return xc.make_c_api_client(name, given, here and here.client)
