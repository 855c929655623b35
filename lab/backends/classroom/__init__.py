"""The backend of a seat: containers on the class's host, granted by the class's queue.

It works only inside a seat, where the variable `LAB_QUEUE` names the queue.
`lab.classroom.queue` is the other side. The run volume is on the disk of the seat.
"""
