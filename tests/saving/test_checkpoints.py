"""Pytrees in checkpoints: restored values, restore targets, and what other tools can read."""

import dataclasses
import json
import os
import threading
from collections import OrderedDict, defaultdict
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
from shardwise import checkpoints
from shardwise._src.saving import chunk_files
from shardwise.errors import CheckpointError
from shardwise.sharding import AbstractMesh, NamedSharding, SingleDeviceSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import fails
from tests.helpers.everyday import everyday

ts = pytest.importorskip("tensorstore")


def on(*spec, sizes=(4, 2)):
    count = sizes[0] * sizes[1]
    mesh = sw.make_mesh(sizes, ("x", "y"), devices=sw.devices()[:count])
    return NamedSharding(mesh, P(*spec))


def whole():
    return SingleDeviceSharding(sw.devices()[1])


def numbers(shape, dtype):
    rng = np.random.default_rng(len(shape))
    if np.dtype(dtype) == bool:
        return rng.random(shape) < 0.5
    if np.dtype(dtype).kind == "c":
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 100, shape).astype(dtype)
    return np.asarray(rng.normal(size=shape) * 3).astype(dtype)


VALUES = [
    ((8, 6), "float32", ("x", "y")), ((7, 5), "int16", ("x", "y")), ((3,), "uint8", ("x",)),
    ((8,), "bfloat16", (None,)), ((4,), "bool", ("y",)), ((), "complex64", ()),
    ((0, 4), "float32", (None, "x")), ((16,), "int4", ("x",)), ((9,), "uint4", ("x",)),
    ((6, 4), "float8_e5m2", (("x", "y"),)), ((5, 3), "float8_e4m3fn", ("y",)),
    ((12,), "float4_e2m1fn", ("x",)), ((2, 3, 4), "float16", (None, None, "x")),
    ((13,), "uint32", (("y", "x"),)),
]  # fmt: skip


@pytest.mark.parametrize("shape, dtype, spec", everyday(VALUES, 2))
def test_an_array_comes_back_on_any_sharding(tmp_path, shape, dtype, spec):
    value = numbers(shape, getattr(ml_dtypes, dtype, dtype))
    x = sw.device_put(value, on(*spec))
    checkpoints.save(tmp_path / "x", x)
    host = checkpoints.restore(tmp_path / "x")
    assert type(host) is np.ndarray
    assert host.dtype == value.dtype and host.tobytes() == value.tobytes()
    others = [on(*[None] * value.ndim), whole(), on(*spec)]
    others += [on(*spec[::-1], sizes=(1, 2))] if len(spec) == value.ndim else []
    others += [on("x", sizes=(3, 2)), on("y", sizes=(1, 5))] if value.ndim else []
    for sharding in others:
        y = checkpoints.restore(tmp_path / "x", sharding)
        assert y.sharding == sharding and y.committed
        assert y.dtype == value.dtype and np.asarray(y).tobytes() == value.tobytes()
        assert (np.asarray(y + y) == np.asarray(x + x)).all() or value.dtype.kind == "V"


class State(NamedTuple):
    count: object
    mu: object


class Nothing(NamedTuple):
    pass


@sw.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    w: object
    b: object
    act: str = dataclasses.field(default="relu", metadata={"static": True})
    fun: object = dataclasses.field(default=len, metadata={"static": True})


@dataclasses.dataclass(frozen=True)
class Plain:
    x: object
    step: int


@sw.tree_util.register_pytree_node_class
class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b

    def tree_flatten(self):
        return (self.a, self.b), None

    @classmethod
    def tree_unflatten(cls, _, items):
        return cls(*items)


def tree():
    w = np.arange(28, dtype=np.float32).reshape(7, 4)
    return {
        "layers": [Layer(sw.device_put(w, on("x")), None), Layer(w + 1, w[0], act="tanh")],
        "opt": (State(sw.numpy.int32(3), {"a/b": w}), Nothing()),
        "plain": Plain(w[1], 7), "pair": Pair(w[2], 2), "ordered": OrderedDict(z=1, a=w[3]),
        "step": 12, "lr": 1e-3, "nan": float("nan"), "inf": -float("inf"), "big": 2**70,
        "z": 1 - 2j, "name": "gpt ✓", "raw": b"\x00\xff", "on": True, "none": None,
        "numbers": {3: np.float64(0.1), 5: w[4]}, "empty": {}, "no": (), "..": [w[5]],
        "keys": sw.random.split(sw.random.key(7), 3), "rbg": sw.random.key(1, impl="rbg"),
    }  # fmt: skip


