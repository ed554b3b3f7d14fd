"""The repr of arrays that this process cannot read: local information, without communication."""

from types import SimpleNamespace

import numpy as np
import pytest

import shardwise as sw
from shardwise._src.arrays.conversions import SHARDS_SHOWN, Concrete
from shardwise._src.types.mesh import Mesh
from shardwise.sharding import NamedSharding
from tests.helpers.layouts import Device, P, mesh


class Far(Concrete):
    """An array over devices of several processes; this process is process 0."""

    def __init__(self, value, spec, sizes=(4, 2), per_process=2):
        self.whole = value
        self.aval = sw.typeof(value)
        self.sharding = NamedSharding(far_mesh(sizes, per_process), spec)
        self.is_fully_addressable = self.sharding.is_fully_addressable
        self.is_fully_replicated = self.sharding.is_fully_replicated

    def is_deleted(self):
        return False

    def _value(self):
        raise AssertionError("the whole value was asked for")

    @property
    def addressable_shards(self):
        indices = self.sharding.indices(self.shape)
        return [self.shard(i, indices[i]) for i in self.sharding.addressable_positions]

    def shard(self, position, index):
        part = self.whole[index]
        data = SimpleNamespace(_value=lambda: part, size=part.size)
        return SimpleNamespace(device=self.sharding.devices[position], index=index, data=data)


class Named(Device):
    def __repr__(self):
        return f"Cpu({self.id})"


def far_mesh(sizes, per_process):
    devices = np.empty(int(np.prod(sizes)), object)
    devices[:] = [
        Named(id=i, platform="cpu", process_index=i // per_process) for i in range(devices.size)
    ]
    return Mesh(devices.reshape(sizes), ("x", "y"))


def test_local_shards_are_shown():
    x = Far(np.arange(24.0, dtype=np.float32).reshape(8, 3), P("x"), per_process=4)
    assert repr(x) == (
        "Array(shape=(8, 3), dtype=float32) sharded as NamedSharding(mesh=Mesh('x': 4, 'y': 2), "
        "spec=P('x')), addressable shards:\n"
        "  [0:2, 0:3] on Cpu(0): [[0., 1., 2.],\n"
        "                         [3., 4., 5.]]\n"
        "  [2:4, 0:3] on Cpu(2): [[ 6.,  7.,  8.],\n"
        "                         [ 9., 10., 11.]]"
    )
    assert str(x) == repr(x) == f"{x}"


def test_blocks_without_elements_and_none_here():
    x = Far(np.arange(5, dtype=np.int32), P(("x", "y")), per_process=3)
    x.sharding.__dict__["_cached_addressable"] = (3, 4, 5)
    text = repr(x).splitlines()
    assert text[1:] == [
        "  [3:4] on Cpu(3): [3]",
        "  [4:5] on Cpu(4): [4]",
        "  [5:5] on Cpu(5): no elements",
    ]
    y = Far(np.arange(8, dtype=np.int32), P("x"))
    y.sharding.__dict__["_cached_addressable"] = ()
    assert repr(y) == (
        "Array(shape=(8,), dtype=int32) sharded as NamedSharding(mesh=Mesh('x': 4, 'y': 2), "
        "spec=P('x')), no addressable shards"
    )


def test_many_shards_are_cut_short():
    count = SHARDS_SHOWN + 3
    x = Far(np.arange(2 * count), P("x"), (count * 2, 1), per_process=count)
    lines = repr(x).splitlines()
    assert len(lines) == SHARDS_SHOWN + 2
    assert lines[-1] == "  and 3 more shards"


def test_html_of_what_cannot_be_read():
    x = Far(np.arange(8, dtype=np.int32), P("x"))
    html = x._repr_html_()
    assert "addressable shards:\n  [0:2] on Cpu(0): [0, 1]</pre>" in html
    assert "p1 to p3: devices of other processes; this is process 0." in html


@pytest.mark.parametrize("spec, where", [(P("data"), True), (None, False)])
def test_deleted_arrays_say_where_they_were(spec, where):
    x = sw.numpy.zeros((4, 2))
    if spec is not None:
        x = sw.device_put(x, NamedSharding(mesh(4, 2), spec))
    x.delete()
    tail = f", sharded as {x.sharding}" if where else ""
    assert repr(x) == f"Array(deleted, shape=(4, 2), dtype=float32){tail}"
