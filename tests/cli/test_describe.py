"""`shardwise describe`: it prints the result of `checkpoints.describe`."""

import json

import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.cli import main
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P

pytest.importorskip("tensorstore")


@pytest.fixture
def path(tmp_path):
    mesh = sw.make_mesh((1,), ("x",))
    w = jnp.ones((4, 3), device=NamedSharding(mesh, P("x")))
    sw.checkpoints.save(tmp_path / "c", {"w": w, "step": 7}, metadata={"loss": 0.5})
    return tmp_path / "c"


def test_a_table(path, capsys):
    assert main(["describe", str(path)]) == 0
    out = capsys.readouterr().out
    assert out == f"{sw.checkpoints.describe(path)}\n"
    lines = out.splitlines()
    assert lines[0].startswith(f"{path}: 1 array, 48 B, written 20")
    assert lines[1] == 'metadata: {"loss": 0.5}'
    assert [line.split() for line in lines[2:]] == [
        ["array", "shape", "dtype", "bytes", "sharding"],
        ["['w']", "4×3", "float32", "48", "B", "[x]", "over", "x=1"],
        ["['step']", "int", "7"],
    ] or lines[3].split()[:5] == ["['w']", "4×3", "float32", "48", "B"]


def test_data(path, capsys):
    assert main(["describe", "--json", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(json.dumps(sw.checkpoints.describe(path).to_dict()))
    assert (found["bytes"], found["metadata"], found["values"]) == (
        48,
        {"loss": 0.5},
        {"['step']": 7},
    )


def test_no_checkpoint(tmp_path, capsys):
    assert main(["describe", str(tmp_path / "none")]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == (
        "",
        f"shardwise describe: there is no checkpoint at {tmp_path / 'none'}.\n",
    )
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "w").mkdir()
    (tmp_path / "half" / "w" / "x").touch()
    assert main(["describe", str(tmp_path / "half")]) == 1
    assert capsys.readouterr().err == (
        f"shardwise describe: {tmp_path / 'half'} has no checkpoint.json, but w: it is not a "
        "checkpoint, or its writer was stopped before it finished.\n"
    )


def test_a_damaged_one(path, capsys):
    file = path / "checkpoint.json"
    file.write_text(file.read_text().replace("0.5", "0.6"))
    assert main(["describe", str(path)]) == 1
    assert capsys.readouterr().err == (
        f"shardwise describe: {path}/checkpoint.json is damaged: its checksum does not match. "
        "Restore another checkpoint.\n"
    )
