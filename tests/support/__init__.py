"""What several groups of tests share: fakes, hosts, and helpers."""
