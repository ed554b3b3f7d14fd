#!/bin/sh
# Installs the launchers that tests/clusters uses: Open MPI, MPICH, and Slurm with MUNGE. Needs
# apt-get and root, and does nothing without them; with both, it fails if the installation fails.
# No service is started: the tests run their own services, in their own folders.
set -eu

missing=
for name in mpirun.openmpi mpiexec.hydra slurmctld slurmd srun munged; do
  PATH="$PATH:/usr/sbin:/sbin" command -v "$name" >/dev/null || missing="$missing $name"
done
if [ -z "$missing" ]; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "Not installed:$missing; and apt-get or root is missing: tests that need them will be skipped."
  exit 0
fi
policy=/usr/sbin/policy-rc.d # packages run it before they start a service
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
