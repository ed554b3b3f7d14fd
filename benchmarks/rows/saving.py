"""Checkpoints of an array over 8 devices, compared with `dd` on the same disk in the same run.

The first column is the time in which dd writes and syncs the same number of bytes, or reads them
when they are not in memory; for `peak` rows, the bytes of a shard; for many arrays, the limit. The
second column is always shardwise.
"""

from __future__ import annotations

from benchmarks.rows.processes import fresh_process
from benchmarks.runner import Row

# 1.25 of dd's seconds is 0.8 of its rate.
ROWS = (
    Row("saving.save_512MiB", 1.25, fresh_process("save_512"), kind="value", rounds=5),
    Row("saving.restore_512MiB", 1.25, fresh_process("restore_512"), kind="value", rounds=5),
    Row("saving.save_4GiB", 1.25, fresh_process("save_4096"), kind="value", rounds=3),
    Row("saving.restore_4GiB", 1.25, fresh_process("restore_4096"), kind="value", rounds=3),
    Row("saving.save_2000_arrays", 1.0, fresh_process("save_many"), kind="value", rounds=3),
    Row("saving.save_peak", 1.3, fresh_process("save_peak"), kind="value", unit="B", rounds=3),
    Row(
        "saving.restore_peak", 1.3, fresh_process("restore_peak"), kind="value", unit="B", rounds=3
    ),
)
