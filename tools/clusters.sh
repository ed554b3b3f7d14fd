#!/bin/sh
# Installs what the tests in tests/clusters start programs with: Open MPI, MPICH, and Slurm with
# MUNGE. Needs apt-get and root, and does nothing without them; where it has both, a failure is a
# failure. No service is started: the tests run their own, in folders of their own.
set -eu

missing=
for name in mpirun.openmpi mpiexec.hydra slurmctld slurmd srun munged; do
  PATH="$PATH:/usr/sbin:/sbin" command -v "$name" >/dev/null || missing="$missing $name"
done
if [ -z "$missing" ]; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "Not here:$missing; and no apt-get or not root: tests that need them will be skipped."
  exit 0
fi
policy=/usr/sbin/policy-rc.d # what packages ask before they start a service
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
  openmpi-bin mpich slurmctld slurmd slurm-client munge >/dev/null
for name in mpirun.openmpi mpiexec.hydra slurmctld slurmd srun munged; do
  PATH="$PATH:/usr/sbin:/sbin" command -v "$name"
done
