"""Pickles name one function at a place that stays, and say in which form they are."""

import pickle
import pickletools
import subprocess
import sys

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.base.pickles import FORM, _readers, restored
from shardwise._src.types.layout import AUTO, Format, Layout
from shardwise.sharding import AxisType, GSPMDSharding, Mesh, PartitionSpec, SingleDeviceSharding
from tests.helpers.errors import message

DEVICES = np.array(sw.devices()[:4]).reshape(2, 2)
MESH = Mesh(DEVICES, ("a", "b"), (AxisType.Auto, AxisType.Explicit))
NAMED = sw.NamedSharding(MESH, PartitionSpec("a", PartitionSpec.UNCONSTRAINED))
VALUES = {
    "array": jnp.arange(6.0), "weak": jnp.asarray(2), "bf16": jnp.ones(3, jnp.bfloat16),
    "keys": sw.random.split(sw.random.key(1), 3), "mesh": MESH, "abstract": MESH.abstract_mesh,
    "spec": PartitionSpec(("a", "b"), None, unreduced={"c"}), "named": NAMED,
    "tiling": NAMED.tiling(2),
    "gspmd": GSPMDSharding(sw.devices()[:4], NAMED.tiling(2)),
    "single": SingleDeviceSharding(sw.devices()[1]), "device": sw.devices()[2],
    "layout": Layout((1, 0)), "format": Format(Layout((0, 1)), NAMED), "auto": AUTO,
    "type": sw.typeof(jnp.arange(6.0)), "key dtype": sw.random.key(0).dtype,
    "typed": sw.typeof(jnp.zeros((2, 2), device=sw.NamedSharding(MESH, PartitionSpec(None, "b")))),
}


def named_modules(pickled):
    """The modules that are named where a pickle is read."""
    texts: list[str] = []
    for op, arg, _ in pickletools.genops(pickled):
        if op.name == "STACK_GLOBAL":
            yield texts[-2]
        elif op.name == "GLOBAL":
            yield arg.split()[0]
        if isinstance(arg, str):
            texts.append(arg)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("protocol", [0, 2, pickle.HIGHEST_PROTOCOL])
def test_pickles_name_no_module_of_the_machine(name, protocol):
    value = VALUES[name]
    pickled = pickle.dumps(value, protocol)
    assert b"shardwise._src" not in pickled
    assert b"shardwise._pickles" in pickled
    again = pickle.loads(pickled)
    if isinstance(value, sw.Array):
        assert again.aval is value.aval and bool((again == value).all())
    else:
        assert again is value or again == value


def test_only_one_place_is_named():
    ours = {m for v in VALUES.values() for m in named_modules(pickle.dumps(v)) if "shardwise" in m}
    assert ours == {"shardwise._pickles"}


def test_refs():
    ref = sw.new_ref(jnp.arange(3.0))
    pickled = pickle.dumps(ref)
    assert set(filter(lambda m: "shardwise" in m, named_modules(pickled))) == {"shardwise._pickles"}
    assert pickle.loads(pickled)[...].tolist() == [0, 1, 2]


def test_another_process_reads_them():
    pickled = pickle.dumps([VALUES["keys"], jnp.arange(3.0)])
    code = f"import pickle; keys, x = pickle.loads({pickled!r}); print(keys.dtype, x)"
    code += "\nfrom shardwise._src.base import pickles; print(*sorted(pickles._readers), sep=',')"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    first, kinds = run.stdout.splitlines()
    assert first == "key<fry> [0. 1. 2.]" and kinds.split(",") == sorted(_readers)


@pytest.mark.parametrize("version", [0, 2])
def test_another_form_is_refused(version):
    assert message(pickle.UnpicklingError, restored, version, "array", np.arange(3)) == (
        f"the pickle of a shardwise array is in form {version}, of another version of shardwise; "
        "this one reads form 1. Read it with the version that wrote it, and write the values with "
        "shardwise.numpy.save, whose files every version reads."
    )


def test_an_unknown_kind_is_refused():
    assert message(pickle.UnpicklingError, restored, FORM, "parcel") == (
        "the pickle of a shardwise parcel: this version has no such thing. Read it with the "
        "version that wrote it, and write the values with shardwise.numpy.save, whose files every "
        "version reads."
    )
