"""An asynchronous parameter server, in NumPy: no worker waits for another one.

You write two methods of the class `Server`. Everything else is there: the messages, the workers,
the model. `lab check server` tests what you have written; then `lab run server` trains with it.

A worker reads the parameters, computes the gradients of one batch, and sends them. Meanwhile the
other workers go on. So when its gradients arrive, the server may have made other updates. Their
number is the staleness of these gradients.
"""

import argparse
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection

import numpy as np

RATE = 0.05
REFUSED = 0
READ, LEAVE = -1, -2  # requests; any other number is the step at which the worker has read


class Server:
    """The parameters. Each worker has a thread here, which calls the two methods at any time.

    Attributes:
        parameters: The parameters of the model: a vector.
        most_staleness: Gradients with a higher staleness are refused; None: none is.
        global_step: The number of updates of all workers.
        lock: Only one thread at a time is inside `with self.lock:`; the others wait there.
    """

    def __init__(self, parameters, most_staleness=None):
        self.parameters = parameters
        self.most_staleness = most_staleness
        self.global_step = 0
        self.lock = threading.Lock()

    def read(self):
        """Return a tuple: the global step, and the parameters at this step.

        They are sent to the worker after this method has returned. By then, other threads may have
        updated the server, but what was read must not change.
        """
        # --- your code: both belong to one moment, so no update may come between them ---
        raise NotImplementedError("`read` in server.py has no code yet: what does a worker need?")
        # --- end ---

    def update(self, gradients, step_at_read):
        """Apply the gradients of one batch: subtract RATE times the gradients.

        Args:
            gradients: A vector of the shape of the parameters.
            step_at_read: What `read` returned to this worker before it computed them.

        Returns:
            A tuple: the global step that this update makes (the first one makes 1), and the
            staleness of the gradients. If they are refused: REFUSED and the staleness; nothing is
            changed.
        """
        # --- your code: count the staleness, refuse what is too old, then update. Another thread
        # must see all of this update or nothing of it. ---
        raise NotImplementedError("`update` in server.py has no code yet: what changes, and when?")
        # --- end ---


# ---- Messages: a number, and a vector or nothing. All are numbers, so no message can do harm.


def connection_of(stream):
    # Otherwise the kernel holds small messages back, for 40 ms or more.
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(stream.detach())


def send(connection, number, vector=()):
    connection.send_bytes(np.concatenate([[number], vector], dtype=float).tobytes())


def receive(connection):
    message = np.frombuffer(connection.recv_bytes())
    return int(message[0]), message[1:]


# ---- The server's side: it listens, and each worker gets a thread.


def serve(server, address, workers):
    """Serve until all workers have left; then send each of them the final parameters."""
    all_left = threading.Barrier(workers)
    with socket.create_server(address, backlog=workers) as listener:
        arrived = [connection_of(listener.accept()[0]) for _ in range(workers)]
    with ThreadPoolExecutor(workers) as threads:
        list(threads.map(partial(answer, server, all_left), arrived))


def answer(server, all_left, connection):
    """Answer the requests of one worker."""
    while (request := receive(connection))[0] != LEAVE:
        step_at_read, gradients = request
        if step_at_read == READ:
            send(connection, *server.read())
        else:
            step, staleness = server.update(gradients, step_at_read)
            send(connection, step, [staleness])
    all_left.wait()
    send(connection, *server.read())


# ---- The worker's side.


def train(address, task_index, updates, batch_size):
    """Make steps until all workers together have made `updates`; the first worker reports."""
    from lab.task.sdk import load_mnist  # here, because the tests need no images

    mnist = load_mnist()
    batches = mnist.train.batches(batch_size, [0, task_index])
    connection = connect(address)
    ages, local_step, total = [], 0, 0
    while True:
        send(connection, READ)
        step_at_read, parameters = receive(connection)
        if step_at_read >= updates:
            break
        loss, gradients = loss_and_gradients(parameters[:-1], *next(batches))
        # The last parameter is a probe: each update adds 1 to it. So it counts them.
        send(connection, step_at_read, np.append(gradients, -1 / RATE))
        global_step, (staleness,) = receive(connection)
        local_step += 1
        total += staleness
        if global_step != REFUSED:
            ages.append(global_step - 1 - step_at_read)  # the judge does not take your word for it
            if local_step == 1 or local_step % 100 == 0:
                print(f"local step {local_step}, global step {global_step}, loss {loss:.4f}")
    send(connection, LEAVE)
    global_step, parameters = receive(connection)
    if task_index == 0:
        report("refused", 1 - len(ages) / local_step)
        report("staleness", total / local_step)
        report("oldest", max(ages))
        report("lost", global_step - parameters[-1])
        report("accuracy", accuracy(parameters[:-1], mnist.test))


def report(name, value):
    """Print a result as lab reads it."""
    print(f"lab kind=result name={name} value={value:.6g}")


# ---- The model: softmax regression, from 784 pixels to 10 digits.


def loss_and_gradients(parameters, images, labels):
    """Return the mean loss of a batch, and its gradients as a vector like the parameters."""
    chances = softmax(logits(parameters, images))
    rows = np.arange(len(labels))
    loss = -np.log(chances[rows, labels]).mean()
    chances[rows, labels] -= 1
    errors = chances / len(labels)
    return loss, np.concatenate([(images.T @ errors).ravel(), errors.sum(axis=0)])


def logits(parameters, images):
    return images @ parameters[:-10].reshape(-1, 10) + parameters[-10:]


def softmax(values):
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def accuracy(parameters, examples):
    return (logits(parameters, examples.images).argmax(axis=1) == examples.labels).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job_name", default="worker")  # lab fills in these four
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--ps_hosts", default="localhost:2222")
    parser.add_argument("--worker_hosts", default="localhost:2223")
    parser.add_argument("--updates", type=int, default=20000)
    parser.add_argument("--batch_size", type=int, default=100)
    parser.add_argument("--most_staleness", type=int)
    given = parser.parse_args()
    host, port = given.ps_hosts.split(":")
    address = (host, int(port))
    if given.job_name == "ps":
        parameters = np.zeros(784 * 10 + 10 + 1)  # weights, biases and the probe
        server = Server(parameters, given.most_staleness)
        serve(server, address, len(given.worker_hosts.split(",")))
    else:
        train(address, given.task_index, given.updates, given.batch_size)


def connect(address):
    """Connect to the server; it may start later than this worker."""
    while True:
        try:
            return connection_of(socket.create_connection(address))
        except ConnectionRefusedError:
            time.sleep(0.1)


if __name__ == "__main__":
    main()
