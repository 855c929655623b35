"""From a config and a host to the placement of every task; pure."""