def same(x, y):
    if isinstance(x, sw.Array) and sw.dtypes.issubdtype(x.dtype, sw.dtypes.prng_key):
        assert x.dtype == y.dtype
        x, y = sw.random.key_data(x), sw.random.key_data(y)
    if isinstance(x, sw.Array | np.ndarray | np.generic):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)
    else:
        assert type(x) is type(y)
        assert x == y or x != x


def test_a_tree_comes_back_as_plain_containers(tmp_path):
    data = tree()
    checkpoints.save(tmp_path / "t", data, metadata={"run": "a", "loss": 0.5})
    back = checkpoints.restore(tmp_path / "t")
    assert list(back) == sorted(data)
    first, second = back["layers"]
    assert first == {"w": first["w"], "b": None, "act": "relu"} and second["act"] == "tanh"
    same(first["w"], np.asarray(data["layers"][0].w))
    state, nothing = back["opt"]
    assert nothing == {} and set(state) == {"count", "mu"}
    same(state["count"], np.int32(3) + np.zeros((), np.int32))
    same(back["plain"]["x"], data["plain"].x)
    assert back["plain"]["step"] == 7 and back["pair"][1] == 2
    assert back["ordered"]["z"] == 1 and back["empty"] == {} and back["no"] == ()
    for name in "step lr nan inf big z name raw on none keys rbg".split():
        same(data[name], back[name])
    same(data["numbers"][3], back["numbers"][3])
    assert type(back["numbers"][3]) is np.float64 and type(back["opt"][0]["count"]) is np.ndarray
    assert checkpoints.describe(tmp_path / "t").metadata == {"run": "a", "loss": 0.5}


def test_a_tree_comes_back_like_another(tmp_path):
    data = tree()
    checkpoints.save(tmp_path / "t", data)
    back = checkpoints.restore(tmp_path / "t", like=data)
    assert sw.tree.structure(back) == sw.tree.structure(data)
    sw.tree.map(same, {**data, "plain": None, "pair": None}, {**back, "plain": None, "pair": None})
    assert type(back["plain"]) is Plain and back["plain"].step == 7
    same(back["pair"].a, data["pair"].a)
    w, x = back["layers"][0].w, data["layers"][0].w
    assert w.sharding == x.sharding and w.committed
    assert back["layers"][0].fun is len
    assert not back["opt"][0].count.committed
    kind = sw.ShapeDtypeStruct((7, 4), "bfloat16", sharding=on(None, "y"))
    data["layers"][0].w = kind
    data["layers"][1].w = sw.ShapeDtypeStruct((7, 4), "int32")
    data["step"] = sw.numpy.float32(0)
    back = checkpoints.restore(tmp_path / "t", like=data)
    w = back["layers"][0].w
    assert w.sharding == kind.sharding and w.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(np.asarray(w, np.float32), np.arange(28.0).reshape(7, 4))
    assert back["layers"][1].w.dtype == np.int32 and not back["layers"][1].w.committed
    assert back["step"].dtype == np.float32 and back["step"] == 12
    # Also for other containers, by the names of their entries.
    other = checkpoints.restore(tmp_path / "t", like={
        **data, "plain": {"x": data["plain"].x, "step": 0}, "pair": [data["pair"].a, 0],
        "opt": [{"count": np.int32(0), "mu": data["opt"][0].mu}, ()],
    })  # fmt: skip
    assert other["plain"]["step"] == 7 and type(other["opt"]) is list
    assert other["opt"][0]["count"] == 3


