"""Safetensors files, against the package if it is installed, and damaged files."""

import json

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
from shardwise import checkpoints
from shardwise._src.saving.formats import safetensors
from shardwise.checkpoints import load_safetensors, safetensors_metadata, save_safetensors
from shardwise.errors import CheckpointError
from shardwise.sharding import NamedSharding, SingleDeviceSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import fails
from tests.helpers.processes import run_processes


def on(*spec):
    return NamedSharding(sw.make_mesh((4, 2), ("x", "y")), P(*spec))


def values():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(7, 6)) * 50
    kinds = ["float64", "float32", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16",
             "uint32", "uint64", "bool", "complex64", "bfloat16", "float8_e5m2", "float8_e4m3fn",
             "float8_e8m0fnu"]  # fmt: skip
    out = {k: np.abs(x).astype(getattr(ml_dtypes, k, k)) for k in kinds}
    return {**out, "scalar": np.float32(2.5), "empty": np.zeros((0, 3), np.int32)}


def test_all_dtypes_come_back(tmp_path):
    data = values()
    save_safetensors(tmp_path / "t", data, metadata={"format": "np ✓"})
    back = load_safetensors(tmp_path / "t")
    assert set(back) == set(data) and safetensors_metadata(tmp_path / "t") == {"format": "np ✓"}
    for name, x in data.items():
        assert type(back[name]) is np.ndarray and back[name].dtype == x.dtype
        assert back[name].shape == x.shape and back[name].tobytes() == x.tobytes()
    assert [p.name for p in tmp_path.iterdir()] == ["t"]


def test_trees_of_divided_arrays(tmp_path):
    w = np.arange(42, dtype=np.float32).reshape(7, 6)
    tree = {"layers": [{"w": sw.device_put(w, on("x", "y")), "b": None}], "v": w[0]}
    save_safetensors(tmp_path / "t", tree)
    back = load_safetensors(tmp_path / "t", on())
    assert list(back) == ["layers.0.w", "v"]
    for place in (on("y", "x"), on(("x", "y")), SingleDeviceSharding(sw.devices()[1])):
        found = load_safetensors(tmp_path / "t", {"layers.0.w": place, "v": None})
        assert found["layers.0.w"].sharding == place and type(found["v"]) is np.ndarray
        assert np.array_equal(found["layers.0.w"], w) and np.array_equal(found["v"], w[0])
    wide = {"x": np.arange(3.0), "n": np.array([2**40]), "e": np.zeros((0, 4))}
    save_safetensors(tmp_path / "w", wide)
    assert load_safetensors(tmp_path / "w", {"x": on(), "n": None, "e": on("x")})["x"].dtype == "f4"
    fails(CheckpointError, "load_safetensors: arrays['n'] was saved as i64, and has values that i32 "
         "cannot represent. Restore it in its own dtype, given by `like`; 64-bit arrays on devices "
         "need the flag enable_x64.", load_safetensors, tmp_path / "w", on())  # fmt: skip


def test_the_package_reads_and_writes_the_same(tmp_path):
    theirs = pytest.importorskip("safetensors.numpy")
    known = "float64 float32 float16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()
    data = {k: x for k, x in values().items() if k in (*known, "empty", "complex64", "bfloat16")}
    save_safetensors(tmp_path / "ours", data)
    found = theirs.load_file(tmp_path / "ours")
    theirs.save_file(data, tmp_path / "theirs", metadata={"a": "b"})
    back = load_safetensors(tmp_path / "theirs")
    assert set(found) == set(back) == set(data)
    for name, x in data.items():
        assert found[name].dtype == back[name].dtype == x.dtype
        assert found[name].tobytes() == back[name].tobytes() == x.tobytes()
    assert safetensors_metadata(tmp_path / "theirs") == {"a": "b"}


def file(head, data=b""):
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return len(text).to_bytes(8, "little") + text + data


F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
HEAD = "its header is invalid: "


