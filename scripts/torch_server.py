"""The parameter server of `torch_async.py`: it holds the parameters, and answers the workers.

A request is one of the numbers READ, UPDATE and LEAVE. READ is answered by the global step and the
vector, which has all parameters and a probe. UPDATE is followed by gradients, and is answered by
the global step after their update (0: all steps are made) and by their staleness.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Lock

import torch
import torch.distributed as dist

READ, UPDATE, LEAVE = range(3)
SERVER, CHIEF = 0, 1  # ranks; the other workers follow


class Server:
    """The parameters, and a thread for each worker; the lock lets one thread in at a time.

    Attributes:
        vector: All parameters, and the probe.
        rate: Returns the learning rate for the gradients of parameters of a global step.
        all_steps: The number of updates.
    """

    def __init__(self, vector, rate, all_steps):
        self.vector, self.rate, self.all_steps = vector, rate, all_steps
        self.lock, self.global_step = Lock(), 0

    def serve_all(self, workers):
        """Serve until all workers have left; then send the final parameters to the chief."""
        with ThreadPoolExecutor(workers) as threads:
            list(threads.map(self.serve, range(CHIEF, CHIEF + workers)))
        self.send_parameters(CHIEF)

    def serve(self, worker):
        """Answer the requests of one worker until it leaves, or is lost: the others go on."""
        with suppress(RuntimeError):
            self.answer_all(worker)

    def answer_all(self, worker):
        """Answer the requests of one worker until it leaves."""
        request, gradients = torch.tensor([READ]), torch.empty_like(self.vector)
        step_at_read = 0
        while True:
            dist.recv(request, worker)
            if request == READ:
                step_at_read = self.send_parameters(worker)
            elif request == UPDATE:
                dist.recv(gradients, worker)
                with self.lock:
                    answer = self.apply(gradients, step_at_read)
                dist.send(torch.tensor(answer), worker)
            else:
                return

    def send_parameters(self, worker):
        """Send the global step and the parameters of the same moment; return the step."""
        with self.lock:
            step, copy = self.global_step, self.vector.clone()
        dist.send(torch.tensor([step]), worker)
        dist.send(copy, worker)
        return step

    def apply(self, gradients, step_at_read):
        """Update the parameters; the global step counts the updates of all workers."""
        if self.global_step == self.all_steps:
            return 0, 0
        rate = self.rate(step_at_read)
        gradients[-1] = -1 / rate  # The gradient of the probe: every update adds one to it.
        self.vector.sub_(gradients, alpha=rate)
        self.global_step += 1
        return self.global_step, self.global_step - 1 - step_at_read
