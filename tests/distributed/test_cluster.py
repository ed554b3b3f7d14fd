"""What clusters report about a process, from recorded environments; arguments and variables win."""

import sys

import pytest

from shardwise._src.distributed import cluster, initialize_arguments
from shardwise._src.distributed.cluster import Place, Surroundings, detected, first_host, port_of
from tests.distributed import recorded


def here(env, *ancestors, full_name="vm"):
    above = [(100 + i, name) for i, name in enumerate(ancestors)]
    return Surroundings(env, lambda: above, lambda: full_name)


def found(env, *ancestors, method=None, full_name="vm"):
    return detected(method, here(env, *ancestors, full_name=full_name))


def resolve(
    env, *ancestors, address=None, count=None, index=None, devices=None, method=None, full_name="vm"
):
    return initialize_arguments.resolve(
        address, count, index, devices, method, here(env, *ancestors, full_name=full_name)
    )


def second_of_two(address):
    return Place(address, 2, 1, 2, 1, (1,))


# ------------------------------------------------------------------------------ each by itself


def test_slurm():
    assert found(recorded.SLURM) == ("slurm", second_of_two("vm:61001"))


def test_steps_of_one_job_do_not_share_a_port():
    ports = {found(recorded.SLURM | {"SLURM_STEP_ID": str(i)})[1].address for i in range(60)}
    assert len(ports) == 60


def test_a_step_of_slurm_over_several_hosts():
    env = recorded.SLURM | {
        "SLURM_JOB_ID": "81234",
        "SLURM_STEP_NODELIST": "gpu[03-07,12],cpu1",
        "SLURM_NODEID": "5",
        "SLURM_STEP_TASKS_PER_NODE": "2(x5),3,1",
        "SLURM_STEP_NUM_TASKS": "14",
        "SLURM_PROCID": "12",
        "SLURM_LOCALID": "2",
    }
    assert found(env) == ("slurm", Place("gpu03:62234", 14, 12, 3, 2, (2,)))


def test_a_step_of_slurm_with_fewer_tasks_than_the_job():
    env = recorded.SLURM_SMALLER_STEP | {"SLURM_NTASKS": "2"}
    assert found(env) == ("slurm", Place("vm:61002", 1, 0, 1, 0, (0,)))


def test_a_batch_script_of_slurm_is_no_task_of_it():
    assert found(recorded.SLURM_BATCH) == ("", Place())


@pytest.mark.parametrize(
    "nodes, first",
    [
        ("node001", "node001"),
        ("node001,host2", "node001"),
        ("node[001-0015],host2", "node001"),
        ("node[001,007-015],host2", "node001"),
        ("gpu[03-07,12],cpu1", "gpu03"),
        ("a[1-2]-ib[3,5]", "a1-ib3"),
        ("r[1,3]n[01-16]s,x", "r1n01s"),
        ("gpu-a.example.org", "gpu-a.example.org"),
    ],
)
def test_the_first_of_slurms_nodes(nodes, first):
    assert first_host(nodes) == first


@pytest.mark.parametrize("nodes", ["", ",", "[1-2", "a[1-2"])
def test_a_list_that_names_no_node(nodes):
    with pytest.raises(ValueError) as error:
        first_host(nodes)
    assert str(error.value) == (
        f"initialize: Slurm's list of nodes, {nodes!r}, does not name a host. Pass "
        "coordinator_address."
    )


def test_open_mpi_4():
    place = second_of_two(f"localhost:{port_of('477102081')}")
    assert found(recorded.OPEN_MPI_4) == ("ompi", place)


def test_open_mpi_5():
    place = second_of_two(f"localhost:{port_of('prterun-vm-1379@1')}")
    assert found(recorded.OPEN_MPI_5) == ("ompi", place)


