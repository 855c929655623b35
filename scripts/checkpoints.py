"""Checkpoints: the chief saves them, and a resumed training begins with the newest one.

A checkpoint is two files, `model-500.index` and `model-500.data-…`, for global step 500. If one is
damaged (the host stopped, the disk was full), the one before it is used.
"""

import re
import threading

import tensorflow.compat.v1 as tf

from lab.task.sdk.program import ProgramError

INDEX = re.compile(r"model-([0-9]+)\.index")


def newest_first(directory):
    """Return the names of the checkpoints in a directory, the newest first."""
    steps = [int(found[1]) for path in directory.iterdir() if (found := INDEX.fullmatch(path.name))]
    return [str(directory / f"model-{step}") for step in sorted(steps, reverse=True)]


def load_newest(directory, names, recorder):
    """Read the newest checkpoint that is not damaged.

    Args:
        directory: The directory of the checkpoints.
        names: The names of the variables that it must hold, besides `global_step`.
        recorder: Receives an event for each skipped checkpoint.

    Returns:
        All values by name, and the global step; an empty dict and 0 without a checkpoint.

    Raises:
        ProgramError: All checkpoints are damaged, and this is the first attempt; or the newest is
            of another model.
    """
    for checkpoint in newest_first(directory):
        try:
            reader = tf.train.load_checkpoint(checkpoint)
            values = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
        except (ValueError, IndexError, tf.errors.OpError):
            recorder.write("event", message=f"{checkpoint} is damaged: it is skipped")
            continue
        if not values.keys() >= {"global_step", *names}:
            what = f"{checkpoint}: not a checkpoint of this model"
            raise ProgramError(what, "use another --checkpoint_dir")
        return values, int(values["global_step"])
    # In a later attempt the training started without a checkpoint, and may start again.
    if newest_first(directory) and recorder.attempt == 0:
        raise ProgramError(f"{directory}: every checkpoint is damaged", "start a new training")
    return {}, 0


class Keeper:
    """Saves the variables of a session as checkpoints."""

    def __init__(self, directory, variables):
        self.path = str(directory / "model")
        self.saver = tf.train.Saver(variables, save_relative_paths=True)
        self.saver.recover_last_checkpoints(newest_first(directory)[::-1])
        self.saving = threading.Lock()  # A signal that ends the program saves from another thread.

    def save(self, session, global_step):
        """Save the current values."""
        with self.saving:
            self.saver.save(session, self.path, global_step)
