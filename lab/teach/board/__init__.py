"""The board: what a class or a run does now, as a page for the projector and the teacher."""