@pytest.mark.parametrize(
    "change, host",
    [
        ({}, "192.0.2.2"),
        (
            {"OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1,10.108.0.1:34911"},
            "10.96.0.1",
        ),
        (
            {"OMPI_MCA_orte_hnp_uri": "1314521088.0;tcp6://[fe80::b9b,2620:10d::3000:2]:43370"},
            "[fe80::b9b]",
        ),
    ],
)
def test_open_mpi_4_over_several_hosts(change, host):
    env = recorded.OPEN_MPI_4 | {"OMPI_COMM_WORLD_SIZE": "4"} | change
    place = Place(f"{host}:{port_of('477102081')}", 4, 1, 2, 1, (1,))
    assert found(env) == ("ompi", place)


def test_open_mpi_5_over_several_hosts():
    env = recorded.OPEN_MPI_5 | {
        "OMPI_COMM_WORLD_SIZE": "4",
        "PMIX_NAMESPACE": "prterun-login-2-1379@1",
    }
    assert found(env)[1].address == f"login-2:{port_of('prterun-login-2-1379@1')}"


def test_mpich():
    ancestors = ("sh", "hydra_pmi_proxy", "mpiexec.hydra", "bash")
    place = second_of_two(f"localhost:{port_of('[101]')}")
    assert found(recorded.MPICH, *ancestors) == ("pmi", place)


def test_intel_mpi():
    port = port_of("7e040000-ebe2-f728-e360-0600368f9c1d")
    assert found(recorded.INTEL_MPI) == ("pmi", second_of_two(f"localhost:{port}"))


def test_pmi_over_several_hosts_does_not_say_where_the_coordinator_is():
    env = recorded.MPICH | {"PMI_SIZE": "4"}
    assert found(env) == ("pmi", Place(None, 4, 1, 2, 1, (1,)))
    with pytest.raises(ValueError) as error:
        initialize_arguments.complete(resolve(env))
    assert str(error.value) == (
        "initialize: coordinator_address: missing, and 'pmi' does not specify it. On several "
        "hosts, PMI does not specify where process 0 runs. Set SHARDWISE_COORDINATOR_ADDRESS, or "
        "install mpi4py and pass cluster_detection_method='mpi4py'. `shardwise doctor` shows what "
        "is detected."
    )


def test_pmi_over_several_hosts_of_slurm():
    env = recorded.MPICH_IN_SLURM | {"PMI_SIZE": "4", "SLURM_JOB_NODELIST": "n[7-8]"}
    assert found(env, "hydra_pmi_proxy", "slurmstepd")[1].address == "n7:61002"


def test_torchrun():
    assert found(recorded.TORCHRUN) == ("torchrun", second_of_two("localhost:41274"))


def test_torchrun_over_several_hosts():
    place = Place("10.0.0.1:29501", 4, 3, 2, 1, (1,))
    assert found(recorded.TORCHRUN_STATIC) == ("torchrun", place)
    env = recorded.TORCHRUN_STATIC | {"MASTER_ADDR": "fd00::1", "MASTER_PORT": "65535"}
    assert found(env)[1].address == "[fd00::1]:65534"


def test_an_indexed_job_of_kubernetes():
    name = "train-1.workers.default.svc.cluster.local"
    assert found(recorded.KUBERNETES, full_name=name) == (
        "k8s",
        Place("train-0.workers.default.svc.cluster.local:8476", None, 1, 1, 0),
    )
    place = resolve(recorded.KUBERNETES, full_name=name).place
    assert (place.count, place.index) == (4, 1)


def test_a_job_set_of_kubernetes():
    name = "big-workers-0-12.big.team.svc.cluster.local"
    env = recorded.KUBERNETES | {"HOSTNAME": "big-workers-0-12", "JOB_COMPLETION_INDEX": "12"}
    address = found(env, full_name=name)[1].address
    assert address == "big-workers-0-0.big.team.svc.cluster.local:8476"


def test_a_pod_that_lacks_what_only_its_template_can_say():
    env = {k: v for k, v in recorded.KUBERNETES.items() if k != "SHARDWISE_NUM_PROCESSES"}
    with pytest.raises(ValueError) as error:
        initialize_arguments.complete(resolve(env, full_name="train-1"))
    assert str(error.value) == (
        "initialize: coordinator_address, num_processes: missing, and 'k8s' does not specify them. "
        "A pod does not know the number of pods: set SHARDWISE_NUM_PROCESSES in the template to "
        "the job's `completions`. Other pods reach it through a headless service: set `subdomain` "
        "in the template to that service. See docs/clusters/kubernetes.yaml. `shardwise doctor` "
        "shows what is detected."
    )


