"""A node's network: its link, its faults, and the filter that blocks the host; through netlink."""
