"""Plans of transfers: numbers counted manually, by NumPy's indices, and measured."""

import gc
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import explain
from shardwise._src.planner import transfer_cost
from shardwise._src.transfers import transfer
from shardwise.sharding import (
    AbstractMesh,
    AxisType,
    GSPMDSharding,
    Mesh,
    NamedSharding,
    SingleDeviceSharding,
)
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message
from tests.helpers.everyday import everyday
from tests.helpers.meshes import DEVICES, MESH, PLACES

ROWS, COLUMNS = PLACES["rows"], PLACES["columns"]
KNOWN = (
    "'cpu', 'v100', 'a100-40', 'a100', 'h100', 'h200', 'b200', 'gb200', 'mi300', 'tpu-v5e', 'tpu-v5p', "
    "'tpu-v6e' and 'tpu-7x'"
)
MIB = 1 << 20


def shaped(shape, place=None, dtype: Any = np.float32):
    return sw.ShapeDtypeStruct(shape, dtype, sharding=place)


def kinds(found):
    return [step.kind for step in found.steps]


@pytest.fixture
def accelerators(monkeypatch):
    """Strategies are chosen as on accelerators, which do not share the host's memory."""
    monkeypatch.setattr(
        transfer_cost,
        "reshard_steps",
        lambda sig, to, on_cpu, ready: transfer.reshard_steps(sig, to, False, ready),
    )


# ------------------------------------------------------------------------------ counted by hand


def test_rows_to_columns():
    """f32[1024,1024], 4 MiB: 4 tiles of rows, twice; to 2 tiles of columns, four times."""
    found = sw.plan(shaped((1024, 1024), ROWS), COLUMNS)
    # A device holds 1 MiB and needs 2 MiB, of which it already has a quarter: it lacks 1.5 MiB.
    assert found.bytes_moved == 8 * MIB * 3 // 2
    assert found.peak_bytes == 3 * MIB
    assert found.host_bytes == 4 * MIB  # replicas share the assembled data
    assert kinds(found) == ["copies on the host"]
    assert found.bytes_sent == 0 and found.complete and found.machine == "cpu"


def test_gathering_is_a_program(accelerators):
    found = sw.plan(shaped((1024, 1024), ROWS), PLACES["replicated"])
    assert found.bytes_moved == found.bytes_sent == 8 * 3 * MIB
    assert found.peak_bytes == 5 * MIB
    (step,) = found.steps
    assert step.kind == "program"
    (one,) = step.collectives
    assert (one.kind, one.group_size, one.bytes) == ("all-gather", 4, 4 * MIB)
    assert step.text == ("one program on 8 devices: all-gather(f32[1024,1024]) over 4 devices")
    machine = explain.machines["cpu"]
    link = machine.near
    took = 3 * MIB / link.bandwidth + 2 * link.latency + 5 * MIB / machine.memory_bandwidth
    assert step.seconds == pytest.approx(took)


def test_a_program_may_send_more_than_is_lacking(accelerators):
    """From rows to columns XLA gathers the full array on each device."""
    found = sw.plan(shaped((1024, 1024), ROWS), COLUMNS)
    assert found.bytes_moved == 12 * MIB
    assert found.bytes_sent == 24 * MIB
    assert found.peak_bytes >= (1 + 2 + 4) * MIB


def test_shards_that_are_copied():
    found = sw.plan(shaped((1024, 1024), PLACES["one"]), PLACES["another"])
    assert found.bytes_moved == found.bytes_sent == found.peak_bytes == 4 * MIB
    assert found.host_bytes == 4 * MIB
    (step,) = found.steps
    assert step.text == "each of 1 shard is copied unchanged"
    machine = explain.machines["cpu"].near
    assert step.seconds == pytest.approx(4 * MIB / machine.bandwidth + machine.latency)


