"""The inputs of `initialize`: its arguments, environment variables, the cluster.

An argument takes precedence over a variable, `SHARDWISE_NUM_PROCESSES` over `JAX_NUM_PROCESSES`,
and each of these over the cluster. If all three variables that `shardwise launch` sets are present,
they come from the launcher, and are ignored if the program requests another cluster by name.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shardwise._src.base.warn import warn
from shardwise._src.distributed.cluster import (
    LAUNCHED,
    NAMES,
    Env,
    Place,
    Surroundings,
    at,
    detected,
    number,
)

PREFIXES = ("SHARDWISE_", "JAX_")
ARGUMENTS = {  # by the field of a place; variables are the same in capitals
    "address": "coordinator_address",
    "count": "num_processes",
    "index": "process_id",
    "local_devices": "local_device_ids",
}


@dataclass(frozen=True)
class Resolved:
    """The place of this process in the program, and the source of each fact.

    cluster: the one that was queried; "" if none.
    sources: the source of each known field of `place`: an argument, a variable, or the cluster.
    """

    cluster: str
    place: Place
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        required = ("address", "count", "index")
        return [ARGUMENTS[name] for name in required if getattr(self.place, name) is None]


def variable(env: Env, name: str, prefixes: Sequence[str] = PREFIXES) -> str:
    """The name of the non-empty variable for an argument, with either prefix; "" if none is set."""
    return next((prefix + name for prefix in prefixes if env.get(prefix + name)), "")


def resolve(
    address: Any,
    count: Any,
    index: Any,
    devices: Any,
    method: str | None,
    here: Surroundings | None = None,
) -> Resolved:
    """Collects the known facts about this process; some may be missing.

    Raises:
      ValueError, TypeError: an argument or a variable is invalid.
    """
    here = Surroundings() if here is None else here
    given = {
        "address": None if address is None else str(address),
        "count": None if count is None else _integer("num_processes", count),
        "index": None if index is None else _integer("process_id", index),
        "local_devices": None if devices is None else _devices(devices),
    }
    sources = {name: "argument" for name, value in given.items() if value is not None}
    launched = all(name in here.env for name in LAUNCHED)
    prefixes = PREFIXES[1:] if launched and method != "shardwise" and method else PREFIXES
    for name, value, source in _from_variables(here.env, prefixes):
        if given[name] is None:
            given[name], sources[name] = value, source
    cluster, found = _of_cluster(method, here, given)
    place = replace(found, **{name: v for name, v in given.items() if v is not None})
    port = variable(here.env, "COORDINATOR_PORT")
    if port and given["address"] is None and place.address is not None:
        host = place.address.rpartition(":")[0].strip("[]")
        place = replace(place, address=at(host, number(here.env, port)))
        sources["address"] = f"{cluster} with {port}"
    for name in given:
        if getattr(place, name) is not None:
            sources.setdefault(name, cluster)
    same = place.address == found.address
    return Resolved(cluster, replace(place, started=found.started and same), sources)


def _from_variables(env: Env, prefixes: Sequence[str]) -> list[tuple[str, Any, str]]:
    found: list[tuple[str, Any, str]] = []
    readers = {"address": operator.getitem, "local_devices": _ids}
    for field_name, name in ARGUMENTS.items():
        source = variable(env, name.upper(), prefixes)
        if source:
            found.append((field_name, readers.get(field_name, number)(env, source), source))
    return found


def _of_cluster(method: str | None, here: Surroundings, given: dict[str, Any]) -> tuple[str, Place]:
    """Queries the cluster, which is optional if only the local devices are still unknown."""
    if method is not None or None in (given["address"], given["count"], given["index"]):
        return detected(method, here)
    try:
        cluster, found = detected(None, here)
    except ValueError:
        return "", Place()
    # Another count or index: these are not the processes that the cluster has started.
    same = (found.count, found.index) == (given["count"], given["index"])
    return (cluster, found) if same else ("", Place())


def complete(found: Resolved) -> Place:
    """The place, if it is complete and consistent.

    Raises:
      ValueError: names the missing or inconsistent fields, and a remedy.
    """
    place, cluster = found.place, found.cluster
    if found.missing:
        names = ", ".join(found.missing)
        them = "it" if len(found.missing) == 1 else "them"
        source, hint = f"no cluster was detected that specifies {them}", ""
        if cluster:
            source, hint = f"{cluster!r} does not specify {them}", NAMES[cluster].hint
        known = ", ".join(NAMES)
        raise ValueError(
            f"initialize: {names}: missing, and {source}. "
            + (
                hint
                or "Pass the missing arguments, or start the program with `shardwise launch -n "
                f"4 program.py`. Known clusters: {known}."
            )
            + " `shardwise doctor` shows what is detected."
        )
    assert place.count is not None and place.index is not None
    if place.count < 1 or not 0 <= place.index < place.count:
        raise ValueError(
            "initialize: process_id must be from 0 to num_processes - 1; got "
            f"process_id={place.index} ({_said(found, 'index')}) and num_processes={place.count} "
            f"({_said(found, 'count')})."
        )
    return place


def _said(found: Resolved, name: str) -> str:
    source = found.sources[name]
    return {"argument": "as passed"}.get(source, f"by {source}")


def _integer(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(
            f"initialize: {name} must be an integer; got {value!r} of type {type(value).__name__}."
        ) from None


def _devices(ids: Any) -> tuple[int, ...]:
    single = hasattr(ids, "__index__")
    if isinstance(ids, str):
        raise TypeError(f"initialize: local_device_ids must be integers; got {ids!r}.")
    return _distinct([_integer("local_device_ids", i) for i in ((ids,) if single else ids)])


def _ids(env: Env, source: str) -> tuple[int, ...]:
    try:
        return _distinct([int(part) for part in env[source].split(",")])
    except ValueError:
        raise ValueError(
            f"initialize: the environment variable {source} must be integers, as in '0,1'; got "
            f"{env[source]!r}."
        ) from None


def _distinct(ids: list[int]) -> tuple[int, ...]:
    if not ids or min(ids) < 0 or len(set(ids)) < len(ids):
        raise ValueError(
            f"initialize: local_device_ids must be distinct non-negative integers; got {ids}."
        )
    return tuple(ids)


def partition(index: int | None, slice_index: int | None, env: Env) -> int | None:
    """partition_index, from either argument or from a variable."""
    old = "slice_index"
    value = slice_index if index is None else index
    if value is None and (source := variable(env, "PARTITION_INDEX")):
        return number(env, source)
    if value is None and (source := variable(env, "SLICE_INDEX")):
        value, slice_index, old = number(env, source), 0, source
    if index is None and slice_index is not None:
        new = "partition_index" if old == "slice_index" else old.replace("SLICE", "PARTITION")
        warn(f"initialize: {old} is an old name of {new}, removed in 0.4.0.", DeprecationWarning)
    return value
