"""Lessons and their checks, a class with its queue for GPUs, and the pages that show a run.

It imports `runner` and the rooms below, but neither `study` nor `checks`. Begin with
`lessons/lesson.py`, or with `classroom/up_down.py` for a class.
"""
