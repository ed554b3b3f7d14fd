"""Environments of cluster processes, without the variables that are irrelevant here.

Slurm, Open MPI, MPICH and Intel MPI are as recorded in process 1 of 2 on a host named vm;
torchrun and Kubernetes follow their sources and documentation.
"""

from __future__ import annotations


def env(text: str) -> dict[str, str]:
    return dict(line.strip().split("=", 1) for line in text.strip().splitlines())


# srun -n 2, Slurm 22.05
SLURM = env("""
    SLURM_GTIDS=0,1
    SLURM_JOB_ID=1
    SLURM_JOB_NODELIST=vm
    SLURM_JOB_NUM_NODES=1
    SLURM_LOCALID=1
    SLURM_NODEID=0
    SLURM_NTASKS=2
    SLURM_PROCID=1
    SLURM_STEP_ID=0
    SLURM_STEP_NODELIST=vm
    SLURM_STEP_NUM_NODES=1
    SLURM_STEP_NUM_TASKS=2
    SLURM_STEP_TASKS_PER_NODE=2
    SLURM_TASKS_PER_NODE=2
    SLURMD_NODENAME=vm
""")

# A batch script with `#SBATCH -n 2`: it runs once, and is neither of the two tasks itself.
SLURM_BATCH = env("""
    SLURM_GTIDS=0
    SLURM_JOB_ID=2
    SLURM_JOB_NODELIST=vm
    SLURM_LOCALID=0
    SLURM_NODEID=0
    SLURM_NTASKS=2
    SLURM_PROCID=0
    SLURM_TASKS_PER_NODE=2
""")

# srun -n 1 in that script
SLURM_SMALLER_STEP = SLURM_BATCH | env("""
    SLURM_NTASKS=1
    SLURM_STEP_ID=0
    SLURM_STEP_NODELIST=vm
    SLURM_STEP_NUM_TASKS=1
    SLURM_STEP_TASKS_PER_NODE=1
    SLURM_TASKS_PER_NODE=1
""")

# srun -n 2 --mpi=pmi2
SLURM_PMI2 = SLURM | env("""
    PMI_FD=13
    PMI_JOBID=1.0
    PMI_RANK=1
    PMI_SIZE=2
""")

# mpirun -n 2, Open MPI 4.1.4
OPEN_MPI_4 = env("""
    OMPI_COMM_WORLD_LOCAL_RANK=1
    OMPI_COMM_WORLD_LOCAL_SIZE=2
    OMPI_COMM_WORLD_NODE_RANK=1
    OMPI_COMM_WORLD_RANK=1
    OMPI_COMM_WORLD_SIZE=2
    OMPI_MCA_ess_base_jobid=477102081
    OMPI_MCA_ess_base_vpid=1
    OMPI_MCA_orte_hnp_uri=477102080.0;tcp://192.0.2.2:58183;tcp6://[fd00::2]:34243
    OMPI_UNIVERSE_SIZE=2
    PMIX_NAMESPACE=477102081
    PMIX_RANK=1
    PMIX_VERSION=4.2.2rc2
""")

# mpirun -n 2, Open MPI 5.0.11
OPEN_MPI_5 = env("""
    OMPI_COMM_WORLD_LOCAL_RANK=1
    OMPI_COMM_WORLD_LOCAL_SIZE=2
    OMPI_COMM_WORLD_NODE_RANK=1
    OMPI_COMM_WORLD_RANK=1
    OMPI_COMM_WORLD_SIZE=2
    OMPI_UNIVERSE_SIZE=2
    OMPI_VERSION=5.0.11
    PMIX_HOSTNAME=vm
    PMIX_NAMESPACE=prterun-vm-1379@1
    PMIX_SERVER_URI4=prterun-vm-1379@0.0;tcp4://127.0.0.1:57977
    PRTE_LAUNCHED=1
""")

# mpiexec.hydra -n 2, MPICH 4.0.2
MPICH = env("""
    HYDI_CONTROL_FD=7
    MPIR_CVAR_CH3_INTERFACE_HOSTNAME=vm
    MPI_LOCALNRANKS=2
    MPI_LOCALRANKID=1
    PMI_FD=8
    PMI_RANK=1
    PMI_SIZE=2
""")

# mpiexec.hydra -n 2, Intel MPI 2021.18
INTEL_MPI = env("""
    HYDRA_BSTRAP_LOCALHOST=vm
    I_MPI_HYDRA_UUID=7e040000-ebe2-f728-e360-0600368f9c1d
    MPI_LOCALNRANKS=2
    MPI_LOCALRANKID=1
    PMI_FD=11
    PMI_RANK=1
    PMI_SIZE=2
""")

# mpirun and mpiexec.hydra in the batch script; Hydra starts its proxies as a step of one task.
OPEN_MPI_IN_SLURM = SLURM_BATCH | OPEN_MPI_4
MPICH_IN_SLURM = SLURM_SMALLER_STEP | MPICH

# srun -n 2 in a script of mpirun -n 1
SLURM_IN_OPEN_MPI = (
    SLURM
    | OPEN_MPI_4
    | env("""
    OMPI_COMM_WORLD_LOCAL_RANK=0
    OMPI_COMM_WORLD_LOCAL_SIZE=1
    OMPI_COMM_WORLD_RANK=0
    OMPI_COMM_WORLD_SIZE=1
""")
)

# torchrun --standalone --nproc-per-node 2
TORCHRUN = env("""
    GROUP_RANK=0
    GROUP_WORLD_SIZE=1
    LOCAL_RANK=1
    LOCAL_WORLD_SIZE=2
    MASTER_ADDR=localhost
    MASTER_PORT=41273
    RANK=1
    ROLE_NAME=default
    ROLE_RANK=1
    ROLE_WORLD_SIZE=2
    TORCHELASTIC_MAX_RESTARTS=0
    TORCHELASTIC_RESTART_COUNT=0
    TORCHELASTIC_RUN_ID=0d3d1a1e-4b0e-4a5e-8a3c-2d5f3b5f6e1f
    TORCHELASTIC_USE_AGENT_STORE=True
    TORCH_NCCL_ASYNC_ERROR_HANDLING=1
    WORLD_SIZE=2
""")

# torchrun --nnodes 2 --nproc-per-node 2 --node-rank 1 --master-addr 10.0.0.1 --master-port 29500
TORCHRUN_STATIC = TORCHRUN | env("""
    GROUP_RANK=1
    GROUP_WORLD_SIZE=2
    MASTER_ADDR=10.0.0.1
    MASTER_PORT=29500
    RANK=3
    ROLE_RANK=3
    ROLE_WORLD_SIZE=4
    TORCHELASTIC_RUN_ID=none
    WORLD_SIZE=4
""")

# A pod of an Indexed Job; the names are from docs/clusters/kubernetes.yaml.
KUBERNETES = env("""
    HOSTNAME=train-1
    JOB_COMPLETION_INDEX=1
    KUBERNETES_PORT=tcp://10.96.0.1:443
    KUBERNETES_SERVICE_HOST=10.96.0.1
    KUBERNETES_SERVICE_PORT=443
    SHARDWISE_NUM_PROCESSES=4
""")

# shardwise launch -n 2
LAUNCHED = env("""
    SHARDWISE_COORDINATOR_ADDRESS=127.0.0.1:40123
    SHARDWISE_COORDINATOR_STARTED=1
    SHARDWISE_LOCAL_PROCESS_ID=1
    SHARDWISE_NUM_PROCESSES=2
    SHARDWISE_PROCESS_ID=1
""")
