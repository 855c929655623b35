"""The task agent: it starts, watches, records and ends the training program of one task.

To follow a run, read these modules in this order::

    agent            the process of the agent: it takes one request after the other
    execution        one run of one task; it polls, and applies these decisions:
    starts           - when the program may start, train, and start again
    outcomes         - how the task ends
    ending           - which signal ends the program, and when
    program          one start of the program, as a child or by a fork
    output           its pipe and its files; `output_parser` makes records of its lines
    own_status       the status of the task, which the other agents and the client read
    fault_injection  the faults that the user requested

Others serve an environment without a client (`autorun`), a job of Slurm (`slurm`), the ranks of
Horovod (`ring`), and processes that import TensorFlow once (`forkserver`, `fork_client`).
"""
