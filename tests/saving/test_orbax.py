"""Orbax checkpoints, and errors for the unsupported ones."""

import json

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
from shardwise import checkpoints
from shardwise.errors import CheckpointError
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import fails

ts = pytest.importorskip("tensorstore")


def on(*spec):
    return NamedSharding(sw.make_mesh((4, 2), ("x", "y")), P(*spec))


W = np.arange(42, dtype=np.float32).reshape(7, 6)


def laid_out(path, ocdbt, zarr3):
    """A folder in Orbax's layout, written with TensorStore."""

    def row(value_type, *keys):
        steps = [{"key": str(k), "key_type": 1 if isinstance(k, int) else 2} for k in keys]
        value = {"value_type": value_type, "skip_deserialize": False}
        return str(keys), {"key_metadata": steps, "value_metadata": value}

    rows = [
        row("jax.Array", "params", "w"), row("jax.Array", "params", "b"), row("Dict", "e"),
        row("np.ndarray", "l", 0), row("scalar", "l", 1, 0), row("None", "l", 1, 1),
        row("string", "s"),
    ]  # fmt: skip
    values = {"params.w": W, "params.b": W[0].astype(ml_dtypes.bfloat16), "l.0": np.zeros(3, "i4"),
              "l.1.0": np.asarray(2.5)}  # fmt: skip
    for name, value in values.items():
        base = {"driver": "file", "path": f"{path}/"}
        store = (
            {"driver": "ocdbt", "base": base, "path": f"{name}/"}
            if ocdbt
            else {**base, "path": f"{path}/{name}/"}
        )
        spec = {"driver": "zarr3" if zarr3 else "zarr", "kvstore": store,
                "store_data_equal_to_fill_value": True}  # fmt: skip
        chunk = ts.ChunkLayout(chunk_shape=[max(1, -(-n // 2)) for n in value.shape])
        ts.open(spec, create=True, dtype=value.dtype, shape=value.shape, chunk_layout=chunk
                ).result().write(value).result()  # fmt: skip
    about = {"tree_metadata": dict(rows), "use_ocdbt": ocdbt, "use_zarr3": zarr3,
             "store_array_data_equal_to_fill_value": True}  # fmt: skip
    (path / "_METADATA").write_text(json.dumps(about))
    (path / "_strings.json").write_text(json.dumps({"s": "text"}))


@pytest.mark.parametrize("ocdbt, zarr3", [(True, False), (True, True), (False, False)])
def test_what_is_laid_out_as_orbax_does(tmp_path, ocdbt, zarr3):
    item = tmp_path / "step" / "default"
    item.mkdir(parents=True)
    laid_out(item, ocdbt, zarr3)
    for path in (item, tmp_path / "step"):
        back = checkpoints.load_orbax(path)
        assert back["e"] == {} and back["s"] == "text" and back["l"][1] == [2.5, None]
        assert np.array_equal(back["params"]["w"], W) and np.array_equal(back["l"][0], [0, 0, 0])
        assert back["params"]["b"].dtype == ml_dtypes.bfloat16
    places = {"params": on("y", "x"), "l": None, "e": None, "s": None}
    back = checkpoints.load_orbax(item, {**places, "params": {"w": on("y", "x"), "b": on("x")}})
    assert back["params"]["w"].sharding == on("y", "x") and np.array_equal(back["params"]["w"], W)
    like = {"params": {"w": sw.ShapeDtypeStruct((7, 6), "float16", sharding=on("x")), "b": W[0]},
            "l": (W[0, :3], [0.0, None]), "e": {}, "s": ""}  # fmt: skip
    back = checkpoints.load_orbax(item, like=like)
    assert back["params"]["w"].dtype == np.float16 and back["l"][1][0] == 2.5
    assert type(back["l"]) is tuple and back["params"]["b"].dtype == np.float32
    fails(CheckpointError, f"restore: {item} is an Orbax checkpoint: read it with load_orbax.",
         checkpoints.restore, item)  # fmt: skip
    if not ocdbt:
        (item / "params.w" / "0.0").write_bytes(b"no")
        with pytest.raises(CheckpointError, match=r"is damaged: tree\['params'\]\['w'\] cannot be"):
            checkpoints.load_orbax(item)


@pytest.mark.filterwarnings("ignore")
def test_what_orbax_writes(tmp_path):
    ocp = pytest.importorskip("orbax.checkpoint")
    import jax

    params = {"w": jax.numpy.asarray(W)}
    tree = {"params": params, "l": [np.arange(3), (1, 2.5)], "e": {}, "n": None}
    for name, how in {"a": {}, "b": {"use_ocdbt": False}, "c": {"use_zarr3": True}}.items():
        ocp.PyTreeCheckpointer(**how).save(tmp_path / name, tree)
        back = checkpoints.load_orbax(tmp_path / name)
        assert np.array_equal(back["params"]["w"], W) and np.array_equal(back["l"][0], [0, 1, 2])
        assert back["l"][1] == [1, 2.5] and back["e"] == {} and back["n"] is None


def test_what_is_not_read(tmp_path):
    fails(FileNotFoundError, f"load_orbax: there is no checkpoint at {tmp_path}/none.",
         checkpoints.load_orbax, tmp_path / "none")  # fmt: skip
    (tmp_path / "x").touch()
    fails(CheckpointError, f"load_orbax: {tmp_path} has no _METADATA, nor does any folder in it: it "
         "is not an Orbax checkpoint, or was written by an old release.",
         checkpoints.load_orbax, tmp_path)  # fmt: skip
    (tmp_path / "_METADATA").write_text("{}")
    fails(CheckpointError, f"load_orbax: {tmp_path}/_METADATA is not valid Orbax metadata: "
         "KeyError('tree_metadata').", checkpoints.load_orbax, tmp_path)  # fmt: skip
    (tmp_path / "_METADATA").unlink()
    (tmp_path / ".metadata").touch()
    (tmp_path / "__0_0.distcp").touch()
    fails(CheckpointError, f"restore: {tmp_path} is a distributed checkpoint of PyTorch, whose "
         ".metadata is a pickle: reading it would execute code from it, so shardwise does not. "
         "Convert it in PyTorch with torch.distributed.checkpoint.format_utils.dcp_to_torch_save, "
         "then safetensors.torch.save_file, and read the result with load_safetensors.",
         checkpoints.restore, tmp_path)  # fmt: skip
