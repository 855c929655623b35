"""`lab export RUN`.

The archive has run.json, the summary, records, logs, states, GPU samples and the program of your
own. Logs and run.json can contain paths and user names of this host: look at them before you
publish the archive. Checkpoints, the saved model and the files of the programs need --all.

Examples:
    # the newest run, to RUN_ID.lab.tar.gz in this directory
    lab export last
    # with its checkpoints, to a file that you name
    lab export last --all --output my-run.lab.tar.gz
"""

from __future__ import annotations

from lab.api.archives import export
from lab.cli.printing import prints

command = prints(export)