def test_pieces_of_shards(accelerators):
    """2 x 2 tiles of 1 MiB on four devices to two tiles of rows, twice, on four others."""
    found = sw.plan(shaped((1024, 1024), PLACES["half"]), PLACES["back"])
    assert found.bytes_moved == found.bytes_sent == 4 * 2 * MIB
    assert found.peak_bytes == 4 * MIB  # two pieces and the shard that they make
    assert kinds(found) == ["slices on devices", "copies between devices", "slices on devices"]


def test_uneven_shards_have_padding(accelerators):
    """f32[9,7] in three tiles of rows: nine rows on one device go to three devices, three each."""
    found = sw.plan(shaped((9, 7), PLACES["another"]), PLACES["three"])
    assert found.bytes_moved == 9 * 7 * 4
    assert found.peak_bytes == 9 * 7 * 4 + 3 * 3 * 7 * 4  # on the device that splits
    eight = NamedSharding(Mesh(DEVICES, ("i",)), P("i"))
    back = sw.plan(shaped((9, 7), eight), PLACES["replicated"])
    # In eight tiles of two rows five devices have rows, and the fifth has one.
    assert back.bytes_moved == (8 * 9 - 9) * 7 * 4
    assert back.peak_bytes >= (2 + 9) * 7 * 4


def test_nothing_to_do():
    x = sw.device_put(np.ones((8, 4), np.float32), ROWS)
    same = GSPMDSharding(ROWS.devices, ROWS.tiling(2))
    for target in (ROWS, None, same):
        found = sw.plan(x, target)
        assert found.bytes_moved == found.bytes_sent == found.host_bytes == 0
        assert found.seconds == 0 and found.steps == ()
        assert found.peak_bytes == 2 * 4 * 4
        assert str(found).splitlines()[-1] == "nothing to do: already in place"


def test_values_of_the_host():
    value = np.ones((1024, 1024), np.float32)
    found = sw.plan(value, ROWS)
    assert (found.bytes_moved, found.peak_bytes, found.host_bytes) == (8 * MIB, MIB, 4 * MIB)
    small = sw.plan(np.ones((9, 7)), PLACES["three"])  # float64, which becomes float32
    assert (small.bytes_moved, small.peak_bytes) == (9 * 7 * 4, 3 * 7 * 4)
    assert sw.plan(shaped((1024, 1024)), ROWS) == sw.plan(value, ROWS)
    assert sw.plan(3, SingleDeviceSharding(DEVICES[1])).bytes_moved == 4


def test_addends_are_added_up_by_a_program():
    mesh = Mesh(DEVICES[:2], ("i",), axis_types=AxisType.Explicit)
    place = NamedSharding(mesh, P(None, unreduced={"i"}))
    found = sw.plan(shaped((1024, 256), place), NamedSharding(mesh, P()))
    (step,) = found.steps
    assert [one.kind for one in step.collectives] == ["all-reduce"]
    assert found.bytes_moved == found.bytes_sent == 2 * MIB
    assert found.peak_bytes >= 2 * MIB


def test_keys_are_counted_as_they_are_stored():
    keys = sw.random.split(sw.random.key(3), 8)
    found = sw.plan(sw.device_put(keys, DEVICES[0]), PLACES["rows"])
    # Two keys of two words on each of eight devices; device 0 already has its own.
    assert found.bytes_moved == 7 * 2 * 8


def test_another_layout_is_a_program():
    layout = sw.experimental.layout
    x = sw.device_put(np.ones((64, 32), np.float32), ROWS)
    found = sw.plan(x, layout.Format(layout.Layout((1, 0)), ROWS))
    (step,) = found.steps
    assert step.kind == "program" and "another memory layout" in step.text
    assert (found.bytes_moved, found.peak_bytes) == (0, 2 * 16 * 32 * 4)


# -------------------------------------------------------------------------- trees and their peaks


