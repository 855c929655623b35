"""Places the tasks of a config on a host; pure."""
