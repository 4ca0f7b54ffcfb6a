"""Which rank a process is under srun and torchrun, and how the ranks of one start find each other."""

import os
import socket
import threading
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from repro.cluster import devices, door, environment, start, threads
from repro.cluster.devices import device_of, take
from repro.cluster.door import knock, open_door
from repro.cluster.environment import (
    FIRST_PORT,
    PORTS,
    Place,
    discover,
    find_place,
    first_host,
    own_address,
    ports,
    tasks_per_node,
)
from repro.config.compose import compose
from repro.config.schema import ConfigError, RunError
from repro.train import possible

# What srun 22.05 sets on rank 5 of a step of 6 tasks on two machines (the part that matters).
SRUN = {
    "SLURM_CLUSTER_NAME": "c",
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "2",
    "SLURM_NTASKS": "6",
    "SLURM_STEP_NUM_TASKS": "6",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "3(x2)",
    "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
}


def test_srun_place():
    place = discover(SRUN)
    assert place == Place(5, 6, 2, 3, "127.0.0.1", ports(77, 0), "c/77.0.0")
    assert discover(SRUN | {"SLURM_RESTART_COUNT": "1"}).token != place.token


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"SLURM_STEP_TASKS_PER_NODE": None}, "SLURM_STEP_TASKS_PER_NODE is not set"),
        ({"SLURM_NODEID": "2"}, "SLURM_NODEID is '2'"),
        ({"SLURM_STEP_TASKS_PER_NODE": "3"}, "SLURM_NODEID is '1'"),
    ],
)
def test_half_of_what_srun_sets_is_refused(said: dict[str, str | None], why: str) -> None:
    env = {key: value for key, value in (SRUN | said).items() if value is not None}
    with pytest.raises(ConfigError, match=why):
        discover(env)


def test_an_array_without_its_task_is_refused() -> None:
    assert environment.job({"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"}) == "7_2"
    with pytest.raises(ConfigError, match="SLURM_ARRAY_TASK_ID is not set"):
        environment.job({"SLURM_ARRAY_JOB_ID": "7"})


def test_a_task_that_slurm_binds_to_its_own_cores_does_not_share_them_again(monkeypatch):
    """Four tasks of 8 cores each took 2 threads."""
    (config,) = compose(["nodes=4", "cluster=environment"])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    for name, value in {"RANK": 0, "WORLD_SIZE": 4, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 4, "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    assert threads.of_each(config, 4) == 2, "all tasks see all cores"
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "8")
    assert threads.of_each(config, 4) == 8
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "16")
    assert threads.of_each(config, 4) == 8, "no more than it has"
    assert threads.of_each(replace(config, threads=3), 4) == 3
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert threads.of_each(config, 4) == 2, "the task is torchrun, whose ranks share its cores"