def test_a_tree_moves_leaf_by_leaf():
    tree = {"w": shaped((1024, 1024), ROWS), "b": [shaped((1024,), ROWS), shaped((256, 1024))]}
    found = sw.plan(tree, {"w": COLUMNS, "b": PLACES["replicated"]})
    assert [leaf.path for leaf in found.leaves] == ["x['b'][0]", "x['b'][1]", "x['w']"]
    one, two, three = found.leaves
    assert one.bytes_moved == 8 * 3072
    assert two.bytes_moved == 8 * MIB
    assert three.bytes_moved == 12 * MIB
    old = 1024 + MIB
    assert one.peak_bytes == old + 4096
    assert two.peak_bytes == old + 4096 + MIB
    assert three.peak_bytes == found.peak_bytes == old + 4096 + MIB + 2 * MIB
    assert found.bytes_moved == one.bytes_moved + two.bytes_moved + three.bytes_moved
    assert found.seconds == pytest.approx(one.seconds + two.seconds + three.seconds)


def test_an_array_that_occurs_twice_is_held_once():
    x = sw.device_put(np.ones((1024, 1024), np.float32), ROWS)
    assert sw.plan([x, x], ROWS).peak_bytes == MIB
    assert sw.plan([x, x], COLUMNS).peak_bytes == 5 * MIB


def test_long_trees_are_folded():
    """Of each array 192 bytes move: six elements to each of eight devices."""
    layers = [shaped((4, 4), ROWS) for _ in range(40)]
    found = sw.plan(layers, COLUMNS)
    assert str(found).splitlines()[-1].split() == [
        "x[*]",
        "(40",
        "times)",
        "f32[4,4]",
        "7.5",
        "KiB",
        "2.05",
        "µs",
        "copies",
        "on",
        "the",
        "host",
    ]
    assert len(found.leaves) == len(found.to_dict()["leaves"]) == 40
    other = {chr(97 + i): shaped((4 * (i + 1), 4), ROWS) for i in range(20)}
    text = str(sw.plan(other, COLUMNS))
    rest = 192 * sum(range(1, 9))  # the twelve largest are shown
    assert text.splitlines()[-1] == f"… and 8 smaller arrays, {rest / 1024:.1f} KiB in all"
    assert len(sw.plan(other, COLUMNS)._repr_html_()) < 10_000


def test_many_arrays_on_many_devices():
    """A thousand arrays over 8,192 described devices."""
    large = AbstractMesh((512, 16), ("data", "model"))
    source, target = NamedSharding(large, P(None, "model")), NamedSharding(large, P("data"))
    found = sw.plan([shaped((8192, 512), source)] * 1000, target)
    # Of 16 rows of 512 columns, 16 rows of 32 columns are already there.
    assert found.bytes_moved == 1000 * 8192 * 16 * (512 - 32) * 4
    assert found.peak_bytes == 8192 * 32 * 4 + 1000 * 16 * 512 * 4


# ------------------------------------------------------------------- every pair, by NumPy's indices


@pytest.mark.parametrize(("source", "target"), everyday(itertools.product(PLACES, PLACES), 60))
def test_bytes_moved(source, target):
    for shape in ((24, 12), (9, 7), (2, 3), (0, 5)):
        found = sw.plan(shaped(shape, PLACES[source], np.int16), PLACES[target])
        held = PLACES[source].devices_indices_map(shape)
        lacking = 0
        for device, index in PLACES[target].devices_indices_map(shape).items():
            wanted = np.zeros(shape, bool)
            wanted[index] = True
            if device in held:
                wanted[held[device]] = False
            lacking += int(wanted.sum())
        assert found.bytes_moved == 2 * lacking, (shape, str(found))


@pytest.mark.parametrize(("source", "target"), everyday(itertools.product(PLACES, PLACES), 20))
def test_steps_send_at_least_what_is_lacking(source, target, accelerators):
    found = sw.plan(shaped((24, 12), PLACES[source]), PLACES[target])
    assert found.bytes_sent >= found.bytes_moved
    old = np.prod(PLACES[source].shard_shape((24, 12))) * 4
    new = np.prod(PLACES[target].shard_shape((24, 12))) * 4
    assert found.peak_bytes >= max(old, new)
    assert bool(found.steps) == bool(found.bytes_sent or found.peak_bytes > max(old, new))


