"""The report: figures and tables of one run, or of several, as one page that needs nothing else."""
