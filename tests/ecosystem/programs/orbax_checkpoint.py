"""Training states written and read by orbax: replicated, sharded, repeatedly, and partially."""

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
split = NamedSharding(mesh, P("x", "y"))
state = {
    "params": {"w": jax.device_put(jnp.arange(64.0).reshape(8, 8), split), "b": jnp.zeros(8)},
    "step": 7,
    "moments": [jnp.ones(3, jnp.bfloat16), np.arange(4, dtype=np.int64)],
}


def same(found, wanted):
    """Asserts that trees are equal, bit for bit."""
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


paths = ocp.tree.to_flat_dict(state, sep="/")
print("paths", sorted(paths))
with tempfile.TemporaryDirectory() as folder:
    folder = Path(folder)
    with ocp.StandardCheckpointer() as writer:
        writer.save(folder / "whole", state)
        writer.wait_until_finished()
        plain = writer.restore(folder / "whole")
        print("plain", plain["step"], np.asarray(plain["params"]["w"]).sum(), sorted(plain))
        like = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
        read = writer.restore(folder / "whole", like)
    w = read["params"]["w"]
    print("read", w.sharding.spec, w.addressable_shards[1].data.shape, read["moments"][0].dtype)
    same(read, state)
    assert read["params"]["w"].sharding.is_equivalent_to(split, 2)
    for tree in (plain, read):
        assert int(tree["step"]) == 7
    for wrong in ({**like, "more": like["step"]}, {"step": like["step"]}):
        try:
            with ocp.StandardCheckpointer() as reader:
                reader.restore(folder / "whole", wrong)
        except ValueError as error:
            print("refused", "more" in str(error), "params" in str(error))
        else:
            raise AssertionError("a tree of another structure was read")
    with ocp.PyTreeCheckpointer() as tree:
        tree.save(folder / "tree", state)
        target = NamedSharding(mesh, P(None, "x"))
        kinds = jax.tree.map(lambda _: ocp.RestoreArgs(), state)
        kinds["params"]["w"] = ocp.ArrayRestoreArgs(sharding=target, dtype=jnp.float16)
        other = tree.restore(folder / "tree", restore_args=kinds)["params"]["w"]
        print("other", other.sharding.spec, other.dtype, float(other.sum()))
        np.testing.assert_array_equal(other, np.arange(64, dtype=np.float16).reshape(8, 8))
        assert other.sharding.is_equivalent_to(target, 2)
        assert {s.data.shape for s in other.addressable_shards} == {(8, 2)}
        print("metadata", tree.metadata(folder / "tree").item_metadata["params"]["w"].shape)
    options = ocp.CheckpointManagerOptions(max_to_keep=2, save_interval_steps=2)
    with ocp.CheckpointManager(folder / "many", options=options) as manager:
        for step in range(7):
            args = ocp.args.Fused(
                state=ocp.args.StandardSave({**state, "step": step}),
                notes=ocp.args.JsonSave({"loss": 1 / (step + 1)}),
            )
            manager.save(step, args=args, metrics=None)
        manager.wait_until_finished()
        print("steps", manager.all_steps(), manager.latest_step())
        wanted = {"state": ocp.args.StandardRestore(like), "notes": ocp.args.JsonRestore()}
        found = manager.restore(6, args=ocp.args.Fused(**wanted))
        print("found", int(found["state"]["step"]), found["notes"]["loss"])
        same(found["state"], {**state, "step": 6})
        assert manager.all_steps() == [4, 6] and found["notes"] == {"loss": 1 / 7}
    key = jax.random.key(3)
    with ocp.Checkpointer(ocp.JaxRandomKeyCheckpointHandler()) as keys:
        keys.save(folder / "key", args=ocp.args.JaxRandomKeySave(key))
        again = keys.restore(folder / "key", args=ocp.args.JaxRandomKeyRestore())
    assert again.dtype == key.dtype and jax.random.key_data(again).dtype == jnp.uint32
    np.testing.assert_array_equal(jax.random.key_data(again), jax.random.key_data(key))
    print("key", jax.random.key_data(again).tolist())
print("merged", ocp.merge_trees({"a": 1}, {"b": 2}))
