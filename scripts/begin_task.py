"""The common first lines of the programs of all frameworks: the recorder."""

from lab.task.sdk.interrupt import leave_on_interrupt
from lab.task.sdk.program import report_failure
from lab.task.sdk.recorder import Recorder


def begin_task(flags, **fields):
    """Record the start of this task; return the recorder for all further records."""
    leave_on_interrupt()
    recorder = Recorder(flags.job_name, flags.task_index)
    hosts = getattr(flags, f"{flags.job_name}_hosts")
    report_failure(recorder, hosts[flags.task_index] if hosts else "")
    recorder.write("start", status="starting", **fields)
    return recorder