def test_shardwise_launch():
    place = Place("127.0.0.1:40123", 2, 1, None, 1, None, True)
    assert found(recorded.LAUNCHED) == ("shardwise", place)


def test_mpi4py_is_used_only_if_it_is_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr(cluster.importlib.util, "find_spec", lambda name: asked.append(name))
    assert found({}) == ("", Place())
    with pytest.raises(ValueError) as error:
        found({}, method="mpi4py")
    assert asked == ["mpi4py"]
    assert str(error.value) == (
        "initialize: this process was not started by 'mpi4py': mpi4py is not installed."
    )


# ------------------------------------------------------------------------------ several at once


@pytest.mark.parametrize(
    "env, ancestors, name, count",
    [
        (recorded.OPEN_MPI_IN_SLURM, ("mpirun.openmpi", "bash", "slurmstepd"), "ompi", 2),
        (recorded.OPEN_MPI_IN_SLURM, ("sh", "orted", "slurmstepd"), "ompi", 2),
        (recorded.OPEN_MPI_IN_SLURM, (), "ompi", 2),
        (recorded.MPICH_IN_SLURM, ("hydra_pmi_proxy", "slurmstepd"), "pmi", 2),
        (recorded.MPICH_IN_SLURM, ("hydra_pmi_proxy", "mpiexec.hydra", "slurmstepd"), "pmi", 2),
        (recorded.MPICH_IN_SLURM, (), "pmi", 2),
        (recorded.SLURM_IN_OPEN_MPI, ("slurmstepd",), "slurm", 2),
        (recorded.SLURM_PMI2, ("slurmstepd",), "slurm", 2),
        (recorded.SLURM_PMI2, (), "slurm", 2),
        (recorded.SLURM | recorded.TORCHRUN, ("python", "slurmstepd"), "torchrun", 2),
        (recorded.SLURM | recorded.TORCHRUN_STATIC, ("torchrun", "slurmstepd"), "torchrun", 4),
        (recorded.KUBERNETES | recorded.OPEN_MPI_5, ("prted",), "ompi", 2),
        (recorded.KUBERNETES | recorded.TORCHRUN, ("torchrun",), "torchrun", 2),
        (recorded.SLURM | recorded.LAUNCHED, ("python", "slurmstepd"), "shardwise", 2),
    ],
)
def test_the_nearest_starter_counts(env, ancestors, name, count):
    cluster_name, place = found(env, *ancestors)
    assert (cluster_name, place.count) == (name, count)


@pytest.mark.parametrize("method, count", [("slurm", 1), ("pmi", 2)])
def test_a_method_overrides_which_of_them_counts(method, count):
    cluster_name, place = found(recorded.MPICH_IN_SLURM, "hydra_pmi_proxy", method=method)
    assert (cluster_name, place.count) == (method, count)
    assert found(recorded.MPICH_IN_SLURM, method="deactivate") == ("", Place())


def test_a_method_that_is_not_here():
    with pytest.raises(ValueError) as error:
        found(recorded.SLURM_BATCH, method="slurm")
    assert str(error.value) == (
        "initialize: this process was not started by 'slurm': the environment has no "
        "SLURM_STEP_NODELIST."
    )
    with pytest.raises(ValueError) as error:
        found(recorded.SLURM_PMI2, method="pmi")
    assert str(error.value) == (
        "initialize: this process was not started by 'pmi': its PMI belongs to Slurm."
    )


def test_a_method_that_there_is_not():
    with pytest.raises(ValueError) as error:
        found({}, method="slrum")
    assert str(error.value) == (
        "initialize: cluster_detection_method must be one of shardwise, torchrun, ompi, pmi, "
        "slurm, k8s, mpi4py, or 'deactivate'; got 'slrum'. Did you mean 'slurm'?"
    )


# -------------------------------------------------------------------------- devices of a process


