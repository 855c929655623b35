"""The backend whose nodes and tasks are containers of `docker compose`.

The compose command boots the rendered file. docker-py inspects containers, submits requests and
collects runs. The labels of containers, networks and volumes are the only state. So an environment
can be found, followed and removed from any directory, without its config.
"""
