"""Threads that do the same at the same time."""

import threading


def at_once(make, count=4):
    """The results of `make()` in several threads that start together."""
    made = [None] * count
    gate = threading.Barrier(count)

    def work(i):
        gate.wait()
        made[i] = make()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return made
