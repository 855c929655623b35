"""The entry point `python -m lab.task.agent`; a container or the local supervisor starts it."""

import sys

from lab.task.agent.agent import main

sys.exit(main(sys.argv[1:]))
