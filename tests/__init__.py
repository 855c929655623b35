"""The tests. As a package, `tests/kubernetes` does not hide the client `kubernetes`."""