@pytest.mark.parametrize(("source", "target"), everyday(itertools.product(PLACES, PLACES), 17))
def test_the_steps_are_those_of_device_put(source, target, monkeypatch):
    """The strategies that `move` uses, and the strategies in the plan."""
    taken, planned = [], []

    def noting(table, log):
        return {
            name: lambda *a, name=name, act=act: (log.append(name), act(*a))[1]
            for name, act in table.items()
        }

    for ready in (True, False):
        values = np.arange(63, dtype=np.float32).reshape(9, 7)
        x = sw.block_until_ready(sw.device_put(values, PLACES[source]))
        monkeypatch.setattr(type(x), "is_ready", lambda self, ready=ready: ready)
        monkeypatch.setattr(transfer, "EXECUTORS", noting(transfer.EXECUTORS, taken))
        monkeypatch.setattr(transfer_cost, "EXECUTORS", noting(transfer_cost.EXECUTORS, planned))
        found = sw.plan(x, PLACES[target])
        sw.device_put(x, PLACES[target])
        monkeypatch.undo()
        assert taken == planned, str(found)


# ------------------------------------------------------------------------- meshes without devices


def test_meshes_that_are_not_there():
    mesh = AbstractMesh((4, 2), ("x", "y"))
    rows, columns = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "y"))
    found = sw.plan(shaped((1024, 1024), rows), columns, machine="h200")
    real = sw.plan(shaped((1024, 1024), ROWS), COLUMNS)
    assert found.bytes_moved == real.bytes_moved
    assert found.peak_bytes == 3 * MIB and not found.complete and found.machine == "h200"
    assert "peak: at least 3.0 MiB on one device" in str(found)
    assert kinds(found) == ["program"]
    error = message(ValueError, sw.plan, shaped((8, 8), rows), columns, machine="h100:2x2")
    assert error == (
        "plan: a sharding is over 8 devices, and 'h100:2x2' has 4. Choose a larger machine, or a "
        "smaller mesh."
    )
    assert sw.plan(shaped((8, 8), rows), columns, machine="tpu-v5e:2x4").machine == "tpu-v5e:2x4"
    same = sw.plan(shaped((1024, 1024), rows), rows)
    assert (same.bytes_moved, same.steps) == (0, ())


def test_a_model_onto_a_larger_mesh():
    """From 8 devices to 8,192, which are identified by their positions."""
    large = AbstractMesh((512, 16), ("data", "model"))
    tree = {"w": shaped((1024, 1024), ROWS), "b": shaped((1024,), PLACES["replicated"])}
    target = {"w": NamedSharding(large, P("data", "model")), "b": NamedSharding(large, P())}
    found = sw.plan(tree, target, machine="tpu-v5p")
    w, b = found.leaves[1], found.leaves[0]
    # Tiles of 2 x 64 elements: of the first eight devices, 0 and 1 hold rows 0 to 255, and so has
    # each its own tile; the others hold later rows, and need the first two.
    assert w.bytes_moved == (8192 - 2) * 2 * 64 * 4
    assert b.bytes_moved == (8192 - 8) * 4096
    assert kinds(found) == ["copies between devices"] * 2
    assert not found.complete


# --------------------------------------------------------------------------------------- measured


MEASURED = [
    "host",
    "host, replicated",
    "program",
    "program, gathering",
    "program, permuting",
    "copy",
    "pieces",
    "put",
    "put, replicated",
    "tree",
]


