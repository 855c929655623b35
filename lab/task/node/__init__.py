"""Small programs next to the agent: health checks, GPU probe, links, faults, collection."""
