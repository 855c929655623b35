"""Tests on a real Kubernetes: a control plane and a kubelet of this host (`make test-kubernetes`).

The programs are compiled from Debian's source package, once for each version of the script that
compiles them. The tests run in namespaces of their own (mount, network, processes): the daemons,
their engine and its rules for packets end with them.
"""
