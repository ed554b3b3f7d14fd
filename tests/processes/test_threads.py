"""Threads that launch programs over several processes."""

from shardwise.testing import run_processes


def test_thread_guard_refuses_launches_of_other_threads():
    results = run_processes(
        """
        import threading
        import shardwise as sw, shardwise.numpy as jnp
        from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P
        x = jnp.arange(8.0, device=NamedSharding(Mesh(sw.devices(), ("x",)), P("x")))
        f = sw.jit(lambda x: x.sum())
        def other():
            try:
                f(x)
            except RuntimeError as error:
                print(error)
        with sw.thread_guard(True):
            thread = threading.Thread(target=other, name="loader")
            thread.start(), thread.join()
            print(float(f(x)))
        """,
        2, devices=2,
    )
    assert [r.out for r in results] == [
        "_lambda_: a program over several processes is launched by thread 'loader', while "
        "`thread_guard` holds for another one. All processes must launch the same programs in the "
        "same order, which threads do not guarantee. Launch it from the thread of the guard, or "
        "after it.\n28.0\n"
    ] * 2
