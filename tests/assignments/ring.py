"""The assignment `ring`: its solution, and mistakes."""

from __future__ import annotations

from tests.assignments.solution import Solution, Wrong

GAPS = {
    "bounds": """
return [length * i // ranks for i in range(ranks + 1)]
""",
    "exchange": """
sending = group.isend(outgoing, (group.rank + 1) % group.ranks)
group.recv(incoming, (group.rank - 1) % group.ranks)
sending.wait()
""",
    "reduce_scatter": """
for step in range(ranks - 1):
    own = parts[(rank - step - 1) % ranks]
    incoming = torch.empty_like(own)
    exchange(parts[(rank - step) % ranks], incoming, group)
    own += incoming
""",
    "all_gather": """
for step in range(ranks - 1):
    exchange(parts[(rank - step + 1) % ranks], parts[(rank - step) % ranks], group)
""",
    "mean": """
total = vector.clone()
reduce_scatter(total, group)
all_gather(total, group)
return total / group.ranks
""",
}

_BOUNDS = "return [length * i // ranks for i in range(ranks + 1)]"
_EXCHANGE = GAPS["exchange"].strip().replace("\n", "\n    ")
_REDUCE_SCATTER = GAPS["reduce_scatter"].strip().replace("\n", "\n    ")
_ALL_GATHER = GAPS["all_gather"].strip().replace("\n", "\n    ")
_SEND_SUM = "exchange(parts[(rank - step + 1) % ranks], parts[(rank - step) % ranks], group)"
_SEND_FIRST = (
    "group.send(outgoing, (group.rank + 1) % group.ranks)\n"
    "    group.recv(incoming, (group.rank - 1) % group.ranks)"
)
_THREAD = """sender = threading.Thread(
        target=group.send, args=[outgoing, (group.rank + 1) % group.ranks]
    )
    sender.start()
    group.recv(incoming, (group.rank - 1) % group.ranks)
    sender.join()"""

EXCHANGES = {
    "a thread sends": "import threading\n    " + _THREAD,
    "a thread receives": """import threading
    receiver = threading.Thread(
        target=group.recv, args=[incoming, (group.rank - 1) % group.ranks]
    )
    receiver.start()
    group.send(outgoing, (group.rank + 1) % group.ranks)
    receiver.join()""",
    "odd ranks receive first": """if group.rank % 2:
        group.recv(incoming, (group.rank - 1) % group.ranks)
    group.send(outgoing, (group.rank + 1) % group.ranks)
    if group.rank % 2 == 0:
        group.recv(incoming, (group.rank - 1) % group.ranks)""",
}
"""Other right ways to exchange."""

STUCK_THREAD = "import threading\n    " + _THREAD.replace(
    "sender.start()", "sender.start()\n    sender.join()"
)
"""A thread sends, but the rank receives only after it."""

