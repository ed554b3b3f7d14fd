"""Arrays and pytrees in TensorStore files; jax and this library read each other's files."""

import asyncio
import json

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
from shardwise._src.saving.arrays import LimitInFlightBytes
from shardwise.experimental.array_serialization import pytree_serialization as trees
from shardwise.experimental.array_serialization import pytree_serialization_utils as utils
from shardwise.experimental.array_serialization import serialization
from shardwise.experimental.array_serialization import tensorstore_impl as impl
from shardwise.sharding import NamedSharding, SingleDeviceSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import fails, message
from tests.helpers.processes import run_processes

pytest.importorskip("tensorstore")


def mesh():
    return sw.make_mesh((4, 2), ("x", "y"))


def on(*spec):
    return NamedSharding(mesh(), P(*spec))


def whole():
    return SingleDeviceSharding(sw.devices()[0])


VALUES = [
    (np.arange(48.0, dtype=np.float32).reshape(8, 6), ("x", "y")),
    (np.arange(14, dtype=np.int16).reshape(7, 2), ("x",)),  # uneven
    (np.arange(3, dtype=np.uint8), ("x",)),  # a device without elements
    (np.linspace(0, 1, 8).astype(ml_dtypes.bfloat16), (None,)),
    (np.array([True, False, True, True]), ("y",)),
    (np.array(2.5 - 1j, np.complex64), ()),
    (np.zeros((0, 4), np.float32), (None, "x")),
    (np.arange(-8, 8).astype(ml_dtypes.int4), ("x",)),
    (np.array([np.nan, -0.0, np.inf, -1.5], ml_dtypes.float8_e5m2), ("x",)),
]


@pytest.mark.parametrize("driver", ["zarr3", "zarr"])
@pytest.mark.parametrize("value, spec", VALUES)
def test_an_array_to_files_and_back(tmp_path, value, spec, driver):
    if driver == "zarr" and value.dtype == ml_dtypes.int4:
        pytest.skip("the older format has it as int8")
    x = sw.device_put(value, on(*spec))
    where = impl.get_tensorstore_spec(tmp_path / "x", ocdbt=driver == "zarr3", driver=driver)
    asyncio.run(serialization.async_serialize(x, where))
    for sharding in (on(*spec), whole(), on(*[None] * value.ndim)):
        y = asyncio.run(serialization.async_deserialize(sharding, where))
        assert y.sharding == sharding
        assert y.dtype == value.dtype
        assert np.asarray(y).tobytes() == value.tobytes()


def test_shape_dtype_and_layout_are_chosen_when_an_array_is_read(tmp_path):
    value = np.arange(12, dtype=np.float32).reshape(4, 3)
    where = impl.get_tensorstore_spec(tmp_path / "x")
    serialization.run_serialization([sw.device_put(value, on("x"))], [where])

    def read(kind, **how):
        return asyncio.run(impl.async_deserialize(kind, where, **how))

    larger = read(on("x", None), global_shape=(6, 5), dtype="int32")
    expected = np.zeros((6, 5), np.int32)
    expected[:4, :3] = value
    assert larger.dtype == np.int32 and np.array_equal(larger, expected)
    assert np.array_equal(read(on("x"), global_shape=(3, 2)), value[:3, :2])
    kind = sw.ShapeDtypeStruct((4, 3), "bfloat16", sharding=on(None, "y"))
    assert read(kind).dtype == ml_dtypes.bfloat16
    turned = sw.experimental.layout.Layout((1, 0))
    format = sw.experimental.layout.Format(turned, on("x"))
    y = read(format)
    assert y.format.layout == turned and np.array_equal(y, value)