@pytest.mark.parametrize("data, why", [
    (b"", "its header is incomplete or too long"),
    (b"\xff" * 8 + b"{}", "its header is incomplete or too long"),
    (file(b"{}")[:-1], "its header is incomplete or too long"),
    (file(b"no"), HEAD + "Expecting value: line 1 column 1 (char 0)"),
    (file([1]), HEAD + "pop expected at most 1 argument, got 2"),
    (file({"w": F32}, bytes(7)), "it has 76 bytes, but its header describes 77"),
    (file({"w": F32}, bytes(9)), "it has 78 bytes, but its header describes 77"),
    (file({"w": F32, "v": F32}, bytes(8)), "'v' does not begin where the previous array ends"),
    (file({"w": {**F32, "data_offsets": [4, 12]}}, bytes(12)),
     "'w' does not begin where the previous array ends"),
    (file({"w": {**F32, "shape": [3]}}, bytes(8)), HEAD + "F32[3] does not have 8 bytes"),
    (file({"w": {**F32, "shape": [-2]}}, bytes(8)), HEAD + "sizes must be non-negative integers"),
    (file({"w": {**F32, "shape": [2.0]}}, bytes(8)), HEAD + "sizes must be non-negative integers"),
    (file({"w": {**F32, "dtype": "F128"}}, bytes(8)), HEAD + "the dtype 'F128' is unknown"),
    (file({"w": {}}, bytes(8)), HEAD + "'dtype' is missing"),
    (file(b'{"w":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), HEAD + "it is nested too deeply"),
    (file({"w": {**F32, "shape": [0, 2**62], "data_offsets": [0, 0]}}),
     HEAD + "an array cannot have shape (0, 4611686018427387904)"),
    (file({"w": {**F32, "shape": [0, 2**63], "data_offsets": [0, 0]}}),
     HEAD + "sizes must be non-negative integers"),
    (file({"w": {**F32, "shape": [1] * 65, "data_offsets": [0, 4]}}, bytes(4)),
     HEAD + "an array cannot have shape (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, "
     "1, 1, 1,..."),
    (file({"w": {**F32, "shape": {}, "data_offsets": [0, 4]}}, bytes(4)),
     HEAD + "sizes must be non-negative integers"),
    (file({"__metadata__": 3}), HEAD + "its metadata is 3 of type int, but must be a dict from "
     "strings to strings"),
    (file({"__metadata__": {"a": [1]}}), HEAD + "its metadata is {'a': [1]} of type dict, but must "
     "be a dict from strings to strings"),
    (file(b'{"w":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"w":1}', b"x"),
     HEAD + "a name occurs twice"),
])  # fmt: skip
def test_damaged_files(tmp_path, data, why):
    path = tmp_path / "t"
    path.write_bytes(data)
    fails(CheckpointError, f"load_safetensors: {path} is not a safetensors file, or is damaged: "
         f"{why}.",
         load_safetensors, path)  # fmt: skip


VALUES = [
    None, True, -1, 0, 1, 3, 2**31, 2**62, 2**63, 2**64, 1.5, float("nan"), float("inf"), "", "F32",
    "BF16", "\ud800", [], [0], [2, 1], [0, 2**62], [2**62, 2**62], [-2, -1], [[1]], [1] * 70, {},
    {"dtype": "F32"},
]  # fmt: skip


def hostile(rng):
    """A file whose header has invalid parts."""

    def one_of(options):
        return options[rng.integers(len(options))]

    rows, at = [], 0
    for i in range(rng.integers(1, 4)):
        size = 4 * int(rng.integers(0, 3))
        row = {"dtype": "F32", "shape": [size // 4], "data_offsets": [at, at + size]}
        at += size
        for name in row:
            if rng.random() < 0.3:
                row[name] = one_of(VALUES)
        if rng.random() < 0.1:
            del row[one_of([*row])]
        rows.append((one_of(["a", "b", f"w{i}", "__metadata__", "\n\x1b"]),
                     row if rng.random() < 0.9 else one_of(VALUES)))  # fmt: skip
    inside = ",".join([f"{json.dumps(name)}:{json.dumps(row)}" for name, row in rows])
    head = f"{{{inside}}}".encode()
    length = one_of([len(head)] * 6 + [0, len(head) - 1, len(head) + 1, 2**32, 2**63, 2**64 - 1])
    return length.to_bytes(8, "little") + head + bytes(at)


def check_hostile(tmp_path, seed):
    """Reads it, or raises one error; nothing else."""
    rng, path, read = np.random.default_rng(seed), tmp_path / "t", 0
    for _ in range(150):
        path.write_bytes(hostile(rng))
        for call in (load_safetensors, safetensors_metadata):
            try:
                call(path)
                read += 1
            except CheckpointError as error:
                start = f"{call.__name__}: {path} is not a safetensors file, or is damaged: "
                assert str(error).startswith(start) and str(error).isprintable()
    assert read


@pytest.mark.parametrize("seed", [0, 1])
def test_hostile_headers(tmp_path, seed):
    check_hostile(tmp_path, seed)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(2, 200))
def test_many_hostile_headers(tmp_path, seed):
    check_hostile(tmp_path, seed)


def test_mistakes(tmp_path):
    path = tmp_path / "t"
    fails(FileNotFoundError, f"load_safetensors: there is no file {path}.", load_safetensors, path)
    path.write_bytes(b"PK\x03\x04 and so on, as torch.save writes it")
    fails(CheckpointError, f"load_safetensors: {path} is a pickle file, as torch.save writes. "
         "Reading it would execute code from it, so shardwise does not. Convert it in PyTorch, "
         "with safetensors.torch.save_file.", load_safetensors, path)  # fmt: skip
    fails(TypeError, "save_safetensors: tree['n'] is 3 of type int, but the format supports only "
         "arrays. Leave it out, or make it metadata or an array.",
         save_safetensors, path, {"n": 3})  # fmt: skip
    fails(TypeError, "save_safetensors: tree is typed keys, which the format does not support. Save "
         "`shardwise.random.key_data(keys)`.",
         save_safetensors, path, sw.random.key(0))  # fmt: skip
    with pytest.raises(TypeError, match=r"^save_safetensors: tree is of dtype complex128, which "):
        save_safetensors(path, np.ones(2, complex))
    fails(ValueError, "save_safetensors: two arrays would have the name 'a.b': names are the keys "
         "of the path in the pytree, joined by dots. Rename one of them.",
         save_safetensors, path, {"a": {"b": np.ones(1)}, "a.b": np.ones(1)})  # fmt: skip
    fails(ValueError, "save_safetensors: an array would have the name '__metadata__', which the "
         "format reserves for its metadata. Rename the array.",
         save_safetensors, path, {"__metadata__": np.ones(1)})  # fmt: skip
    fails(TypeError, "save_safetensors: metadata must be a dict from strings to strings; got "
         "{'a': 1} of type dict.",
         save_safetensors, path, np.ones(1), metadata={"a": 1})  # fmt: skip


PROGRAM = """
import sys
import numpy as np
import shardwise as sw
from shardwise.checkpoints import load_safetensors, save_safetensors
from shardwise.sharding import NamedSharding, PartitionSpec as P
mesh = sw.make_mesh((4,), ("x",))
w = np.arange(77.0, dtype=np.float32).reshape(7, 11)
x, y = (sw.device_put(w, NamedSharding(mesh, s)) for s in (P("x"), P(None, "x")))
save_safetensors(sys.argv[1], {"x": x, "y": y, "host": w})
back = load_safetensors(sys.argv[1], NamedSharding(mesh, P(None, "x")))
print(all(np.array_equal(s.data, w[s.index]) for a in back.values() for s in a.addressable_shards))
"""


@pytest.mark.processes
def test_processes_write_into_one_file(tmp_path):
    runs = run_processes(PROGRAM, 2, devices=2, args=[str(tmp_path / "t")], timeout=60)
    assert [r.out for r in runs] == ["True\n", "True\n"]
    w = np.arange(77.0, dtype=np.float32).reshape(7, 11)
    assert all(np.array_equal(x, w) for x in load_safetensors(tmp_path / "t").values())


def test_paths(tmp_path):
    save, load = save_safetensors, load_safetensors
    save(f"file://{tmp_path}/new/m.safetensors", {"a": np.ones(2)})
    assert np.array_equal(load(tmp_path / "new/m.safetensors")["a"], [1, 1])
    fails(TypeError, "load_safetensors: path must be a string or a path; got 3 of type int.",
         load, 3)  # fmt: skip
    fails(ValueError, "load_safetensors: path is 's3://bucket/m.safetensors', but safetensors files "
         "are read and written on file systems only. Copy the file to one, or use `save` and "
         "`restore` for object stores.", load, "s3://bucket/m.safetensors")  # fmt: skip
    fails(IsADirectoryError, f"save_safetensors: {tmp_path} is a folder; choose a file.",
         save, tmp_path, {"a": np.ones(2)})  # fmt: skip
    checkpoints.save(tmp_path / "c", 1)
    fails(IsADirectoryError, f"save_safetensors: {tmp_path}/c is a folder; choose a file.",
         save, tmp_path / "c", {"a": np.ones(2)})  # fmt: skip
    fails(IsADirectoryError, f"load_safetensors: {tmp_path}/c is a folder; read the checkpoint in "
         "it with `restore`.", load, tmp_path / "c")  # fmt: skip


def test_a_sharding_that_does_not_fit_is_told_with_the_name(tmp_path):
    save_safetensors(tmp_path / "m", {"w": np.ones(8), "n": np.float32(2)})
    mesh = sw.make_mesh((4,), ("x",), devices=sw.devices()[:4])
    fails(ValueError, f"load_safetensors: arrays['n']: P('x') over {mesh} has 1 entry, but the "
         "array has only 0 dimensions. Remove entries from the end of the spec.",
         load_safetensors, tmp_path / "m", NamedSharding(mesh, P("x")))  # fmt: skip


def test_nothing_is_left_of_a_save_that_fails(tmp_path, monkeypatch):
    def failing(*_):
        raise OSError("no disk")

    save_safetensors(tmp_path / "m", {"a": np.ones(2)})
    with monkeypatch.context() as patch:
        patch.setattr(safetensors, "_write", failing)
        with pytest.raises(OSError, match=r"^no disk$"):
            save_safetensors(tmp_path / "m", {"a": np.zeros(3)})
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    assert np.array_equal(load_safetensors(tmp_path / "m")["a"], [1, 1])
