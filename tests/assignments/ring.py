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

WRONG = (
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
        "where the last one ends",
    ),
    Wrong(
        "all ranks send first",
        "sending = group.isend(outgoing, (group.rank + 1) % group.ranks)",
        "group.send(outgoing, (group.rank + 1) % group.ranks)\n    sending = None",
        "Which call doesn't wait?",
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
        "sends to rank 2.",
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
        "until it was at every rank?",
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
        "Both must fit",
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
        "still need after `reduce_scatter`?",
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
    Wrong("returns nothing", "return total / group.ranks", "total /= group.ranks", "a NoneType."),
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
        "and none works for all",
    ),
)

RING = Solution("ring", GAPS, WRONG)
