"""The report: figures and tables of one or several runs, as one self-contained HTML page."""
