"""What a check of this host is, and the checks that every backend needs.

`lab doctor` adds the checks of each backend, which its class yields: `Backend.checks`.
"""
