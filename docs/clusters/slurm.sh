#!/bin/bash
# A job of Slurm: `sbatch slurm.sh`. Each task is a process; `initialize()` finds all that it needs.
#
# With GPUs, ask for as many per node as there are tasks, and leave all visible to each task: task n
# of a node takes GPU n. Where Slurm binds one to each task (--gpus-per-task), it takes that.
#
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
##SBATCH --gpus-per-node=4
#SBATCH --time=01:00:00

set -euo pipefail

# A task that fails ends the others. They say why: keep their output apart.
srun --kill-on-bad-exit=1 --label python train.py
