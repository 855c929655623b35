"""The checks of this host that every backend needs, and the report of all.

Each backend yields its own (`Backend.checks`); what a check is, says `lab.backends.checks`.
"""