def test_shardings_are_a_prefix(tmp_path):
    w = np.arange(24, dtype=np.float32).reshape(4, 6)
    data = {"a": [w, {"b": w, "n": 3}], "c": w[0], "none": None}
    checkpoints.save(tmp_path / "t", data)
    places = {"a": [on("x"), on(None, "y")], "c": None, "none": None}
    for like in (None, data):
        back = checkpoints.restore(tmp_path / "t", places, like)
        assert back["a"][0].sharding == on("x") and back["a"][1]["b"].sharding == on(None, "y")
        assert type(back["c"]) is np.ndarray and back["a"][1]["n"] == 3
        sw.tree.map(np.testing.assert_array_equal, back, data)
    keys = sw.random.split(sw.random.key(0), 8)
    checkpoints.save(tmp_path / "k", keys)
    back = checkpoints.restore(tmp_path / "k", on("x"))
    assert back.sharding == on("x") and (back == keys).all()
    fails(ValueError, "restore: shardings must be a pytree prefix of the values that it describes, "
         "with one entry for each value or for a whole subtree: tree is a list of 1 in "
         "shardings and a dict of 3 in the value.",
         checkpoints.restore, tmp_path / "t", [on("x")])  # fmt: skip
    with sw.set_mesh(on().mesh):
        assert checkpoints.restore(tmp_path / "t", P("x"))["c"].sharding == on("x")


def test_values_that_do_not_fit(tmp_path):
    wide = np.array([1, 2**40])
    checkpoints.save(tmp_path / "t", {"n": wide, "z": np.ones(2, np.complex64)})
    back = checkpoints.restore(tmp_path / "t")
    assert back["n"].dtype == np.int64 and back["n"][1] == 2**40
    why = (
        "tree['n'] was saved as i64, and has values that i32 cannot represent. Restore it in "
        "its own dtype, given by `like`; 64-bit arrays on devices need the flag enable_x64."
    )
    fails(CheckpointError, f"restore: {why}", checkpoints.restore, tmp_path / "t", whole())
    like = {"n": np.ones(2), "z": np.ones(2, np.float32)}
    fails(CheckpointError, "restore: tree['z'] was saved as c64, and has values that f32 cannot "
         "represent. Restore it in its own dtype, given by `like`; 64-bit arrays on devices need "
         "the flag enable_x64.", checkpoints.restore, tmp_path / "t", like=like)  # fmt: skip


def test_what_does_not_fit_like(tmp_path):
    at = tmp_path / "t"
    checkpoints.save(at, {"a": np.ones((2, 3)), "b": 1, "k": sw.random.key(0)})

    def with_like(**more):
        like = {"a": np.ones((2, 3)), "b": 1, "k": sw.random.key(0), **more}
        return checkpoints.restore(at, like={k: v for k, v in like.items() if v is not ...})

    fails(CheckpointError, "restore: like['a'] has shape (3, 2), but f64[2,3] was saved there.",
         with_like, a=np.ones((3, 2)))  # fmt: skip
    fails(CheckpointError, "restore: `like` does not have the structure of the saved pytree: only "
         "the checkpoint has like['b'] and only `like` has like['c']. `describe(path)` shows what "
         "the checkpoint contains.", with_like, b=..., c=2)  # fmt: skip
    fails(CheckpointError, "restore: like['a'] is None of type NoneType, but an array, f64[2,3] was "
         "saved there.", with_like, a=None)  # fmt: skip
    fails(CheckpointError, "restore: like['b'] is array([1., 1.]) of type ndarray, but 1 was saved "
         "there.", with_like, b=np.ones(2))  # fmt: skip
    fails(CheckpointError, "restore: like['k'] has dtype key<rbg>, but keys[] was saved there, with "
         "generator 'threefry2x32'. Keys are not numbers, and keys of different generators are not "
         "interchangeable.", with_like, k=sw.random.key(0, impl="rbg"))  # fmt: skip
    fails(CheckpointError, "restore: like['b'] is None of type NoneType, but 1 was saved there.",
         with_like, b=None)  # fmt: skip