def test_the_manager_writes_while_the_program_goes_on(tmp_path):
    value = np.arange(64.0, dtype=np.float32).reshape(8, 8)
    xs = [sw.device_put(value, on("x", "y")), sw.device_put(value[:7], on("x"))]
    paths = [str(tmp_path / name) for name in "ab"]
    done = []
    manager = serialization.GlobalAsyncCheckpointManager()
    manager.serialize_with_paths(xs, paths, on_commit_callback=lambda: done.append(1))
    for x in xs:
        x.delete()
    manager.wait_until_finished()
    assert done == [1]
    a, b = manager.deserialize_with_paths([on("y"), whole()], paths, dtypes=[None, np.float16])
    assert np.array_equal(a, value) and np.array_equal(b, value[:7]) and b.dtype == np.float16

    def fail():
        raise OSError("no room")

    manager.serialize_with_paths([a], [str(tmp_path / "c")], on_commit_callback=fail)
    with pytest.raises(OSError, match=r"^no room$"):
        manager.wait_until_finished()
    manager.check_for_errors()


def tree():
    w = np.arange(24, dtype=np.float32).reshape(4, 6)
    return {
        "layers": [{"w": sw.device_put(w, on("x")), "b": None}, (sw.numpy.float32(2.0), w[0])],
        "step": sw.numpy.asarray(7),
        "more": (),
    }


def test_a_tree_is_saved_and_loaded(tmp_path):
    data = tree()
    trees.save(data, tmp_path / "t")
    types = trees.load_pytreedef(tmp_path / "t")
    assert types["layers"][0]["w"].shape == (4, 6) and types["layers"][0]["b"] is None
    shardings = {"layers": [{"w": on(None, "y"), "b": None}, whole()], "step": whole(), "more": ()}
    for given in (whole(), shardings):
        found = trees.load(tmp_path / "t", given)
        assert sw.tree.structure(found) == sw.tree.structure(data)
        sw.tree.map(np.testing.assert_array_equal, found, data)
    assert found["layers"][0]["w"].sharding == on(None, "y")
    part = trees.load(tmp_path / "t", whole(), mask={"layers": True, "step": False, "more": ()})
    assert part["step"] is None and part["layers"][1][0] == 2
    # Again, into the same folder, in a thread.
    future = trees.nonblocking_save({"x": np.ones(3)}, tmp_path / "t")
    assert future.pytree["x"].shape == (3,) and future.result() is None and future.done()

    async def read():
        return await trees.nonblocking_load(tmp_path / "t", whole())

    assert np.array_equal(asyncio.run(read())["x"], np.ones(3))


def test_specifications_of_the_user_are_merged(tmp_path):
    x = sw.device_put(np.arange(32.0, dtype=np.float32).reshape(8, 4), on("x"))
    meta = impl.get_tensorstore_spec(tmp_path / "t" / "array_store" / "0", arr=x)["metadata"]
    meta["chunk_grid"]["configuration"]["chunk_shape"] = [1, 2]
    meta["codecs"] = [{"name": "zstd"}]
    trees.save([x, x], tmp_path / "t", ts_specs=[{"driver": "zarr3", "metadata": meta}, None])
    assert np.array_equal(trees.load(tmp_path / "t", whole())[0], x)
    meta["chunk_grid"]["configuration"]["chunk_shape"] = [3, 2]
    assert message(
        ValueError, trees.save, [x], tmp_path / "t", ts_specs={"driver": "zarr3", "metadata": meta}
    ) == (
        "array_serialization: chunks of shape (3, 2) do not divide the shards of the array, which "
        "are of shape (2, 4)."
    )


def test_chunks_are_parts_of_shards():
    from shardwise._src.saving.tensorstore_specs import chunk_shape

    assert chunk_shape((6, 8), 4) == [6, 8]
    assert chunk_shape((6, 8), 4, 100) == [3, 8]
    assert chunk_shape((6, 8), 4, 50) == [3, 4]
    assert chunk_shape((0, 5), 4) == [1, 5]
    assert chunk_shape((), 4) == []
    assert chunk_shape((7,), 8, 1) == [1]


