"""Programs for XLA: modules, the partitioner, callbacks and foreign functions."""
