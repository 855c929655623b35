"""The cluster config, the GPUs of this host, and the plan that places one on the other.

It imports `base` and `protocol`. Begin with `config/cluster.py`, which has every key of a config,
then follow `placement/place.py`.
"""
