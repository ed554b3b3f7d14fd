"""Manifests that our writers never write, with the correct digest: all raise the same error."""

import json

import numpy as np
import pytest

from shardwise import checkpoints
from shardwise._src.saving import manifest
from shardwise.errors import CheckpointError

pytest.importorskip("tensorstore")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    at = tmp_path_factory.mktemp("hostile") / "t"
    checkpoints.save(at, {"w": np.ones((3, 2), np.float32), "n": [1.5, 2j, b"x", 3]})
    return at, (at / "checkpoint.json").read_text()


def said(saved, change):
    """What both readers report for a modified manifest."""
    at, text = saved
    about = json.loads(text)
    change(about["content"])
    about["sha256"] = manifest._digest(about["content"])
    (at / "checkpoint.json").write_text(json.dumps(about))
    texts = []
    for call in (checkpoints.describe, checkpoints.restore):
        with pytest.raises(CheckpointError) as error:
            call(at)
        start = f"{call.__name__}: {at}/checkpoint.json is not a valid manifest: "
        assert str(error.value).startswith(start) and str(error.value).endswith(".")
        texts.append(str(error.value).removeprefix(start)[:-1])
    assert texts[0] == texts[1]
    return texts[0]


DEEP = 100_000
ARRAYS = [
    ({"folder": 3}, "'folder' of an array is 3 of type int"),
    ({"folder": "a/../../b"}, "'a/../../b' is not a folder in the checkpoint"),
    ({"folder": "a//b"}, "'a//b' is not a folder in the checkpoint"),
    ({"folder": "/etc"}, "'/etc' is not a folder in the checkpoint"),
    ({"folder": "w\x1b[2J"}, r"'w\x1b[2J' is not a folder in the checkpoint"),
    ({"path": ["w"]}, "'path' of an array is ['w'] of type list"),
    ({"shape": 6}, "'shape' of an array is 6 of type int"),
    ({"shape": "32"}, "'shape' of an array is '32' of type str"),
    ({"shape": [[3], 2]}, "(3, 2) is not a chunk shape for an array of shape ([3], 2)"),
    ({"shape": [True, 2]}, "(3, 2) is not a chunk shape for an array of shape (True, 2)"),
    ({"chunks": ["3", "2"]}, "('3', '2') is not a chunk shape for an array of shape (3, 2)"),
    ({"chunks": [-3, 2]}, "(-3, 2) is not a chunk shape for an array of shape (3, 2)"),
    ({"chunks": {"0": 3}}, "'chunks' of an array is {'0': 3} of type dict"),
    ({"chunks": [3, 1 << 63]},
     "(3, 9223372036854775808) is not a chunk shape for an array of shape (3, 2)"),
    ({"shape": [1 << 62, 2]}, "an array cannot have shape (4611686018427387904, 2)"),
    ({"chunks": [1 << 62, 2]}, "an array cannot have shape (3, 2)"),
    ({"shape": [1] * 65, "chunks": [1] * 65}, "an array cannot have shape (1, 1, 1, 1, 1,"
     " 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,..."),
    ({"dtype": None}, "'dtype' of an array is None of type NoneType"),
    ({"scalar": "no"}, "'scalar' of an array is 'no' of type str"),
    ({"key": 5}, "'key' of an array is 5 of type int"),
    ({"key": "threefry2x32"}, "float32[] is not a key of 'threefry2x32'"),
    ({"inner": [2], "chunks": [3, 2, 2]}, "float32[2] is not a key of None"),
    ({"sharding": "x"}, "'sharding' of an array is 'x' of type str"),
    ({"sharding": {}}, "{} is not a sharding"),
    ({"sharding": {"shards": 3}}, "{'shards': 3} is not a sharding"),
    ({"sharding": {"mesh": {"x": []}, "spec": []}},
     "{'mesh': {'x': []}, 'spec': []} is not a sharding"),
    ({"sharding": {"mesh": [], "spec": []}}, "{'mesh': [], 'spec': []} is not a sharding"),
    ({"sharding": {"mesh": {}, "spec": [None]}}, "{'mesh': {}, 'spec': [None]} is not a sharding"),
    ({"sharding": {"mesh": {}, "spec": [[1]]}}, "{'mesh': {}, 'spec': [[1]]} is not a sharding"),
    ({"more": 1}, "Entry.__init__() got an unexpected keyword argument 'more'"),
]  # fmt: skip


@pytest.mark.parametrize("fields, why", ARRAYS)
def test_arrays(saved, fields, why):
    assert said(saved, lambda content: content["arrays"][0].update(fields)) == why


@pytest.mark.parametrize("fields, why", [
    ({"arrays": None}, "'arrays' of the checkpoint is None of type NoneType"),
    ({"arrays": ["w"]}, "an array is 'w' of type str"),
    ({"arrays": [{}]}, "'path'"),
    ({"created": ["now"]}, "'created' of the checkpoint is ['now'] of type list"),
    ({"library": 3}, "'library' of the checkpoint is 3 of type int"),
    ({"processes": "many"}, "'processes' of the checkpoint is 'many' of type str"),
    ({"tree": []}, "'tree' of the checkpoint is [] of type list"),
])  # fmt: skip
def test_what_a_manifest_has(saved, fields, why):
    assert said(saved, lambda content: content.update(fields)) == why


def within(count):
    tree = {"kind": "none"}
    for _ in range(count):
        tree = {"kind": "list", "items": [tree]}
    return tree


