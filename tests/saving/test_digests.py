"""Files of another array, or of another checkpoint: intact, but not the saved ones."""

import json
import os

import numpy as np
import pytest
from crc32c import crc32c

import shardwise as sw
from shardwise import checkpoints
from shardwise._src.saving import digests, manifest, writing
from shardwise._src.saving.storage import Place
from shardwise.errors import CheckpointError
from tests.helpers.errors import fails

pytest.importorskip("tensorstore")
WHERE = pytest.mark.parametrize("where", ["folder", "store"])
OTHER = (
    "is intact, but not the file that was saved there: it belongs to another array or checkpoint"
)


def values(step):
    w = np.full((3, 4), float(step))
    return {"v": w + 0.5, "w": w, "n": {"b": np.arange(4)}}


def place_of(tmp_path, where, name):
    at = tmp_path / name if where == "folder" else f"memory://{tmp_path.name}/{where}/{name}"
    return Place.at("", at)


def damaged(place, file, why, path=""):
    of = f" of tree{path}" if path else ""
    return (
        f"restore: {place.text} is damaged: the file {file}{of} {why}. Restore another checkpoint."
    )


def resigned(place, change):
    """Writes another manifest, with its own correct digest."""
    about = json.loads(place.get("checkpoint.json"))
    change(about["content"])
    about["sha256"] = manifest._digest(about["content"])
    place.put("checkpoint.json", json.dumps(about).encode())


def test_the_manifest_lists_the_digest_of_every_file(tmp_path):
    mesh = sw.make_mesh((4,), ("x",), devices=sw.devices()[:4])
    split = sw.sharding.NamedSharding(mesh, sw.sharding.PartitionSpec("x"))
    tree = {"w": sw.device_put(np.arange(12.0, dtype=np.float32), split), "s": np.int8(3), "n": 1}
    checkpoints.save(tmp_path / "t", tree)
    listed = checkpoints.describe(tmp_path / "t").files
    there = {p.relative_to(tmp_path / "t").as_posix(): p for p in (tmp_path / "t").rglob("*")}
    there = {name: p.read_bytes() for name, p in there.items() if p.is_file()}
    assert {*listed} == {*there} - {"checkpoint.json"} and len(listed) == 8
    for name, digest in listed.items():
        data = there[name] if name.endswith("zarr.json") else there[name][:-4]
        assert digest == f"{crc32c(data):08x}"
    assert "files" not in str(checkpoints.describe(tmp_path / "t"))


@WHERE
def test_files_of_another_array(tmp_path, where):
    place = place_of(tmp_path, where, "t")
    checkpoints.save(place.text, values(1))
    v, w = place.get("v/c/0/0"), place.get("w/c/0/0")
    place.put("v/c/0/0", w)
    place.put("w/c/0/0", v)
    like = {"v": np.ones((3, 4)), "w": np.ones((3, 4)), "n": {"b": np.arange(4)}}
    one = sw.sharding.SingleDeviceSharding(sw.devices()[0])
    for more in ({}, {"like": like}, {"shardings": one}):
        with pytest.raises(CheckpointError) as error:
            checkpoints.restore(place.text, **more)
        texts = [damaged(place, f"{name}/c/0/0", OTHER, f"['{name}']") for name in "vw"]
        assert str(error.value) in texts
    place.put("v/c/0/0", v)
    fails(CheckpointError, damaged(place, "w/c/0/0", OTHER, "['w']"), checkpoints.restore,
          place.text)  # fmt: skip
    place.put("w/c/0/0", w)
    assert np.array_equal(checkpoints.restore(place.text)["w"], values(1)["w"])


@WHERE
@pytest.mark.parametrize("copied", ["w/c/0/0", "checkpoint.json"])
def test_a_copy_of_another_checkpoint_that_was_not_finished(tmp_path, where, copied):
    one, other = place_of(tmp_path, where, "one"), place_of(tmp_path, where, "other")
    checkpoints.save(one.text, values(1))
    checkpoints.save(other.text, values(2))
    one.put(copied, other.get(copied))
    with pytest.raises(CheckpointError) as error:
        checkpoints.restore(one.text)
    texts = [damaged(one, f"{name}/c/0/0", OTHER, f"['{name}']") for name in "vw"]
    assert str(error.value) in texts


def test_parts_of_an_exchanged_file_are_found(tmp_path):
    """Also if only a part of the file is read."""
    place = place_of(tmp_path, "folder", "t")
    checkpoints.save(place.text, values(1))
    place.put("w/c/0/0", place.get("v/c/0/0"))
    mesh = sw.make_mesh((2,), ("x",), devices=sw.devices()[:2])
    split = sw.sharding.NamedSharding(mesh, sw.sharding.PartitionSpec(None, "x"))
    places = {"v": None, "w": split, "n": None}
    fails(CheckpointError, damaged(place, "w/c/0/0", OTHER, "['w']"), checkpoints.restore,
          place.text, places)  # fmt: skip