def test_the_task_of_a_run_on_one_node_takes_what_slurm_gave_it(monkeypatch):
    """It took all cores that it saw, and its bits followed from them."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "2")
    one, two = compose(["nodes=1,2"])
    assert (threads.of_each(one, 1), threads.of_each(two, 2)) == (2, 4)


def test_batch_script_and_one_task_steps_are_no_environment():
    batch = {key: value for key, value in SRUN.items() if not key.startswith("SLURM_STEP")}
    assert discover({}) is None
    assert discover(batch) is None
    assert discover(SRUN | {"SLURM_STEP_NUM_TASKS": "1"}) is None


def test_torchrun_place():
    env = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    with pytest.raises(ConfigError, match="MASTER_PORT is not set.*torchrun"):  # as a wrapper of mpirun may have it
        discover(SRUN | env)
    env |= {"MASTER_PORT": "29500"}
    with pytest.raises(ConfigError, match="MASTER_ADDR is not set.*torchrun"):
        discover(SRUN | env)
    env |= {"MASTER_ADDR": "127.0.0.1"}
    assert discover(SRUN | env) == Place(3, 4, 1, 2)
    with pytest.raises(ConfigError, match="LOCAL_RANK is not set.*torchrun"):
        discover({"RANK": "3", "WORLD_SIZE": "4"})
    with pytest.raises(ConfigError, match="WORLD_SIZE is 'many'"):
        discover(env | {"WORLD_SIZE": "many"})


def test_ranks_of_srun_with_its_numbers_copied_where_torchrun_has_its_own_are_srun_s() -> None:
    """Enroot's hook for PyTorch copies them, and `export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS` does."""
    copied = {"RANK": "5", "WORLD_SIZE": "6", "LOCAL_RANK": "2", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
    assert discover(SRUN | copied) == discover(SRUN | {"RANK": "0", "WORLD_SIZE": "6"}) == discover(SRUN)
    assert discover(SRUN | copied | {"SLURM_STEP_NUM_TASKS": "1", "RANK": "0", "WORLD_SIZE": "1"}) is None
    for torchrun in ({"TORCHELASTIC_RUN_ID": "none"}, {"SLURM_STEP_NUM_TASKS": "1"}):
        with pytest.raises(ConfigError, match="LOCAL_WORLD_SIZE is not set.*torchrun"):
            discover(SRUN | copied | torchrun)


def test_a_step_is_what_the_ranks_of_one_start_have_in_common() -> None:
    torchrun = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "n1"}
    other = {"SLURM_STEP_ID": "7"}
    assert environment.step(SRUN) == environment.step(SRUN | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0"})
    assert len({environment.step(SRUN | more) for more in ({}, other, {"SLURM_RESTART_COUNT": "9"}, torchrun)}) == 4
    assert environment.step({}) is environment.step(SRUN | {"SLURM_STEP_NUM_TASKS": "1"}) is None
    assert environment.step({"RANK": "0", "SLURM_STEP_NUM_TASKS": "many"}) is None


def test_a_lab_is_refused_to_ranks_that_a_launcher_started(monkeypatch):
    """They would send over no shaped link, and what that takes would be said to be measured on one."""
    (asked,) = compose(["cluster=lab", "nodes=4"])
    assert find_place(asked) is None
    started = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4"}
    for name, value in (started | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="a launcher started 4; leave torchrun or srun out"):
        find_place(asked)
    assert find_place(compose(["nodes=4"])[0]) == Place(3, 4, 3, 4)


@pytest.mark.parametrize(
    "nodelist, first",
    [
        ("n1", "n1"),
        ("n1,n2", "n1"),
        ("n[1-4]", "n1"),
        ("gpu[003-4,7],m1", "gpu003"),
        ("gpu[7,9],m1", "gpu7"),
        ("r[1-2]c[03-04]", "r1c03"),
        ("a-b[2].x.org,c", "a-b2.x.org"),
    ],
)
def test_first_host(nodelist, first):
    assert first_host(nodelist) == first


def test_tasks_per_node():
    assert tasks_per_node("3,2(x2),1") == [3, 2, 2, 1]


def test_ports_stay_in_range_and_neighbouring_jobs_begin_apart():
    everyone = [ports(job, 0) for job in range(1, 2000)]
    assert all(FIRST_PORT <= port < FIRST_PORT + PORTS for one in everyone for port in one)
    assert all(len(set(one)) == len(one) for one in everyone)
    starts = [one[0] for one in everyone[:400]]
    assert len(set(starts)) == len(starts)


def meet(place: Place, timeout_s: float = 20) -> list:
    """Join `place.size` ranks at once; returns what each read from the store under a key set by rank 0."""
    seen: list = [None] * place.size

    def body(rank: int) -> None:
        store = door.store(replace(place, rank=rank), timeout_s)
        if rank == 0:
            store.set("who", place.token)
        seen[rank] = (store, store.get("who").decode())

    threads = [threading.Thread(target=body, args=(rank,)) for rank in range(place.size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [who for _, who in seen]


def test_jobs_with_the_same_ports_do_not_mix():
    """Four starts at once on one machine, all with one and the same sequence of ports."""
    results: dict[str, list] = {}
    places = [Place(0, 3, 0, 3, "127.0.0.1", ports(4242, 0), f"c/{job}.0.0") for job in range(4)]
    threads = [threading.Thread(target=lambda p=place: results.update({p.token: meet(p)})) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {place.token: [place.token] * 3 for place in places}


def test_a_taken_port_is_passed_over():
    """The first port never says a word, the second speaks of other things."""
    sequence = ports(31337, 1)
    with socket.create_server(("", sequence[0])), socket.create_server(("", sequence[1])) as chatty:

        def talk() -> None:
            with chatty.accept()[0] as wire:
                wire.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        threading.Thread(target=talk, daemon=True).start()
        place = Place(0, 2, 0, 2, "127.0.0.1", sequence, "c/31337.1.0")
        assert meet(place) == [place.token] * 2


def test_a_rank_that_gave_up_behind_silent_strangers_finds_the_door_open_when_it_comes_again():
    """It was counted as come, though nobody heard the answer, and the door closed: the run never started."""
    place = Place(0, 2, 0, 2, "127.0.0.1", ports(5150, 3), "c/5150.3.0")
    port = open_door(place, 4321, 10)
    with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
        assert knock(replace(place, rank=1, ports=(port,)), 10) == 4321


def test_nobody_there_is_an_error_in_bounded_time():
    place = Place(1, 2, 1, 2, "127.0.0.1", ports(999, 9), "c/999.9.0")
    with pytest.raises(RunError, match="rank 1 did not find rank 0 on 127.0.0.1.*firewall"):
        knock(place, 0.5)


def test_an_address_that_is_another_machines_is_not_this_ones(monkeypatch):
    """A machine's name may lead to the router before it: gloo does without, and the watch on links ended the run."""
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "192.0.2.1")
    assert own_address() == ""


def test_a_rank_without_a_gpu_beside_others_that_have_one_is_named():
    """All took gloo without a word, and waited for the processor of a machine whose driver was broken."""
    store = dist.HashStore()
    store.set("gpu/0", "GPU-1")
    store.set("host/0", "n1")
    with pytest.raises(RunError, match="rank 1 on .* has no GPU, and others have: leave .* out, or type device=cpu"):
        devices.own_gpus(store, Place(1, 2, 0, 1), torch.device("cpu"))
    store.set("gpu/0", "")
    assert not devices.own_gpus(store, Place(1, 2, 0, 1), torch.device("cpu"))


def test_ranks_with_other_data_meet_all_the_same():
    """So that they are told; by their folders' names they waited half an hour for each other."""
    mine, other = (compose(words)[0] for words in ([], ["data.fingerprint=0123456789ab"]))
    assert start._name(mine) == start._name(other) and mine.folder != other.folder
    for words in (["data.root=other"], ["results=other"], ["seed=1"], ["experiment=momentum", "seed=0", "nodes=4"]):
        assert start._name(compose(words)[0]) != start._name(mine), "one run would read another's keys"


def test_the_lab_takes_no_gpu(monkeypatch):
    """Its links are shaped for what CPUs hold: NCCL might go around them."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    place = Place(0, 2, 0, 2)
    assert device_of(compose(["cluster=lab"])[0], place).type == "cpu"
    with pytest.raises(ConfigError, match="leave device out, or type cluster=processes"):
        possible.check(compose(["cluster=lab", "device=cuda"])[0])  # before any folder is made


def test_ranks_of_a_machine_take_its_gpus_in_turn_and_float32_is_float32(monkeypatch):
    """cuDNN multiplies float32 with 10 bits unless it is told not to."""
    taken = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.set_device", taken.append)
    (config,) = compose(["nodes=4"])
    devices = [device_of(config, Place(rank, 4, rank, 4)) for rank in range(4)]
    assert [device.index for device in devices] == [0, 1, 0, 1]
    for name in ("allow_tf32", "deterministic"):
        monkeypatch.setattr(torch.backends.cudnn, name, name == "allow_tf32")
    take(devices[1])
    assert (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic) == (False, True)
    assert taken == [devices[1]]
