"""What the chief, worker 0, does for all workers: it initializes or resumes, saves, leaves last.

`tf.train.MonitoredTrainingSession` does much of this, too, but hides it.

A checkpoint is two files, `model-500.index` and `model-500.data-…`. Its name has the global step at
which the chief began to save it. If one is damaged (the host stopped, the disk was full), the one
before it is used.
"""

import contextlib
import re
import threading
import time

import numpy as np
import tensorflow.compat.v1 as tf

from lab.task import sdk

INDEX = re.compile(r"model-([0-9]+)\.index")


def newest_first(directory):
    """Return the names of the checkpoints in a directory, the newest first."""
    steps = [int(found[1]) for path in directory.iterdir() if (found := INDEX.fullmatch(path.name))]
    return [str(directory / f"model-{step}") for step in sorted(steps, reverse=True)]


class Finish:
    """A variable on a parameter server: each worker sets its element to 1 when it has finished."""

    def __init__(self, workers, task_index):
        self.workers, self.is_chief = workers, task_index == 0
        with tf.device("/job:ps/task:0"):
            self.finished = tf.get_variable("finished", initializer=np.zeros(workers, np.int32))
            self.report = tf.scatter_update(self.finished, task_index, 1)

    @contextlib.contextmanager
    def chief_leaves_last(self, session, recorder):
        """Report, at the end of the block, that this worker has finished; the chief waits for all.

        A worker that fails leaves the block without a report; its agent says that it has ended.
        """
        yield
        session.run(self.report)
        if self.is_chief:
            recorder.write("event", message="waits until all workers have finished")
            while not self.all_have_finished(session):
                time.sleep(0.1)

    def all_have_finished(self, session):
        """Whether every worker has finished, or failed."""
        reported, ended = session.run(self.finished), sdk.ended_tasks()
        return all(reported[task] or f"worker-{task}" in ended for task in range(self.workers))


class Chief:
    """The chief initializes, resumes and saves the training. In other workers it only waits.

    Create it when the rest of the graph is complete: it initializes the variables that exist then.

    A checkpoint has the global step, the parameters and their averages. Workers make updates while
    the chief saves, so these values may be some updates apart. The probe is not saved: a resumed
    training sets it to the checkpoint's global step.
    """

    def __init__(self, flags, recorder, averages, *, global_step, probe):
        self.flags, self.recorder, self.averages = flags, recorder, averages
        self.is_chief = flags.task_index == 0
        self.finish = Finish(len(flags.worker_hosts), flags.task_index)
        self.every_s = flags.checkpoint_every
        self.global_step, self.probe = global_step, probe
        variables = [global_step, *averages.all_variables()]
        self.saved = {variable.op.name: variable for variable in variables}
        kept = {*self.saved, probe.op.name}
        others = [each for each in tf.global_variables() if each.op.name not in kept]
        self.initialize_all = tf.global_variables_initializer()
        self.initialize_others = tf.variables_initializer(others)
        self.missing_variables = tf.report_uninitialized_variables(tf.global_variables())
        self.directory = sdk.checkpoint_directory(flags) if self.is_chief else None
        self.saver, self.newest = None, {}
        if self.directory:
            with tf.device("/job:worker/task:0"):  # The chief writes them, not the ps.
                self.saver = tf.train.Saver(self.saved, save_relative_paths=True)
            # The saver keeps five checkpoints: it must know those that are there, the oldest first.
            self.saver.recover_last_checkpoints(newest_first(self.directory)[::-1])
            self.newest = self.load_newest()
        self.saving = threading.Lock()  # A signal that ends the program saves from another thread.

    def initialize_or_wait(self, session):
        """In the chief, give all variables their first values; in other workers, wait for that.

        A restarted chief (`attempt` is above 0) uses the existing variables, unless a parameter
        server was restarted, too. In the first attempt existing variables are an error: they belong
        to an earlier run.
        """
        self.recorder.write("event", message="waits for the parameter servers and the chief")
        if self.is_chief:
            if len(session.run(self.missing_variables)):
                self.initialize(session)
            elif self.recorder.attempt == 0:
                what = "the parameter servers still hold an earlier run"
                raise sdk.ProgramError(what, "restart them")
        while len(session.run(self.missing_variables)):
            time.sleep(0.2)
        if self.saver:
            sdk.leave_on_interrupt(first=lambda: self.save(session, session.run(self.global_step)))
        self.saved_at = time.monotonic()

    def leaves_last(self, session):
        """Return a block for the training: at its end the chief waits for all workers."""
        return self.finish.chief_leaves_last(session, self.recorder)

    def initialize(self, session):
        """Initialize all variables, from the newest checkpoint if there is one."""
        if self.newest:
            step = self.newest["global_step"]
            for name, value in self.newest.items():
                self.saved[name].load(value, session)
            self.probe.load(step, session)
            session.run(self.initialize_others)  # Last: the other workers wait for all variables.
            message = f"resumes from the checkpoint of step {step}"
            self.recorder.write("event", global_step=step, message=message)
        else:
            session.run(self.initialize_all)
            if self.recorder.attempt:
                self.recorder.write("event", global_step=0, message="starts again")

    def load_newest(self):
        """Return the values of the newest checkpoint that is not damaged, by variable."""
        checkpoints = newest_first(self.directory)
        for checkpoint in checkpoints:
            try:
                reader = tf.train.load_checkpoint(checkpoint)
                names = reader.get_variable_to_shape_map()
                values = {name: reader.get_tensor(name) for name in names}
            except (ValueError, IndexError, tf.errors.OpError):
                self.recorder.write("event", message=f"{checkpoint} is damaged: it is skipped")
                continue
            if values.keys() != self.saved.keys():
                what = f"{checkpoint}: not a checkpoint of this model"
                raise sdk.ProgramError(what, "use another --checkpoint_dir")
            return values
        # A later attempt follows a training that began without a checkpoint: it may begin again.
        if checkpoints and self.recorder.attempt == 0:
            what = f"{self.directory}: every checkpoint is damaged"
            raise sdk.ProgramError(what, "start a new training")
        return {}

    def save_when_due(self, session, global_step):
        """Save the current values if the last checkpoint is old enough.

        If the disk is full, the training continues, and the next checkpoint may succeed.
        """
        if self.saver and time.monotonic() - self.saved_at > self.every_s:
            try:
                self.save(session, global_step)
            except tf.errors.OpError as error:
                self.saved_at = time.monotonic()
                reason = sdk.first_message_line(error.message)
                message = f"no checkpoint of step {global_step}: {reason}"
                self.recorder.write("event", global_step=global_step, message=message)

    def save(self, session, global_step):
        """Save the current values."""
        if self.saver:
            with self.saving:
                path = str(self.directory / "model")
                self.saver.save(session, path, global_step, write_meta_graph=False)
            self.saved_at = time.monotonic()

    def save_model(self, session, parameters):
        """Save the final values: a last checkpoint, and the model for other programs."""
        step, *values = session.run([self.global_step, parameters, self.averages.values()])
        self.save(session, step)
        sdk.save_trained(self.flags, step, *values)
