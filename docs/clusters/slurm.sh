#!/bin/bash
# A Slurm job: `sbatch slurm.sh`. Each task is a process; `initialize()` detects the cluster.
#
# With GPUs, request as many per node as there are tasks, all visible to each task: task n of a node
# uses GPU n. If Slurm binds one GPU to each task (--gpus-per-task), the task uses that one.
#
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
##SBATCH --gpus-per-node=4
#SBATCH --time=01:00:00

set -euo pipefail

# If a task fails, the others end and report why; --label separates their output.
srun --kill-on-bad-exit=1 --label python train.py
