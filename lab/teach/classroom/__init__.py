"""A class: JupyterLab for each seat, on one host.

JupyterHub runs on the host as one process, and starts the seats. Each seat is a container, and the
proxy runs in another one. It shares a small internal network with each seat, so that no seat
reaches another one or the host.
"""