@WHERE
@pytest.mark.parametrize("file", ["zarr.json", "w/zarr.json", "n/zarr.json"])
def test_what_other_readers_are_given_is_looked_at(tmp_path, where, file):
    place = place_of(tmp_path, where, "t")
    checkpoints.save(place.text, values(1))
    text = place.get(file)
    place.put(file, text.replace(b'"zarr_format": 3', b'"zarr_format": 4'))
    fails(CheckpointError, damaged(place, file, "does not have the contents that were written"),
          checkpoints.restore, place.text)  # fmt: skip
    place.drop(file)
    fails(CheckpointError, damaged(place, file, "is missing"), checkpoints.restore, place.text)
    place.put(file, text)
    assert list(checkpoints.restore(place.text)) == ["n", "v", "w"]


@WHERE
def test_checkpoints_without_digests_are_read(tmp_path, where):
    """Checkpoints of earlier releases: changes in a file are detected, and exchanged files
    are not."""
    place = place_of(tmp_path, where, "t")
    checkpoints.save(place.text, values(1))
    resigned(place, lambda content: content.pop("files"))
    assert checkpoints.describe(place.text).files is None
    assert np.array_equal(checkpoints.restore(place.text)["w"], values(1)["w"])
    place.put("w/c/0/0", place.get("v/c/0/0"))
    assert np.array_equal(checkpoints.restore(place.text)["w"], values(1)["v"])
    place.put("w/c/0/0", b"x" + place.get("v/c/0/0")[1:])
    why = "is corrupted: its checksum does not match"
    fails(CheckpointError, damaged(place, "w/c/0/0", why, "['w']"), checkpoints.restore,
          place.text)  # fmt: skip
    checkpoints.save(place.text, values(2), overwrite=True)
    assert checkpoints.restore(place.text)["w"][0, 0] == 2


@pytest.mark.parametrize("files, why", [
    ([], "'files' of the checkpoint is [] of type list"),
    ({"w/c/0": 3}, "3 is not a file digest"),
    ({"w/c/0": "0123456X"}, "'0123456X' is not a file digest"),
    ({"../c": "01234567"}, "'../c' is not a file in the checkpoint"),
])  # fmt: skip
def test_lists_of_digests_that_are_none(tmp_path, files, why):
    place = place_of(tmp_path, "folder", "t")
    checkpoints.save(place.text, {"w": np.ones(3)})
    resigned(place, lambda content: content.update(files=files))
    for call in (checkpoints.restore, checkpoints.describe):
        fails(CheckpointError, f"{call.__name__}: {place.text}/checkpoint.json is not a valid "
              f"manifest: {why}.", call, place.text)  # fmt: skip


def test_a_file_that_is_not_listed(tmp_path):
    place = place_of(tmp_path, "folder", "t")
    checkpoints.save(place.text, {"w": np.ones(3)})
    resigned(place, lambda content: content["files"].pop("w/c/0"))
    fails(CheckpointError, damaged(place, "w/c/0", "is not listed in the manifest",
          "['w']"), checkpoints.restore, place.text)  # fmt: skip


def test_names_that_digests_of_processes_have_are_no_folders(tmp_path):
    tree = {"checkpoint.files.1": np.ones(2), "zarr.json": np.zeros(2)}
    checkpoints.save(tmp_path / "t", tree)
    assert sorted(os.listdir(tmp_path / "t")) == [
        "%63heckpoint.files.1", "%7Aarr.json", "checkpoint.json", "zarr.json"
    ]  # fmt: skip
    assert checkpoints.restore(tmp_path / "t")["checkpoint.files.1"].tolist() == [1, 1]


def test_digests_of_a_process_that_process_0_does_not_see(tmp_path, monkeypatch):
    """As if each machine had its own folder."""
    place = place_of(tmp_path, "folder", "t")
    digests.leave(place, 1, {"w/c/1": "01234567"})
    assert digests.collect(place, 2) == {"w/c/1": "01234567"} and place.files() == []
    monkeypatch.setattr(writing, "collect", lambda where, _: digests.collect(where, 2))
    fails(CheckpointError, "save: process 0 does not see the files that process 1 wrote to "
          f"{place.text}: all processes write one checkpoint. Choose a folder on storage shared by "
          "all.", checkpoints.save, place.text, values(1))  # fmt: skip
    assert os.listdir(tmp_path) == ["t"] and place.files() == []
