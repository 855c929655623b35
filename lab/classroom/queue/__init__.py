"""The queue of a class: seats take turns on the GPUs of the host.

A service that JupyterHub manages runs the environments of the seats as containers. Its ledger says
who waits and who has which GPUs. It is written before anything is done, so that a crash loses
nothing.
"""
