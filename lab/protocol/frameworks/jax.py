"""JAX: tasks find each other as Open MPI arranges it for its processes.

JAX reads no variables for the number of processes and for their ids, but it recognizes those of
Open MPI before those of Slurm. Programs for Kubeflow read its variables themselves. Sources:
`distributed.py` and `clusters/ompi_cluster.py` of `jax/_src` in JAX 0.10.2;
`pkg/runtime/framework/plugins/jax/jax.go` of kubeflow/trainer; `pkg/controller.v1/jax/envvar.go` of
kubeflow/training-operator, whose names have no `JAX_`.
"""

from __future__ import annotations

import re
from typing import Final

from lab.protocol.frameworks.framework import Framework, Rank


def of_rank(rank: Rank) -> dict[str, str]:
    """Return the variables of a rank, with which `jax.distributed.initialize()` needs no arguments.

    A task sees only its own GPUs, so it is the only rank of its host and takes all of them.
    """
    address, port = f"{rank.host}:{rank.port}", str(rank.port)
    index, size = str(rank.index), str(rank.size)
    gpus = {"JAX_LOCAL_DEVICE_IDS": ",".join(map(str, range(rank.gpus)))} if rank.gpus else {}
    return {
        "JAX_COORDINATOR_ADDRESS": address,
        "JAX_COORDINATOR_PORT": port,
        "JAX_NUM_PROCESSES": size,
        "JAX_PROCESS_ID": index,
        "COORDINATOR_ADDRESS": rank.host,
        "COORDINATOR_PORT": port,
        "NUM_PROCESSES": size,
        "PROCESS_ID": index,
        # JAX takes the address from the variable above. This one shows that it is Open MPI.
        "OMPI_MCA_orte_hnp_uri": f"0.0;tcp://{address}",
        "OMPI_COMM_WORLD_SIZE": size,
        "OMPI_COMM_WORLD_RANK": index,
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        **gpus,
    }


JAX: Final = Framework(
    name="jax",
    title="JAX",
    modules=("jax", "flax", "optax"),
    packages=("jax",),
    # As for TensorFlow: otherwise a process takes three quarters of a GPU's memory.
    defaults={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    interface_in=("NCCL_SOCKET_IFNAME",),
    of_rank=of_rank,
    lost_peer=re.compile(
        r"Connection (?:closed|reset) by peer|heartbeat timeout|coordination service"
    ),
)