@pytest.mark.parametrize(
    "shown, devices",
    [
        (None, (1,)),
        ("0,1", (1,)),
        ("0,1,2,3", (1,)),
        ("3", None),
        ("GPU-8a6d,GPU-91cf", (1,)),
        ("", None),
    ],
)
def test_each_process_has_a_device_of_its_own(shown, devices):
    """If the cluster shows each process one device only (`--gpus-per-task`), that one is used."""
    env = recorded.SLURM | ({} if shown is None else {"CUDA_VISIBLE_DEVICES": shown})
    assert found(env)[1].local_devices == devices


# ---------------------------------------------------------------------- arguments and variables


def test_each_argument_overrides_the_cluster():
    given = resolve(recorded.SLURM, address="10.0.0.1:1234")
    assert given.place == second_of_two("10.0.0.1:1234")
    assert given.sources == {
        "address": "argument",
        "count": "slurm",
        "index": "slurm",
        "local_devices": "slurm",
    }
    assert resolve(recorded.SLURM, count=5).place.count == 5
    assert resolve(recorded.SLURM, index=0).place.index == 0
    assert resolve(recorded.SLURM, devices=3).place.local_devices == (3,)
    assert resolve(recorded.SLURM, devices=[2, 3]).place.local_devices == (2, 3)


@pytest.mark.parametrize("prefix", ["SHARDWISE_", "JAX_"])
def test_each_variable_overrides_the_cluster(prefix):
    env = recorded.SLURM | {
        f"{prefix}COORDINATOR_ADDRESS": "10.0.0.1:1234",
        f"{prefix}LOCAL_DEVICE_IDS": "2,3",
    }
    given = resolve(env)
    assert given.place == Place("10.0.0.1:1234", 2, 1, 2, 1, (2, 3))
    assert given.sources == {
        "address": f"{prefix}COORDINATOR_ADDRESS",
        "count": "slurm",
        "index": "slurm",
        "local_devices": f"{prefix}LOCAL_DEVICE_IDS",
    }
    env = recorded.SLURM | {f"{prefix}NUM_PROCESSES": "7", f"{prefix}PROCESS_ID": "6"}
    place = resolve(env).place
    assert (place.count, place.index) == (7, 6)


def test_an_argument_goes_before_a_variable_and_ours_before_jaxs():
    env = {
        "SHARDWISE_NUM_PROCESSES": "3",
        "JAX_NUM_PROCESSES": "4",
        "JAX_PROCESS_ID": "2",
        "JAX_COORDINATOR_ADDRESS": "a:1",
    }
    assert resolve(env).place == Place("a:1", 3, 2)
    assert resolve(env, count=5, address="b:2").place == Place("b:2", 5, 2)


def test_empty_variables_are_none():
    assert resolve({"JAX_COORDINATOR_ADDRESS": "", "JAX_LOCAL_DEVICE_IDS": ""}).place == Place()


def test_a_variable_for_the_port_alone():
    env = recorded.SLURM | {"JAX_COORDINATOR_PORT": "4321"}
    given = resolve(env)
    assert given.place.address == "vm:4321"
    assert given.sources["address"] == "slurm with JAX_COORDINATOR_PORT"
    assert resolve(env, address="a:1").place.address == "a:1"


def test_the_launcher_is_not_heard_where_another_is_asked():
    env = recorded.SLURM | recorded.LAUNCHED
    assert resolve(env).cluster == "shardwise"
    assert resolve(env, method="slurm").place == second_of_two("vm:61001")
    # A single variable comes from the user who set it.
    env = recorded.SLURM | {"SHARDWISE_COORDINATOR_ADDRESS": "a:1"}
    assert resolve(env, method="slurm").place == second_of_two("a:1")


def test_another_address_is_not_where_the_launcher_started_a_coordinator():
    assert resolve(recorded.LAUNCHED).place.started
    assert not resolve(recorded.LAUNCHED, address="10.0.0.1:1234").place.started