def test_remote_addresses():
    spec = impl.get_tensorstore_spec("gs://bucket/run/3")
    assert spec["kvstore"] == {
        "driver": "ocdbt", "path": "3", "base": {"driver": "gcs", "bucket": "bucket", "path": "run"}
    }  # fmt: skip
    assert serialization.is_remote_storage(spec)
    assert serialization.is_remote_storage("s3://a/b")
    assert not serialization.is_remote_storage(impl.get_tensorstore_spec("/a/b"))
    assert serialization.get_tensorstore_spec("s3://b/run/3") == {
        "driver": "zarr", "kvstore": {"driver": "s3", "bucket": "b", "path": "run/3"}
    }  # fmt: skip
    assert message(ValueError, impl.get_tensorstore_spec, "gs://bucket/3") == (
        "get_tensorstore_spec: ckpt_path must name a bucket and a path within it, as in "
        "gs://bucket/folder/name; got 'gs://bucket/3'."
    )


def test_mistakes(tmp_path):
    fails(ValueError, "save: data['a'][0] must be an array or None; got 'text' of type str.",
         trees.save, {"a": ["text"]}, tmp_path / "t")  # fmt: skip
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "thesis.tex").touch()
    fails(RuntimeError, f"save: {folder} has thesis.tex, which is not part of a checkpoint, so it "
         "is not overwritten. Remove it, or choose another folder.",
         trees.save, np.ones(2), folder)  # fmt: skip
    fails(ValueError, f"save: {folder} has files, and overwrite is False. Pass "
         "overwrite=True, or choose another folder.",
         trees.save, np.ones(2), folder, overwrite=False)  # fmt: skip
    assert (folder / "thesis.tex").exists()
    fails(TypeError, "async_deserialize: in_type must be a sharding, a Format or a ShapeDtypeStruct "
         "with a sharding, to place the array on devices; got None of type NoneType.",
         asyncio.run, serialization.async_deserialize(None, {}))  # fmt: skip
    keys = sw.random.split(sw.random.key(0), 2)
    with pytest.raises(TypeError, match=r"Write `shardwise.random.key_data\(keys\)`\.$"):
        asyncio.run(serialization.async_serialize(keys, {}))
    fails(ValueError, "get_tensorstore_spec: ckpt_path must be absolute; got 'a/b'.",
         impl.get_tensorstore_spec, "a/b")  # fmt: skip
    with pytest.raises(NotImplementedError, match=r"^save: directory is 'gs://b/c'\. "):
        trees.save(np.ones(2), "gs://b/c")
    with pytest.raises(FileNotFoundError):
        trees.load(tmp_path / "nothing", whole())
    says_why = r"^deserialize_pytreedef: this is not a serialized PyTreeDef"
    with pytest.raises(ValueError, match=says_why):
        utils.deserialize_pytreedef({"__jax_pytreedef_repr": "AAAA", "__jax_leaf_ids": []})


def test_structures_are_those_of_jax():
    pytest.importorskip("jax")
    import jax
    from jax.experimental.array_serialization import pytree_serialization_utils as theirs

    for value in (1, None, (1, [2, {"b": 3, "a": (None, 4)}]), {}):
        ours = utils.serialize_pytreedef(sw.tree.structure(value))
        ours = json.loads(json.dumps(ours))
        assert theirs.deserialize_pytreedef(ours) == jax.tree.structure(value)
        back = utils.deserialize_pytreedef(theirs.serialize_pytreedef(jax.tree.structure(value)))
        assert back == sw.tree.structure(value)


def test_folders_are_those_of_jax(tmp_path):
    jax = pytest.importorskip("jax")
    from jax.experimental.array_serialization import pytree_serialization as theirs

    data = tree()
    trees.save(data, tmp_path / "ours")
    at = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    found = theirs.load(tmp_path / "ours", at)
    sw.tree.map(np.testing.assert_array_equal, found, data)
    theirs.save(found, tmp_path / "theirs")
    sw.tree.map(np.testing.assert_array_equal, trees.load(tmp_path / "theirs", whole()), data)


