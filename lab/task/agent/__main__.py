"""`python -m lab.task.agent`: what a container runs, and the local supervisor for each task."""

import sys

from lab.task.agent.agent import main

sys.exit(main())
