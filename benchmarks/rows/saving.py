"""Checkpoints of an array over 8 devices, compared with `dd` on the same disk in the same run.

The first column is the time in which dd writes and syncs the same number of bytes, or reads them
when they are not in memory; for `peak` rows, the bytes of a shard; for many arrays, the limit. The
second column is always shardwise.
"""

from __future__ import annotations

from benchmarks.rows.processes import child_row

# 1.25 of dd's seconds is 0.8 of its rate.
ROWS = (
    child_row("saving.save_512MiB", 1.25, "save_512", rounds=5),
    child_row("saving.restore_512MiB", 1.25, "restore_512", rounds=5),
    child_row("saving.save_4GiB", 1.25, "save_4096", rounds=3),
    child_row("saving.restore_4GiB", 1.25, "restore_4096", rounds=3),
    # One round: for some minutes after files were removed, ext4 takes longer to create others.
    child_row("saving.save_10000_arrays", 1.0, "save_many", rounds=1),
    child_row("saving.save_peak", 1.3, "save_peak", unit="B", rounds=3),
    child_row("saving.restore_peak", 1.3, "restore_peak", unit="B", rounds=3),
)