PROGRAM = """
import asyncio, os, sys
import numpy as np
import shardwise as sw
from shardwise.experimental.array_serialization import pytree_serialization as trees
from shardwise.experimental.array_serialization import serialization
from shardwise.sharding import NamedSharding, PartitionSpec as P

(folder,) = sys.argv[1:]
mesh = sw.make_mesh((4,), ("x",))
on = lambda *spec: NamedSharding(mesh, P(*spec))
value = np.arange(28.0, dtype=np.float32).reshape(7, 4)
x = sw.device_put(value, on("x"))
trees.save({"x": x, "none": None, "host": value}, folder + "/tree")
own = lambda a: [np.array_equal(s.data, value[s.index]) for s in a.addressable_shards]
back = trees.load(folder + "/tree", on(None, "x"))
print(all(own(back["x"])), back["host"].shape)
future = trees.nonblocking_save([back["x"]], folder + "/tree")
total = float((x * 2).sum())
future.result()
print(total, all(own(trees.load(folder + "/tree", on("x"))[0])))
manager = serialization.GlobalAsyncCheckpointManager(timeout_secs=20)
rename = lambda: os.rename(folder + "/part", folder + "/all")
manager.serialize_with_paths([x], [folder + "/part"], on_commit_callback=rename)
for _ in range(3):
    x = x + 0
manager.wait_until_finished()
(y,) = manager.deserialize_with_paths([on("x")], [folder + "/all"])
print(all(own(y)))
for call in (
    lambda: trees.save([x], f"{folder}/{sw.process_index()}"),
    lambda: trees.save([x], folder),
    lambda: asyncio.run(serialization.async_serialize(sw.numpy.ones(3), {"kvstore": "here"})),
):
    try:
        call()
    except (ValueError, RuntimeError) as error:
        print(str(error).replace(folder, "FOLDER"))
"""


@pytest.mark.processes
def test_all_processes_write_into_one_folder(tmp_path):
    runs = run_processes(PROGRAM, 2, devices=2, args=[str(tmp_path)], timeout=60)
    outs = [r.out.splitlines() for r in runs]
    assert outs[0][:3] == outs[1][:3] == ["True (7, 4)", "756.0 True", "True"]
    assert (
        outs[0][3]
        == outs[1][3]
        == ("save: directory must be the same in all processes; got ['FOLDER/0', 'FOLDER/1'].")
    )
    why = (
        "save: FOLDER has all, tree, which is not part of a checkpoint, so it is not overwritten. "
        "Remove it, or choose another folder."
    )
    assert outs[0][4] == why
    assert outs[1][4] == f"Process 0 could not write its part of a checkpoint: RuntimeError: {why}"
    assert outs[0][5].startswith(
        "async_serialize: the array for here is fully addressable in this process"
    )


def test_who_waits_for_room_gets_it_in_turn():
    async def run():
        limit, seen = LimitInFlightBytes(10), []

        async def take(name, size):
            await limit.wait_for_bytes(size)
            seen.append(name)

        await take("first", 8)
        rows = [("a", 6), ("b", 20), ("c", 1), ("d", 30), ("e", 2)]
        tasks = {name: asyncio.create_task(take(name, size)) for name, size in rows}
        await asyncio.sleep(0)
        assert seen == ["first"]  # c would fit, but it is not its turn
        tasks["b"].cancel()  # before its turn
        await limit.release_bytes(8)
        tasks["a"].cancel()  # when it is notified of free space
        for name, size in (("c", 1), ("d", 30), ("e", 2)):
            await tasks[name]
            await limit.release_bytes(size)
        assert seen == ["first", "c", "d", "e"]
        await asyncio.wait_for(limit.wait_for_bytes(30), 1)  # all space has been released

    asyncio.run(run())
