"""Checkpoints: the chief saves them, and a training that goes on begins with the newest.

A checkpoint is two files, `model-500.index` and `model-500.data-…`, for global step 500. One that
is damaged (the machine stopped, the disk was full) is passed over for the one before it.
"""

import re
import threading

import tensorflow.compat.v1 as tf

from lab.task.sdk.program import ProgramError

INDEX = re.compile(r"model-([0-9]+)\.index")


def newest_first(directory):
    """Return the checkpoints in a directory, as TensorFlow names them, the newest first."""
    steps = [int(found[1]) for path in directory.iterdir() if (found := INDEX.fullmatch(path.name))]
    return [str(directory / f"model-{step}") for step in sorted(steps, reverse=True)]


def load_newest(directory, names, recorder):
    """Read the newest checkpoint that is whole.

    Args:
        directory: Where checkpoints are kept.
        names: Of the variables that it must hold, beside `global_step`.
        recorder: Receives an event for each checkpoint that is passed over.

    Returns:
        All values in it by name, and the global step; nothing and 0 where there is no checkpoint.

    Raises:
        ProgramError: None of them is whole, and the program was not started again; or the newest
            is another model's.
    """
    for checkpoint in newest_first(directory):
        try:
            reader = tf.train.load_checkpoint(checkpoint)
            values = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
        except (ValueError, IndexError, tf.errors.OpError):
            recorder.write("event", message=f"{checkpoint} is damaged: it is passed over")
            continue
        if not values.keys() >= {"global_step", *names}:
            what = f"{checkpoint}: is no checkpoint of this model"
            raise ProgramError(what, "give another --checkpoint_dir")
        return values, int(values["global_step"])
    # A training that was begun without one may begin anew.
    if newest_first(directory) and recorder.attempt == 0:
        raise ProgramError(f"{directory}: every checkpoint is damaged", "begin anew")
    return {}, 0


class Keeper:
    """Saves the variables of a session."""

    def __init__(self, directory, variables):
        self.path = str(directory / "model")
        self.saver = tf.train.Saver(variables, save_relative_paths=True)
        self.saver.recover_last_checkpoints(newest_first(directory)[::-1])
        self.saving = threading.Lock()  # Whoever tells the program to end has it saved, too.

    def save(self, session, global_step):
        """Save them as they are now."""
        with self.saving:
            self.saver.save(session, self.path, global_step)
