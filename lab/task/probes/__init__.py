"""Small programs beside the agent: health checks, GPU probe, links, network faults, collection."""
