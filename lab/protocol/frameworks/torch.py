"""PyTorch: tasks find each other as `torchrun` arranges it for its processes.

Sources, of PyTorch 2.13: `elastic/agent/server/local_elastic_agent.py` in `torch/distributed` sets
the variables, and `run.py` there reads each option of `torchrun` from one with `PET_`, too.
"""

from __future__ import annotations

import re
from typing import Final

from lab.protocol.frameworks.framework import Framework, Rank


def of_rank(rank: Rank) -> dict[str, str]:
    """Return the variables of a rank.

    A task sees only its own GPUs, so it is the only rank of its host. A task with several GPUs
    starts `torchrun`, which reads the variables with `PET_` and replaces the others.

    `TORCHELASTIC_USE_AGENT_STORE` is not set: with it, rank 0 would expect that `torchrun` serves
    the store in which the ranks find each other.
    """
    index, size, port = str(rank.index), str(rank.size), str(rank.port)
    # The task's stream is that of local rank 0. The others' output is in files of the run.
    others = ",".join(f"{local}:3" for local in range(1, rank.gpus))
    elsewhere = {"PET_REDIRECTS": others, "PET_LOG_DIR": f"ranks/{index}"} if others else {}
    return {
        "RANK": index,
        "WORLD_SIZE": size,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": index,
        "GROUP_WORLD_SIZE": size,
        "NODE_RANK": index,
        "ROLE_NAME": "default",
        "ROLE_RANK": index,
        "ROLE_WORLD_SIZE": size,
        "MASTER_ADDR": rank.host,
        "MASTER_PORT": port,
        "TORCHELASTIC_RUN_ID": rank.run,
        "TORCHELASTIC_RESTART_COUNT": str(rank.attempt),
        "TORCHELASTIC_MAX_RESTARTS": str(rank.restarts),
        "PET_NNODES": size,
        "PET_NPROC_PER_NODE": str(max(1, rank.gpus)),
        "PET_NODE_RANK": index,
        "PET_MASTER_ADDR": rank.host,
        "PET_MASTER_PORT": port,
        **elsewhere,
    }


TORCH: Final = Framework(
    name="torch",
    title="PyTorch",
    modules=("torch", "lightning", "pytorch_lightning", "accelerate"),
    packages=("torch",),
    # As `torchrun` sets it.
    defaults={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"},
    # Without it, each process may start a thread for each CPU of the host.
    threads_in="OMP_NUM_THREADS",
    # Without them, Gloo and NCCL may take an interface that no other node reaches.
    interface_in=("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"),
    # Otherwise the rendezvous c10d publishes the FQDN, which no other host may resolve.
    address_in=("PET_LOCAL_ADDR",),
    of_rank=of_rank,
    lost_peer=re.compile(
        r"Connection (?:closed|reset) by peer|recvValue failed|remote process exited"
    ),
    launcher="torch.distributed.run",
)
