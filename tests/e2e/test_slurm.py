"""The lab on a real Slurm: a controller and three nodes on this host (`make test-slurm`)."""

from __future__ import annotations

from tests.slurm import NODES, Slurm

SHOW = 'echo "$SLURMD_NODENAME $SLURM_PROCID ${CUDA_VISIBLE_DEVICES:-none}"'


def test_a_job_runs_on_all_nodes_with_its_gpus(slurm: Slurm) -> None:
    lines = slurm.run("srun", "--nodes=3", "--gpus-per-node=2", "sh", "-c", SHOW).splitlines()
    assert sorted(lines) == [f"{node} {rank} 0,1" for rank, node in enumerate(NODES)]


def test_a_heterogeneous_job_gives_gpus_only_to_its_second_part(slurm: Slurm) -> None:
    ps = ("--nodes=1", "--het-group=0")
    worker = ("--nodes=2", "--gpus-per-node=1", "--het-group=1")
    parts = (*ps[:1], ":", *worker[:2])
    printed = slurm.run(
        *("salloc", "--quiet", *parts),
        *("srun", *ps, "sh", "-c", SHOW, ":", *worker, "sh", "-c", SHOW),
    )
    gpus = {line.split()[1]: line.split()[2] for line in printed.splitlines()}
    assert gpus == {"0": "none", "1": "0", "2": "0"}
