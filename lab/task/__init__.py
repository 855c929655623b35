"""What only the tasks run: the agent, the checks of a node, and the SDK that programs import.

It imports `base` and `protocol`; the client imports nothing of it but the agent that it forks.
Begin with `agent/agent.py`, which waits for a request and starts the program.
"""
