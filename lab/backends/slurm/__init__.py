"""The backend `slurm`: an environment is a job of Slurm, its agents are the tasks of a step."""
