"""The backend of a seat: environments of containers on the class's host, by the class's queue.

It is only for the inside of a seat, where the variable `LAB_QUEUE` names the queue.
`lab.classroom.queue` is the other side. The run volume is on the disk of the seat.
"""
