"""A class: one container with JupyterLab for each seat, on one host.

JupyterHub and DockerSpawner run on the host as one process. The proxy runs in a container. It
shares a small internal network with each seat, so that no seat reaches another one or the host.
"""