WRONG = (
    Wrong("no bounds", _BOUNDS, _BOUNDS.replace("return", "limits ="), "returns None. Does every"),
    Wrong(
        "bounds that are not whole",
        _BOUNDS,
        _BOUNDS.replace("//", "/"),
        "can only begin at a whole number",
    ),
    Wrong(
        "chunks of length // ranks elements leave out the rest",
        "[length * i // ranks for i in range(ranks + 1)]",
        "[length // ranks * i for i in range(ranks + 1)]",
        "elements are in no chunk",
    ),
    Wrong(
        "the last chunk has all the rest",
        "[length * i // ranks for i in range(ranks + 1)]",
        "[length // ranks * i for i in range(ranks)] + [length]",
        "Share the elements that are left over",
    ),
    Wrong(
        "no end of the last chunk",
        "for i in range(ranks + 1)]",
        "for i in range(ranks)]",
        "where each begins, and where the last one ends",
    ),
    Wrong(
        "all ranks send first",
        _EXCHANGE,
        _SEND_FIRST,
        "Which call doesn't wait?",
    ),
    Wrong(
        "all ranks receive first",
        _EXCHANGE,
        "\n    ".join(reversed(_SEND_FIRST.split("\n    "))),
        "nothing is on its way. What must a rank do before?",
    ),
    Wrong(
        "waits before it receives",
        _EXCHANGE,
        _SEND_FIRST.replace("send(", "isend(").replace("ranks)\n", "ranks).wait()\n"),
        "between `isend` and `wait`?",
    ),
    Wrong(
        "does not wait for what it sends",
        "    sending.wait()\n",
        "",
        "keep what it returns",
    ),
    Wrong(
        "sends to the previous rank",
        "group.isend(outgoing, (group.rank + 1) % group.ranks)\n"
        "    group.recv(incoming, (group.rank - 1) % group.ranks)",
        "group.isend(outgoing, (group.rank - 1) % group.ranks)\n"
        "    group.recv(incoming, (group.rank + 1) % group.ranks)",
        "Draw the ring",
    ),
    Wrong(
        "receives into the tensor that it sends",
        "group.recv(incoming, (group.rank - 1) % group.ranks)\n    sending.wait()",
        "group.recv(outgoing, (group.rank - 1) % group.ranks)\n    sending.wait()\n"
        "    incoming.copy_(outgoing)",
        "Receive into other memory",
    ),
    Wrong(
        "the last rank has no next one",
        "group.isend(outgoing, (group.rank + 1) % group.ranks)",
        "group.isend(outgoing, group.rank + 1)",
        "sends to rank 2, but the other ranks are [0].",
    ),
    Wrong(
        "what arrives replaces what a rank has",
        "own += incoming",
        "own.copy_(incoming)",
        "What happens to them when others arrive?",
    ),
    Wrong(
        "one exchange too many",
        "for step in range(ranks - 1):\n        own =",
        "for step in range(ranks):\n        own =",
        "Where can it stop?",
    ),
    Wrong(
        "one exchange too few",
        "for step in range(ranks - 1):\n        own =",
        "for step in range(max(1, ranks - 2)):\n        own =",
        "With 3 ranks, chunk 1 of rank 0 must include",
    ),
    Wrong(
        "three exchanges at most",
        "for step in range(ranks - 1):\n        own =",
        "for step in range(min(ranks - 1, 3)):\n        own =",
        "With 5 ranks, chunk 1 of rank 0 must include",
    ),
    Wrong(
        "a new tensor for each sum",
        "own += incoming",
        "parts[(rank - step - 1) % ranks] = own + incoming",
        "`reduce_scatter` leaves the vector unchanged",
    ),
    Wrong(
        "each chunk goes straight to the rank that adds it up",
        _REDUCE_SCATTER,
        """own = parts[(rank + 1) % ranks]
    incoming = torch.empty_like(own)
    others = [other for other in range(ranks) if other != rank]
    sendings = [group.isend(parts[(other + 1) % ranks], other) for other in others]
    for other in others:
        group.recv(incoming, other)
        own += incoming
    for sending in sendings:
        sending.wait()""",
        "in `reduce_scatter`. In a ring, a rank sends only to the next one",
    ),
    Wrong(
        "the sum ends at another rank",
        "    own = parts[(rank - step - 1) % ranks]\n"
        "        incoming = torch.empty_like(own)\n"
        "        exchange(parts[(rank - step) % ranks]",
        "    own = parts[(rank - step - 2) % ranks]\n"
        "        incoming = torch.empty_like(own)\n"
        "        exchange(parts[(rank - step - 1) % ranks]",
        "Which chunk does a rank send first",
    ),
    Wrong(
        "a place to receive of another kind",
        "torch.empty_like(own)",
        "torch.empty(len(own))",
        "Size and dtype must match",
    ),
    Wrong(
        "passes on a chunk that is no sum",
        "exchange(parts[(rank - step + 1) % ranks], parts[(rank - step) % ranks], group)",
        "exchange(parts[(rank - step) % ranks], parts[(rank - step - 1) % ranks], group)",
        "It must send this chunk before any other",
    ),
    Wrong(
        "one sum too few",
        "for step in range(ranks - 1):\n        exchange",
        "for step in range(ranks - 2):\n        exchange",
        "With 2 ranks, rank 0 still lacks",
    ),
    Wrong(
        "three sums at most",
        "for step in range(ranks - 1):\n        exchange",
        "for step in range(min(ranks - 1, 3)):\n        exchange",
        "With 5 ranks, rank 0 still lacks",
    ),
    Wrong(
        "one exchange of sums too many",
        "for step in range(ranks - 1):\n        exchange",
        "for step in range(ranks):\n        exchange",
        "How many ranks don't have it at the start?",
    ),
    Wrong(
        "a new tensor for each sum that arrives",
        _SEND_SUM,
        "incoming = torch.empty_like(parts[(rank - step) % ranks])\n"
        "        exchange(parts[(rank - step + 1) % ranks], incoming, group)\n"
        "        parts[(rank - step) % ranks] = incoming",
        "`all_gather` leaves the vector unchanged",
    ),
    Wrong(
        "each sum goes straight to all ranks",
        _ALL_GATHER,
        """others = [other for other in range(ranks) if other != rank]
    sendings = [group.isend(parts[(rank + 1) % ranks], other) for other in others]
    for other in others:
        group.recv(parts[(other + 1) % ranks], other)
    for sending in sendings:
        sending.wait()""",
        "in `all_gather`. In a ring, a rank sends only to the next one",
    ),
    Wrong(
        "adds the sums again",
        "    exchange(parts[(rank - step + 1) % ranks], parts[(rank - step) % ranks], group)",
        "    incoming = torch.empty_like(parts[(rank - step) % ranks])\n"
        "        exchange(parts[(rank - step + 1) % ranks], incoming, group)\n"
        "        parts[(rank - step) % ranks] += incoming",
        "A sum is complete",
    ),
    Wrong("no mean", "return total / group.ranks", "return total", "What is still to do?"),
    Wrong(
        "divides by the exchanges",
        "return total / group.ranks",
        "return total / max(1, group.ranks - 1)",
        "How many numbers are in each sum?",
    ),
    Wrong(
        "returns nothing",
        "return total / group.ranks",
        "total /= group.ranks",
        "Where does it return its vector?",
    ),
    Wrong(
        "returns a number",
        "return total / group.ranks",
        "return total.mean()",
        "must return such a vector",
    ),
    Wrong(
        "a vector without the rank's numbers",
        "vector.clone()",
        "torch.zeros_like(vector)",
        "in the vector that your functions work on?",
    ),
    Wrong("does not gather", "    all_gather(total, group)\n", "", "sums of its other chunks?"),
    Wrong(
        "remembers its result",
        GAPS["mean"].strip().replace("\n", "\n    "),
        """if not hasattr(group, "mean"):
        group.mean = vector.clone()
        reduce_scatter(group.mean, group)
        all_gather(group.mean, group)
        group.mean /= group.ranks
    return group.mean""",
        "What is left from the first call?",
    ),
    Wrong(
        "always returns the same vector",
        GAPS["mean"].strip().replace("\n", "\n    "),
        """group.total = total = getattr(group, "total", torch.empty_like(vector)).copy_(vector)
    reduce_scatter(total, group)
    all_gather(total, group)
    return total.div_(group.ranks)""",
        "Do the two results share memory?",
    ),
    Wrong(
        "returns another dtype",
        "return total / group.ranks",
        "return (total / group.ranks).float()",
        "The dtype must stay the same",
    ),
    Wrong("changes its argument", "vector.clone()", "vector", "work on another vector"),
    Wrong(
        "every vector visits every rank",
        """    reduce_scatter(total, group)
    all_gather(total, group)
""",
        """    outgoing, incoming = vector.clone(), torch.empty_like(vector)
    for _ in range(group.ranks - 1):
        exchange(outgoing, incoming, group)
        total += incoming
        outgoing, incoming = incoming, outgoing
""",
        "Do the ranks add in different orders?",
    ),
    Wrong(
        "rank 0 computes for all",
        """    reduce_scatter(total, group)
    all_gather(total, group)
""",
        """    incoming = torch.empty_like(vector)
    for rank in range(1, group.ranks):
        if group.rank == rank:
            group.send(vector, 0)
        if group.rank == 0:
            group.recv(incoming, rank)
            total += incoming
    for rank in range(1, group.ranks):
        if group.rank == rank:
            group.recv(total, 0)
        if group.rank == 0:
            group.send(total, rank)
""",
        "all ranks share the work",
    ),
)

RING = Solution("ring", GAPS, WRONG)


def with_exchange(code: str) -> str:
    """The program, filled, with another `exchange`."""
    return RING.with_mistake(Wrong("exchange", _EXCHANGE, code, ""))
