"""`xmap`, a map over named dimensions, and the resources for its axes."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.maps.axis_resources import EMPTY_ENV as EMPTY_ENV
    from shardwise._src.maps.axis_resources import Loop as Loop
    from shardwise._src.maps.axis_resources import ResourceEnv as ResourceEnv
    from shardwise._src.maps.axis_resources import SerialLoop as AnonymousSerialLoop
    from shardwise._src.maps.axis_resources import SerialLoop as SerialLoop
    from shardwise._src.maps.axis_resources import serial_loop as serial_loop
    from shardwise._src.maps.axis_resources import thread_resources as thread_resources
    from shardwise._src.maps.xmap import xmap as xmap
    from shardwise._src.types.mesh import Mesh as Mesh
    from shardwise._src.types.mesh import Mesh as mesh

lazy_names(__name__)