@pytest.mark.parametrize("case", everyday(MEASURED, 1))
def test_measured_peaks(case):
    """The peak memory that a process needs to move 64 MiB."""
    gc.collect()
    done = subprocess.run(
        [sys.executable, "-m", "tests.explain.programs.peaks", case],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["measured"] == pytest.approx(found["planned"], rel=0.1)
    kind = {
        "host": "copies on the host",
        "put": "copies on the host",
        "tree": "program",
        "copy": "copies between devices",
        "pieces": "slices on devices",
        "program": "program",
    }
    assert kind[case.partition(",")[0]] in found["kinds"]


# ------------------------------------------------------------------------------- texts and mistakes


def test_what_a_device_cannot_hold_is_the_first_line():
    large = sw.ShapeDtypeStruct((5 << 38,), np.float32)
    found = sw.plan(large, sw.devices()[0], machine="h100")
    assert str(found).splitlines()[0] == (
        "does not fit: 5.0 TiB on one device, and a device of h100 has 80.0 GiB. Shard over 64 "
        "times as many devices or more, or use a smaller dtype"
    )
    data = json.loads(json.dumps(found.to_dict()))
    assert (data["fits"], data["memory_bytes"]) == (False, 80 << 30)
    over = AbstractMesh((64,), ("d",))
    found = sw.plan(large, NamedSharding(over, P("d")), machine="h100")  # as the line states
    assert found.fits and found.to_dict()["fits"] and "fit" not in str(found)


def test_as_text_and_as_data():
    found = sw.plan(shaped((1024, 1024), ROWS), COLUMNS)
    assert str(found) == (
        "moved: 12.0 MiB that devices do not hold yet\n"
        "sent: 0 B between devices, or from the host\n"
        "peak: 3.0 MiB on one device\n"
        "host: 4.0 MiB of this process's memory\n"
        "time: 839 µs on cpu\n"
        "1. copies on the host: shards of f32[1024,1024] are assembled in host memory, which "
        "the devices share"
    )
    data = json.loads(json.dumps(found.to_dict()))
    assert data["bytes_moved"] == 12 * MIB and data["leaves"][0]["path"] == "x"
    assert data["leaves"][0]["steps"][0]["kind"] == "copies on the host"
    assert "<li><b>peak</b>: 3.0 MiB on one device</li>" in found._repr_html_()
    hostile = sw.plan({"<b>": shaped((4,), ROWS), "c": shaped((4,), ROWS)}, ROWS)
    assert "<b>&#x27;" not in hostile._repr_html_() and "&lt;b&gt;" in hostile._repr_html_()


def refused(*args, **options):
    with pytest.raises((TypeError, ValueError)) as info:
        sw.plan(*args, **options)
    return f"{type(info.value).__name__}: {info.value}"


def test_mistakes():
    assert refused({"a": "text"}, ROWS).startswith("TypeError: plan: x['a']: ")
    assert refused({"a": shaped((4,))}, {"a": COLUMNS}) == (
        f"ValueError: plan: x['a'] of type f32[4]: {COLUMNS.spec} over {MESH} has 2 entries, but "
        "the array has only 1 dimension. Remove entries from the end of the spec."
    )
    assert refused(shaped((4, 4)), ROWS, machine="abacus") == (
        f"ValueError: unknown machine 'abacus'; known machines are {KNOWN}. To "
        "add one of your own: "
        "`shardwise.explain.machines['mine'] = dataclasses.replace("
        "shardwise.explain.machines['h200'], name='mine', "
        "node=4)`."
    )
    assert refused({"a": 1, "b": 2}, {"a": ROWS}).startswith(
        "ValueError: plan: sharding must be a pytree prefix of the values that it describes"
    )
    with pytest.raises(TypeError) as info:
        sw.jit(lambda x: sw.plan(x, ROWS))(np.ones(4, np.float32))
    assert str(info.value) == (
        "plan: x of type f32[4] is a tracer, which is not on devices yet. Call plan "
        "outside of the traced function, on arrays or on `ShapeDtypeStruct`s."
    )
