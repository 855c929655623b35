"""Ranks for tests: threads of one process that exchange tensors as `torch.distributed` does.

Like those of PyTorch's Gloo, a `send` returns only when the other rank has received the tensor,
however small it is, and `isend` keeps no copy: the tensor must not change before `wait` returns.
But here a mistake ends the test at once, with a hint: ranks that wait for each other forever, a
tensor that changes too early, a size that does not fit.
"""

import threading

import torch

PATIENCE = 3.0
"""Seconds without progress after which ranks with threads of their own are said to be stuck."""


class RankError(AssertionError):
    """What the ranks do wrong, as a hint."""


class _EndedError(Exception):
    """Ends a thread that waits, because another one has failed."""


def run(ranks, function, *arguments):
    """Call `function(group, *arguments)` on each rank; return all results, and the bytes sent.

    Both are lists by rank. `group` is a `Group`, a rank's place among all.
    """
    network = _Network(ranks)
    groups = [Group(network, rank) for rank in range(ranks)]
    results = [None] * ranks

    def call(group):
        try:
            results[group.rank] = function(group, *arguments)
            group.check_waited()
        except Exception as error:  # `run` raises it in the test's own thread
            network.end(error)
        finally:
            network.leave()

    threads = [threading.Thread(target=call, args=[group], daemon=True) for group in groups]
    network.known = {*threading.enumerate(), *threads}
    threading.excepthook = lambda failed: network.end(failed.exc_value)  # in a rank's own threads
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if network.error is not None:
        raise network.error
    return results, [group.sent for group in groups]


class Group:
    """One rank's place among all; it counts the bytes `sent`, and knows its `receivers`."""

    def __init__(self, network, rank):
        self.rank, self.ranks, self.sent, self.receivers = rank, network.ranks, 0, set()
        self._network, self._sendings = network, []

    def send(self, tensor, to):
        """Return when rank `to` has received the tensor."""
        self.isend(tensor, to).wait(f"is in `send` to rank {to}")

    def isend(self, tensor, to):
        """Return at once; call `wait()` of what it returns before the tensor changes."""
        self._check_rank(to, "sends to")
        self.sent += tensor.nbytes
        self.receivers.add(to)
        sending = _Sending(self._network, tensor, self.rank, to)
        self._sendings.append(sending)
        self._network.post(sending)
        return sending

    def recv(self, tensor, source):
        """Receive into the tensor what rank `source` sends to this one next."""
        self._check_rank(source, "receives from")
        self._network.receive(tensor, source, self.rank)

    def all_reduce(self, tensor):
        """Replace the tensor by the sum of all ranks' tensors; `sent` counts it once."""
        self.sent += tensor.nbytes
        self._network.add_up(tensor, self.rank)

    def check_waited(self):
        """Raise the hint for an `isend` without `wait()`."""
        if not all(sending.is_waited_for for sending in self._sendings):
            raise RankError(
                f"rank {self.rank} never waits for what it sends. `isend` returns before the tensor"
                " is sent: keep what it returns, and call its `wait()`."
            )

    def _check_rank(self, other, does):
        others = [rank for rank in range(self.ranks) if rank != self.rank]
        if other not in others:
            raise RankError(
                f"rank {self.rank} of {self.ranks} {does} rank {other}, but the other ranks are"
                f" {others}."
            )


class _Sending:
    """A tensor on its way."""

    def __init__(self, network, tensor, source, to):
        self.tensor, self.source, self.to = tensor, source, to
        self.is_received = self.is_waited_for = False
        self._network, self._before = network, tensor.clone()

    def wait(self, doing=None):
        self.is_waited_for = True
        doing = doing or f"is in `wait` for its `isend` to rank {self.to}"
        self._network.wait(self.source, lambda: self.is_received, doing)
        if not torch.equal(self.tensor, self._before):
            raise RankError(
                f"rank {self.source} changes a tensor while it sends it, so the other rank may get"
                " the old numbers or the new ones. Receive into other memory."
            )


class _Network:
    """What the ranks share. A rank that waits leaves a function that tells when it can go on.

    A rank can wait twice at once, in threads that it started itself.
    """

    def __init__(self, ranks):
        self.ranks, self.error, self.known = ranks, None, set()  # known: threads that aren't theirs
        self._running, self._waiting = ranks, {}
        self._sendings, self._tensors, self._rounds = [], {}, 0
        self._changed = threading.Condition(threading.RLock())

    def post(self, sending):
        with self._changed:
            self._sendings.append(sending)
            self._changed.notify_all()

    def receive(self, tensor, source, rank):
        def next_one():
            fitting = (one for one in self._sendings if (one.source, one.to) == (source, rank))
            return next(fitting, None)

        with self._changed:
            self.wait(rank, lambda: next_one() is not None, f"is in `recv` from rank {source}")
            sending = next_one()
            self._sendings.remove(sending)
            sizes = sending.tensor.numel(), tensor.numel()
            if sizes[0] != sizes[1] or sending.tensor.dtype != tensor.dtype:
                raise RankError(
                    f"rank {source} sends {sizes[0]} elements of {sending.tensor.dtype}, but rank"
                    f" {rank} receives into {sizes[1]} elements of {tensor.dtype}. Size and dtype"
                    " must match."
                )
            tensor.copy_(sending.tensor)
            sending.is_received = True
            self._changed.notify_all()

    def add_up(self, tensor, rank):
        with self._changed:
            self._tensors[rank] = tensor
            own_round = self._rounds
            if len(self._tensors) == self.ranks:
                total = sum(each.clone() for _, each in sorted(self._tensors.items()))
                for each in self._tensors.values():
                    each.copy_(total)
                self._tensors, self._rounds = {}, own_round + 1
                self._changed.notify_all()
            self.wait(rank, lambda: self._rounds > own_round, "waits in `all_reduce`")

    def wait(self, rank, can_go_on, doing):
        with self._changed:
            place = object()
            self._waiting[place] = can_go_on, rank, f"rank {rank} {doing}"
            self._check_for_deadlock(is_patient=True)
            while not self._changed.wait_for(lambda: can_go_on() or self.error, PATIENCE):
                self._check_for_deadlock()
            del self._waiting[place]
            if self.error is not None:
                raise _EndedError  # and `run` raises the first error

    def end(self, error):
        with self._changed:
            self.error = self.error or error
            self._changed.notify_all()

    def leave(self):
        with self._changed:
            self._running -= 1
            self._check_for_deadlock(is_patient=True)

    def _check_for_deadlock(self, is_patient=False):
        """End all if each rank waits. If one has more threads, they may be about to do its part."""
        if is_patient and not self.known.issuperset(threading.enumerate()):
            return
        waiting = self._waiting.values()
        if not waiting or len({rank for _, rank, _ in waiting}) < self._running:
            return
        if not any(can_go_on() for can_go_on, _, _ in waiting):
            doing = ", ".join(sorted(text for _, _, text in waiting))
            self.end(RankError(f"The ranks wait forever: {doing}."))