def named(*names):
    return {"kind": "dict", "names": [*names], "items": [{"kind": "none"}] * len(names)}


TREES = [
    ({"kind": ["dict"]}, "['dict'] is not of type str"),
    ({"kind": "code", "value": 1}, "there is no kind 'code'"),
    ({"kind": "list", "items": "ab"}, "'ab' is not of type list"),
    ({"kind": "list", "items": [3]}, "3 is not of type dict"),
    ({"kind": "none", "static": []}, "[] is not of type dict"),
    ({"kind": "dict", "names": "a", "items": [{"kind": "none"}]}, "'a' is not of type list"),
    ({"kind": "dict", "names": [], "items": [{"kind": "none"}]}, "0 names for 1 entry"),
    (named(["a"]), "(['a'],) are not valid entry names"),
    (named("1", 1), "('1', 1) are not valid entry names"),
    (named({"float": 1}), "1 is not of type str"),
    ({"kind": "list", "items": [], "type": 3}, "3 is not of type str"),
    ({"kind": "array", "value": 1}, "there is no array 1"),
    ({"kind": "array", "value": 0.0}, "there is no array 0.0"),
    ({"kind": "array", "value": "0"}, "there is no array '0'"),
    ({"kind": "int", "value": "3"}, "'3' is not of type int"),
    ({"kind": "float", "value": {"float": 10**400}}, f"{10**56}... is not of type str"),
    ({"kind": "complex", "value": [10**400, 1]}, f"{10**56}... is not of type str"),
    ({"kind": "bytes", "value": "é"}, "string argument should contain only ASCII characters"),
    (within(250), "the pytree is nested more than 200 levels deep"),
]


@pytest.mark.parametrize("tree, why", TREES)
def test_trees(saved, tree, why):
    assert said(saved, lambda content: content.update(tree=tree)) == why


@pytest.mark.parametrize("text", [
    "[" * DEEP, '{"a":' * DEEP, f'{{"content": {"[" * DEEP}{"]" * DEEP}}}',
    '{"format": ["shardwise.checkpoint"], "version": 1, "content": 1, "sha256": ""}',
    '{"format": "shardwise.checkpoint", "version": [1], "content": 1, "sha256": ""}',
    '{"format": "shardwise.checkpoint", "version": 1, "content": null, "sha256": null}',
    '{"format": "shardwise.checkpoint", "version": 1' + "0" * 5000 + "}", "\x80", "1",
])  # fmt: skip
def test_what_is_no_manifest(saved, text):
    at, _ = saved
    (at / "checkpoint.json").write_text(text, encoding="latin1")
    with pytest.raises(CheckpointError) as error:
        checkpoints.describe(at)
    assert str(error.value) == (
        f"describe: {at}/checkpoint.json is damaged: its checksum does not match. Restore another "
        "checkpoint."
    )


@pytest.mark.parametrize("metadata", [
    [[1]], {"step": "1", "metrics": 2, "metadata": 3}, {"step": 1, "metrics": [], "metadata": 3},
    {"step": 1, "metrics": {"a": 1}, "metadata": 3}, {"step": True, "metrics": {}, "metadata": 3},
    10**4000, "\ud800", {"": {"": None}},
])  # fmt: skip
def test_any_metadata_is_metadata(saved, metadata):
    at, text = saved
    about = json.loads(text)
    about["content"]["metadata"] = metadata
    about["sha256"] = manifest._digest(about["content"])
    (at / "checkpoint.json").write_text(json.dumps(about))
    found = checkpoints.describe(at)
    assert (found.step, found.metrics, found.metadata) == (None, {}, metadata)
    assert str(found).encode() and json.dumps(found.to_dict(), indent=1)


def test_texts_of_a_file_do_nothing_to_a_terminal(saved):
    at, text = saved
    about = json.loads(text)
    clear, bell = "\x1b[2J", "\x9b\x7f\u202e\n"
    content = about["content"]
    content.update(created=clear, library=f"theirs{bell}", metadata=with_metrics(bell, clear))
    content["tree"]["names"] = [f"n{clear}", f"w{bell}"]
    array = content["arrays"][0]
    array.update(path=f"w{clear}", sharding={"mesh": {bell: 2}, "spec": [[clear], []]})
    about["sha256"] = manifest._digest(content)
    (at / "checkpoint.json").write_text(json.dumps(about))
    shown = str(checkpoints.describe(at))
    assert shown.replace("\n", "").isprintable()
    assert shown.splitlines()[:6] == [
        f"{at}: 1 array, 24 B, written ?[2J by theirs????", "step: 7", "metrics: ???? 1.0",
        r'metadata: "\u001b[2J"', "array            shape  dtype    bytes  sharding",
        "w?[2J            3×2    float32  24 B   [?[2J, -] over ????=2",
    ]  # fmt: skip
    array["chunks"] = [2, 2]
    about["sha256"] = manifest._digest(content)
    (at / "checkpoint.json").write_text(json.dumps(about))
    with pytest.raises(CheckpointError) as error:
        checkpoints.restore(at)
    assert str(error.value) == (
        f"restore: {at} is damaged: the file w/c/1/0 of treew?[2J is missing. Restore another "
        "checkpoint."
    )


def with_metrics(name, metadata):
    return {"step": 7, "metrics": {name: "1.0"}, "metadata": metadata}