def test_what_cannot_be_saved(tmp_path):
    at = tmp_path / "t"
    fails(TypeError, "save: tree['f'][0] is <built-in function len> of type "
         "builtin_function_or_method. A checkpoint can contain arrays, numbers, strings, bytes and "
         "None, in pytree containers.", checkpoints.save, at, {"f": [len]})  # fmt: skip
    fails(TypeError, "save: tree is an array of dtype <U2. A checkpoint can contain only numbers "
         "and bools.",
         checkpoints.save, at, np.array(["ab"]))  # fmt: skip
    fails(TypeError, "save: tree['m'] is a masked array, whose mask would be lost. Save its `data` "
         "and its `mask`.", checkpoints.save, at, {"m": np.ma.masked_equal([1, 2], 1)})  # fmt: skip
    fails(TypeError, "save: tree is an array of dtype complex256, which differs between machines. A "
         "checkpoint can contain real numbers of up to 64 bits and complex numbers of up to 128 "
         "bits.",
         checkpoints.save, at, np.ones(2, "complex256"))  # fmt: skip
    fails(TypeError, "save: path must be a string or a path; got 3 of type int.",
         checkpoints.save, 3, 1)  # fmt: skip
    fails(TypeError, "save: tree is a dict with the key (1, 2) of type tuple. Keys in a checkpoint "
         "must be strings, numbers, bools or None.", checkpoints.save, at, {(1, 2): 3})  # fmt: skip
    fails(TypeError, "save: tree is ShapeDtypeStruct(shape=(2,), dtype=float32) of type "
         "ShapeDtypeStruct, which has no values.",
         checkpoints.save, at, sw.ShapeDtypeStruct((2,), "float32"))  # fmt: skip
    fails(TypeError, "save: metadata must be JSON-serializable; got {1, 2} of type set: Object of "
         "type set is not JSON serializable.",
         checkpoints.save, at, 1, metadata={1, 2})  # fmt: skip
    fails(ValueError, "save: path is 'nowhere://a', which is not an address of an object store that "
         "TensorStore knows, such as gs://bucket/folder, s3://bucket/folder or memory://folder: "
         'Parsing spec from url: "nowhere://a/": unsupported URL scheme "nowhere" in '
         '"nowhere://a/"',
         checkpoints.save, "nowhere://a", 1)  # fmt: skip
    fails(ValueError, "save: path is '/', which is the root folder. Choose another folder.",
         checkpoints.save, "/", 1)  # fmt: skip
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for how in ({}, {"overwrite": True}):
        fails(CheckpointError, f"save: {pipe} is a device or socket. Choose a folder for the "
             "checkpoint.", checkpoints.save, pipe, 1, **how)  # fmt: skip
    fails(ValueError, f"save_safetensors: {pipe} is a device or socket. Choose a file.",
         checkpoints.save_safetensors, pipe, {"x": np.ones(1)})  # fmt: skip
    pipe.unlink()
    fails(ValueError, "save: path is 'a\\x00b', which contains a null character. Choose another "
         "folder.", checkpoints.save, "a\0b", 1)  # fmt: skip
    with pytest.raises(sw.errors.UnexpectedTracerError, match=r"^save: tree\[0\] is a "):
        sw.jit(lambda x: checkpoints.save(at, [x]))(1.0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("save", [checkpoints.save, checkpoints.save_async])
def test_arrays_that_are_gone_are_named(tmp_path, save):
    gone, given = sw.numpy.ones(3), sw.device_put(np.ones(8, np.float32), on("x"))
    gone.delete()
    sw.jit(lambda x: x + 1, donate_argnums=0)(given)
    fails(RuntimeError, f"{save.__name__}: tree['params']['w'] has no values: array of type f32[3] "
         "has been deleted: `delete()` was called on it. To use it longer, make a copy beforehand: "
         "`x.copy()`.", save, tmp_path / "t", {"params": {"w": gone}})  # fmt: skip
    fails(RuntimeError, f"{save.__name__}: tree[0] has no values: array of type f32[8@x] was "
         "donated to <lambda>. Use what <lambda> returned; to keep the array as well, pass a copy "
         "of it, `x.copy()`, or leave it out of `donate_argnums` and `donate_argnames`.",
         save, tmp_path / "t", [given])  # fmt: skip
    assert not list(tmp_path.iterdir())
    checkpoints.save(tmp_path / "t", [np.arange(3)])
    (back,) = checkpoints.restore(tmp_path / "t", like=[gone])  # only its type is used
    assert np.array_equal(back, [0, 1, 2]) and back.dtype == np.float32


def test_trees_without_end_or_order(tmp_path):
    at = tmp_path / "t"
    tree = {"w": 1}
    tree["self"] = [tree]
    end = "the pytree contains itself. Leave that entry out."
    fails(ValueError, f"save: tree['self'][0] is tree itself: {end}", checkpoints.save, at, tree)
    rows = []
    rows.append(rows)
    fails(ValueError, f"save: tree['p'][0] is tree['p'] itself: {end}",
         checkpoints.save, at, {"p": rows})  # fmt: skip
    twice = [1]  # the same object in two places is not a cycle
    checkpoints.save(at, {"a": twice, "b": [twice, twice]})
    assert checkpoints.restore(at) == {"a": [1], "b": [[1], [1]]}
    fails(ValueError, f"restore: like['self'][0] is like itself: {end}",
         checkpoints.restore, at, like=tree)  # fmt: skip
    deep = 1
    for _ in range(100):
        deep = [deep]
    checkpoints.save(at, deep, overwrite=True)
    assert checkpoints.restore(at) == deep
    fails(ValueError, f"save: tree{'[0]' * 18}[0... is nested in 100 containers, the most that a "
         "checkpoint supports. Save the pytree as a list of its parts.",
         checkpoints.save, at, [deep])  # fmt: skip


def test_keys_without_order(tmp_path):
    def message(keys):
        return (
            f"save: tree['p'] is a dict with the keys {keys}, which cannot be sorted; the entries "
            "of a pytree are sorted by key. Use keys of one type, such as strings."
        )

    at = tmp_path / "t"
    fails(TypeError, message("1 of type int and 'a' of type str"),
         checkpoints.save, at, {"p": {1: 2, "a": 3}})  # fmt: skip
    fails(TypeError, message("'a' of type str and None of type NoneType"),
         checkpoints.save, at, {"p": defaultdict(int, {"a": 2, None: 3})})  # fmt: skip
    fails(TypeError, "save: tree is a dict with the key 1j of type complex. Keys in a checkpoint "
         "must be strings, numbers, bools or "
         "None.", checkpoints.save, at, {1j: 3, 2: 4})  # fmt: skip
    ordered = OrderedDict([(1, 2), ("a", 3)])  # has its own order
    checkpoints.save(at, {"p": ordered, "q": {2.5: 0, True: 1, 0: 2}})
    back = checkpoints.restore(at)
    assert back == {"p": {1: 2, "a": 3}, "q": {0: 2, True: 1, 2.5: 0}}


def test_a_checkpoint_is_replaced_and_others_files_are_not(tmp_path):
    at = tmp_path / "a" / "b"
    checkpoints.save(os.fsencode(at), {"x": np.ones(3)})
    checkpoints.save(f"file://{at}", {"y": np.zeros(2)}, overwrite=True)
    assert list(checkpoints.restore(at)) == ["y"] and [p.name for p in at.parent.iterdir()] == ["b"]
    fails(CheckpointError, f"save: {at} already contains a checkpoint, and overwrite is False. Pass "
         "overwrite=True to replace it, or choose another folder.",
         checkpoints.save, at, 1)  # fmt: skip
    fails(CheckpointError, f"save: {at.parent} has b, but no checkpoint.json: it is not a "
         "checkpoint, so it is not overwritten. Remove it, or choose another folder.",
         checkpoints.save, at.parent, 1)  # fmt: skip
    (tmp_path / "file").touch()
    fails(CheckpointError, f"save: {tmp_path}/file is a file. Choose a folder for the checkpoint.",
         checkpoints.save, tmp_path / "file", 1)  # fmt: skip
    fails(CheckpointError, f"describe: {tmp_path}/file is a file, but a checkpoint is a folder. To "
         "read a safetensors file, use load_safetensors.",
         checkpoints.describe, tmp_path / "file")  # fmt: skip
    fails(FileNotFoundError, f"restore: there is no checkpoint at {tmp_path}/none.",
         checkpoints.restore, tmp_path / "none")  # fmt: skip


def test_other_stores(tmp_path):
    w = np.arange(42, dtype=np.float32).reshape(7, 6)
    at = "memory://run/step_1"
    checkpoints.save(at, {"w": sw.device_put(w, on("x", "y")), "n": 3})
    assert checkpoints.describe(at).arrays[0].folder == "w"
    back = checkpoints.restore(at, on("y"))
    assert np.array_equal(back["w"], w) and back["n"] == 3
    checkpoints.save(at + "/", {"v": w}, overwrite=True)
    assert list(checkpoints.restore(at)) == ["v"]
    fails(FileNotFoundError, "restore: there is no checkpoint at memory://run/step_2.",
         checkpoints.restore, "memory://run/step_2")  # fmt: skip


def test_what_is_described(tmp_path):
    w = sw.device_put(np.ones((7, 6), np.float32), on(("x", "y")))
    checkpoints.save(tmp_path / "t", {"a": [w], "k": sw.random.key(0), "n": 3}, metadata={"e": 1})
    found = checkpoints.describe(tmp_path / "t")
    text = str(found).replace(found.created, "TIME").splitlines()
    assert text[:2] == [
        f"{tmp_path}/t: 2 arrays, 176 B, written TIME by shardwise {sw.__version__}",
        'metadata: {"e": 1}',
    ]
    assert [line.split() for line in text[2:]] == [
        ["array", "shape", "dtype", "bytes", "sharding"],
        ["['a'][0]", "7×6", "float32", "168", "B", "[x", "y,", "-]", "over", "x=4,", "y=2"],
        ["['k']", "scalar", "key", "of", "threefry2x32", "8", "B"],
        ["['n']", "int", "3"],
    ]
    data = json.loads(json.dumps(found.to_dict()))
    assert data["arrays"][0] == {
        "path": "['a'][0]", "folder": "a/0", "shape": [7, 6], "dtype": "float32",
        "stored": "float32", "chunks": [1, 6], "key": None, "inner": [], "scalar": False,
        "sharding": {"mesh": {"x": 4, "y": 2}, "spec": [["x", "y"], []]}, "bytes": 168,
    }  # fmt: skip
    assert data["bytes"] == 176 and data["values"] == {"['n']": 3} and data["metadata"] == {"e": 1}
    assert data["step"] is None and data["metrics"] == {}


def test_what_a_manager_gives_is_described(tmp_path):
    about = {"optimizer": "adam", "data": ["corpus/one", "corpus/two"], "name": "größer " * 8}
    metrics = {"loss": np.float32(0.5), "rate": sw.numpy.ones(()), "worst": float("nan")}
    with checkpoints.CheckpointManager(tmp_path) as manager:
        manager.save(3, {"n": 1}, metrics, metadata=about)
        manager.save(4, {"n": 1}, metadata=[1, 2])
        manager.save(5, {"n": 1})
    found = [checkpoints.describe(tmp_path / f"step_0000000{i}") for i in (3, 4, 5)]
    assert [str(f).splitlines()[1:-2] for f in found] == [
        ["step: 3", "metrics: loss 0.5, rate 1.0, worst nan", "metadata:", '  optimizer: "adam"',
         '  data: ["corpus/one", "corpus/two"]', f'  name: "{"größer " * 8}"'],
        ["step: 4", "metadata: [1, 2]"], ["step: 5"],
    ]  # fmt: skip
    assert found[0].step == 3 and found[0].metrics["loss"] == 0.5 and found[0].metadata == about
    data = json.loads(json.dumps(found[0].to_dict(), allow_nan=False))
    assert data["step"] == 3 and data["metadata"] == about
    assert data["metrics"] == {"loss": 0.5, "rate": 1.0, "worst": "nan"}
    checkpoints.save(tmp_path / "own", 1, metadata={"step": 1, "metrics": {"a": 2}, "metadata": 3})
    own = checkpoints.describe(tmp_path / "own")  # looks like a manager's, except for the number
    assert own.step is None and own.metadata == {"step": 1, "metrics": {"a": 2}, "metadata": 3}


def test_other_tools_read_the_arrays(tmp_path):
    w = np.arange(42, dtype=np.float32).reshape(7, 6)
    checkpoints.save(tmp_path / "t", {"a": {"w": sw.device_put(w, on("x")), "b": w[0]}})
    spec = {"driver": "zarr3", "kvstore": f"file://{tmp_path}/t/a/w"}
    assert np.array_equal(ts.open(spec, open=True).result().read().result(), w)
    parts = [np.fromfile(tmp_path / f"t/a/w/c/{i}/0", "<f4", 12).reshape(2, 6) for i in range(4)]
    assert np.array_equal(np.concatenate(parts)[:7], w)
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(tmp_path / "t", mode="r")
    assert np.array_equal(group["a/w"][:], w) and np.array_equal(group["a"]["b"][:], w[0])


def test_xarray_opens_it(tmp_path):
    w = np.arange(42, dtype=np.float32).reshape(7, 6)
    a = {"w": sw.device_put(w, on("x")), "b": w[0], "b_0": w[0, 0]}
    checkpoints.save(tmp_path / "t", {"a": a, "n": w[0, 1]})
    about = json.loads((tmp_path / "t/a/w/zarr.json").read_text())
    assert about["dimension_names"] == ["w:0", "w:1"]
    pytest.importorskip("zarr")
    xarray = pytest.importorskip("xarray")
    with pytest.warns(UserWarning, match=r"^Object at checkpoint\.json is not recognized"):
        tree = xarray.open_datatree(tmp_path / "t", engine="zarr", consolidated=False)
    assert np.array_equal(tree["a/w"].values, w) and tree["a/w"].dims == ("w:0", "w:1")
    assert dict(tree["a"].sizes) == {"w:0": 7, "w:1": 6, "b:0": 6} and tree["n"].values == 1


def test_saving_meanwhile_takes_what_may_be_changed(tmp_path):
    """A read-only view may refer to writable memory."""
    base = np.zeros(3)
    view = base[:]
    view.flags.writeable = False
    go, write = threading.Event(), chunk_files.write_chunk

    def late(path, chunk):
        assert go.wait(30)
        return write(path, chunk)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shardwise._src.saving.chunks.write_chunk", late)
        tree = {"v": view, "w": np.broadcast_to(base, (2, 3))}
        saving = checkpoints.save_async(tmp_path / "t", tree)
        base[:] = 7
        go.set()
        saving.wait()
    back = checkpoints.restore(tmp_path / "t")
    assert not back["v"].any() and not back["w"].any()


def test_numbers_of_python_that_cannot_hold_what_was_saved(tmp_path):
    at = tmp_path / "t"
    checkpoints.save(at, {"x": np.float32(2.5), "n": np.int32(3), "z": np.complex64(1j)})
    back = checkpoints.restore(at, like={"x": 0.0, "n": 1.0, "z": 0j})
    assert back == {"x": 2.5, "n": 3.0, "z": 1j}
    fails(CheckpointError, "restore: like['x'] is 0 of type int, but 2.5 was saved there.",
         checkpoints.restore, at, like={"x": 0, "n": 0, "z": 0j})  # fmt: skip
    fails(CheckpointError, "restore: like['z'] is 0.0 of type float, but 1j was saved there.",
         checkpoints.restore, at, like={"x": 0.0, "n": 0, "z": 0.0})  # fmt: skip


def test_shardings_that_do_not_fit(tmp_path):
    at = tmp_path / "t"
    checkpoints.save(at, {"w": np.ones((8, 2), np.float32), "s": np.float32(1)})
    fails(ValueError, "restore: tree['s'] is f32[]: P('x') over Mesh('x': 4, 'y': 2, axis_types="
         "(Explicit, Explicit)) has 1 entry, but the array has only 0 dimensions. Remove entries "
         "from the end of the spec.", checkpoints.restore, at, on("x"))  # fmt: skip
    nowhere = NamedSharding(AbstractMesh((4,), ("z",)), P("z"))
    like = {"w": sw.ShapeDtypeStruct((8, 2), np.float32, sharding=nowhere), "s": 0.0}
    fails(ValueError, "restore: tree['w'] is f32[8,2]: NamedSharding(mesh=AbstractMesh('z': 4, "
         "axis_types=(Explicit,)), spec=P('z')) is over a mesh without devices, and the value is "
         "not on a mesh of this shape. Enter one with `set_mesh`, or use a sharding over a "
         "Mesh.", checkpoints.restore, at, like=like)  # fmt: skip
    with sw.set_mesh(sw.make_mesh((4,), ("z",), devices=sw.devices()[:4])):
        w = checkpoints.restore(at, like=like)["w"]
    assert w.sharding.spec == P("z") and len(w.sharding.device_set) == 4


def test_chunks_are_parts_of_shards():
    from shardwise._src.saving.chunks import CHUNK_BYTES, chunk_shape, pieces

    mib = 1 << 20
    assert chunk_shape((4, 6), (2, 1), 4) == (4, 6)
    assert chunk_shape((0, 6), (2, 1), 4) == (1, 6)
    assert chunk_shape((), (), 4) == ()
    assert chunk_shape((100, mib), (1, 1), 4) == (8, mib)
    assert chunk_shape((100, mib), (2, 1), 4) == (5, mib)  # divides the shards
    assert chunk_shape((97, mib), (2, 1), 4) == (1, mib)
    assert chunk_shape((3, 5, 16 * mib), (1, 1, 4), 4) == (1, 1, 8 * mib)
    for shape in ((100, mib), (97, mib), (3, 5, 16 * mib), (50257, 1600)):
        assert 4 * np.prod(chunk_shape(shape, (1,) * len(shape), 4)) <= CHUNK_BYTES
    found = list(pieces(((1, 5), (0, 2)), (2, 3)))
    assert [n for n, _ in found] == [(0, 0), (1, 0), (2, 0)]
    assert [b for _, b in found] == [((1, 2), (0, 2)), ((2, 4), (0, 2)), ((4, 5), (0, 2))]


def test_large_arrays_are_in_several_files(tmp_path, monkeypatch):
    from shardwise._src.saving import chunks

    monkeypatch.setattr(chunks, "CHUNK_BYTES", 1 << 12)
    monkeypatch.setattr(chunks, "IN_FLIGHT", 1 << 13)
    w = np.random.default_rng(0).normal(size=(97, 211)).astype(np.float32)
    for spec in ((), ("x",), (None, "y"), ("y", "x")):
        checkpoints.save(tmp_path / "t", sw.device_put(w, on(*spec)), overwrite=True)
        assert len([*(tmp_path / "t" / "value" / "c").glob("*/*")]) > 16
        for other in (on("x"), on(None, ("x", "y")), whole()):
            assert np.array_equal(checkpoints.restore(tmp_path / "t", other), w)


def test_nothing_is_taken_to_the_host_besides(tmp_path):
    w = np.random.default_rng(0).normal(size=(97, 211)).astype(np.float32)
    x = sw.device_put(w, on("x"))
    checkpoints.save(tmp_path / "t", {"x": x})
    back = checkpoints.restore(tmp_path / "t", on("y"))["x"]
    assert x._host is None and back._host is None
    assert np.array_equal(back, w)


def test_an_error_that_was_not_waited_for_says_which_save_it_is_of(tmp_path):
    checkpoints.save(tmp_path / "old", {"x": 1})
    checkpoints.save_async(tmp_path / "old", {"x": 2})
    with pytest.raises(CheckpointError, match=r"old already contains a checkpoint") as caught:
        checkpoints.save_async(tmp_path / "new", {"x": 3})
    assert caught.value.__notes__[-1] == (
        "It is the error of an earlier save_async, for which wait() was not called. The save to "
        f"{tmp_path / 'new'} was not started: call it again."
    )
    assert not (tmp_path / "new").exists()
    checkpoints.save_async(tmp_path / "new", {"x": 3}).wait()
    assert checkpoints.restore(tmp_path / "new") == {"x": 3}
