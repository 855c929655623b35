"""The Docker engine: its client, its kind, its errors, and the containers of an environment."""
