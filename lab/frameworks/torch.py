"""PyTorch: tasks find each other as `torchrun` arranges it for its processes.

Sources: "Environment Variables" of https://docs.pytorch.org/docs/stable/elastic/run.html, and
`torch/distributed/run.py`, which reads each option of `torchrun` from a variable with `PET_` too.
"""

from __future__ import annotations

import re
from typing import Final

from lab.frameworks.framework import Framework, Rank


def of_rank(rank: Rank) -> dict[str, str]:
    """Return the variables of a rank.

    A task sees only its own GPUs, so it is the only rank of its host. A task with several GPUs
    starts `torchrun`, which reads the variables with `PET_` and replaces the others.
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
        "NODE_RANK": index,
        "MASTER_ADDR": rank.host,
        "MASTER_PORT": port,
        "TORCHELASTIC_RUN_ID": rank.run,
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
    # As `torchrun` does: otherwise each task starts a thread for each CPU of the host.
    defaults={"OMP_NUM_THREADS": "1"},
    # Without them, Gloo and NCCL may take an interface that no other node reaches.
    interface_in=("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"),
    of_rank=of_rank,
    lost_peer=re.compile(
        r"Connection (?:closed|reset) by peer|recvValue failed|remote process exited"
    ),
    launcher="torch.distributed.run",
)