def test_who_passes_all_still_gets_the_device_that_the_cluster_says():
    given = resolve(recorded.SLURM, address="a:1", count=2, index=1)
    assert given.place.local_devices == (1,)
    # These numbers differ from those of the cluster's processes.
    assert resolve(recorded.SLURM, address="a:1", count=4, index=1).place == Place("a:1", 4, 1)
    damaged = recorded.SLURM | {"SLURM_LOCALID": "?"}
    assert resolve(damaged, address="a:1", count=2, index=1).place == Place("a:1", 2, 1)
    off = resolve(recorded.SLURM, address="a:1", count=2, index=1, method="deactivate")
    assert off.place == Place("a:1", 2, 1)


# ------------------------------------------------------------------------------ what cannot be


def refused(env, **given):
    with pytest.raises((ValueError, TypeError)) as error:
        initialize_arguments.complete(resolve(env, **given))
    return str(error.value)


def test_nothing_is_known():
    assert refused({}) == (
        "initialize: coordinator_address, num_processes, process_id: missing, and no cluster was "
        "detected that specifies them. Pass the missing arguments, or start the program with "
        "`shardwise launch -n 4 program.py`. Known clusters: shardwise, torchrun, ompi, pmi, "
        "slurm, k8s, mpi4py. `shardwise doctor` shows what is detected."
    )


def test_numbers_that_contradict_each_other_say_whose_they_are():
    assert refused(recorded.SLURM, count=1) == (
        "initialize: process_id must be from 0 to num_processes - 1; got process_id=1 (by slurm) "
        "and num_processes=1 (as passed)."
    )
    assert refused({"JAX_PROCESS_ID": "-1", "JAX_NUM_PROCESSES": "2"}, address="a:1") == (
        "initialize: process_id must be from 0 to num_processes - 1; got process_id=-1 (by "
        "JAX_PROCESS_ID) and num_processes=2 (by JAX_NUM_PROCESSES)."
    )


def test_what_is_no_number():
    assert refused({}, count="2") == (
        "initialize: num_processes must be an integer; got '2' of type str."
    )
    assert refused({}, index=0.0) == (
        "initialize: process_id must be an integer; got 0.0 of type float."
    )
    assert refused({"JAX_NUM_PROCESSES": "two"}) == (
        "initialize: the environment variable JAX_NUM_PROCESSES must be an integer; got 'two'."
    )
    assert refused(recorded.SLURM | {"SLURM_PROCID": ""}) == (
        "initialize: the environment variable SLURM_PROCID must be an integer; got ''."
    )
    unset = {k: v for k, v in recorded.SLURM.items() if "TASKS" not in k}
    assert refused(unset) == (
        "initialize: the environment variable SLURM_STEP_NUM_TASKS or SLURM_NTASKS is not set, "
        "which this kind of cluster sets."
    )


def test_devices_that_cannot_be():
    assert refused({}, devices=[0, 0]) == (
        "initialize: local_device_ids must be distinct non-negative integers; got [0, 0]."
    )
    assert refused({}, devices="0,1") == (
        "initialize: local_device_ids must be integers; got '0,1'."
    )
    assert refused({"JAX_LOCAL_DEVICE_IDS": "0;1"}) == (
        "initialize: the environment variable JAX_LOCAL_DEVICE_IDS must be integers, as in '0,1'; "
        "got '0;1'."
    )


def test_the_index_of_a_partition():
    assert initialize_arguments.partition(None, None, {}) is None
    assert initialize_arguments.partition(3, None, {"JAX_PARTITION_INDEX": "1"}) == 3
    assert initialize_arguments.partition(None, None, {"JAX_PARTITION_INDEX": "1"}) == 1
    with pytest.warns(DeprecationWarning) as noted:
        assert initialize_arguments.partition(None, 2, {}) == 2
        assert initialize_arguments.partition(None, None, {"JAX_SLICE_INDEX": "4"}) == 4
    assert [str(w.message) for w in noted] == [
        "initialize: slice_index is an old name of partition_index, removed in 0.4.0.",
        "initialize: JAX_SLICE_INDEX is an old name of JAX_PARTITION_INDEX, removed in 0.4.0.",
    ]


def test_the_processes_above_this_one_are_found():
    above = Surroundings().ancestors()
    assert above and all(isinstance(pid, int) and name for pid, name in above)
    assert "psutil" in sys.modules
