"""The queue of a class: seats take turns on the GPUs of the host.

A service that JupyterHub manages runs the environments of the seats as containers. Its ledger says
which of them wait and which GPUs the others have. The service writes the ledger before it acts, so
that a crash loses nothing.
"""
