"""Run the container tests on several Docker engines, into docs/reference/engines.md.

The engines are those of Debian releases (`tests.support.debian_engine`). A cell of the table is
an engine with a version of compose, an image store, and GPUs by CDI or not. It needs root, network
access and 15 GB below /var/tmp, and takes 5 to 15 minutes a cell. Nothing of it is left at the end.

usage: make engines, or python -m tests.engines [CELL ...]
"""
