"""Hardware without libraries of linear algebra: XLA's CPU backend under another name.

Programs for its devices run, with the implementations that TPUs and unknown platforms get.
"""

import functools

from jaxlib import xla_client as xc

from shardwise._src.runtime import platforms
from shardwise._src.runtime.platforms import Platform


@functools.cache
def bare_devices(count: int = 4, linalg: tuple[str, ...] = ("xla",)) -> list:
    """Devices of XLA's CPU client whose platform has only these libraries. Programs that call
    another than "xla" cannot run."""
    return devices_of(Platform(name="-".join(["bare", *linalg[:-1]]), linalg=linalg), count)


def devices_of(platform: Platform, count: int = 4) -> list:
    """Devices of a client that no name finds, so that other tests are not affected."""
    client = xc.make_cpu_client(asynchronous=True, num_devices=count)
    platforms.started(platform, client)
    return client.devices()
