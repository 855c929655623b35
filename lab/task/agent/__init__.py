"""The task agent: starts, watches, records and ends the programs of one task."""
