"""Strict YAML with positions.

The parser's events are read one by one, without recursion and without PyYAML's constructors: what
is nested too deeply, an alias that would explode or a tag that would run code is never built.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from lab.config.decode import decode
from lab.config.diagnostics import Loc, Place, Problem, bare, quoted
from lab.config.scalars import Scalar, plain
from lab.task.text import clipped, short

MAX_DEPTH: Final = 16
MAX_VALUES: Final = 100_000  # twice what ten thousand nodes and tasks need

# The parser in C is a hundred times faster; both give the same events.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class Source:
    """A parsed file.

    Attributes:
        value: Its content: dict, list, str, int, float, bool and None only.
        values: Where each value stands.
        keys: Where each key stands.
        problems: What YAML allows and a description does not.
        excused: Values that have been complained about already and stand here as None.
        readable: Whether all of the file could be read.
    """

    value: Any = None
    values: dict[Loc, Place] = field(default_factory=dict)
    keys: dict[Loc, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    excused: set[Loc] = field(default_factory=set)
    readable: bool = True


def read_source(data: bytes) -> Source:
    """Parse the bytes of a file.

    Args:
        data: The content, at most one byte more than is allowed.
    """
    source = Source()
    text, source.problems = decode(data)
    source.readable = not source.problems
    if source.readable:
        _Builder(source).build(text)
    return source


_Value = Scalar | dict[str, Any] | list[Any]


@dataclass(slots=True)
class _Frame:
    """A mapping or list that is open."""

    loc: Loc
    container: dict[str, Any] | list[Any]
    muted: bool  # nothing in it counts: it stands behind a key that is refused
    is_key: bool = False
    key: str | None = None  # the key whose value comes next; None: a refused key
    wants_key: bool = True


class _HopelessError(Exception):
    """There is no sense in reading on; a problem says why."""


class _Builder:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._stack: list[_Frame] = []
        self._documents = 0
        self._count = 0

    def build(self, text: str) -> None:
        """Parse the text into the source."""
        source = self._source
        try:
            for event in yaml.parse(text, Loader=_LOADER):
                if self._document(event):
                    return
                self._event(event)
        except yaml.MarkedYAMLError as error:
            source.readable = False
            mark = error.problem_mark or error.context_mark
            place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
            why = ", ".join(part for part in (error.context, error.problem) if part)
            source.problems.append(Problem((), f"not YAML: {short(why)}", place=place))
        except yaml.YAMLError as error:
            source.readable = False
            source.problems.append(Problem((), f"not YAML: {short(str(error))}"))
        except _HopelessError:
            source.readable = False
        if not self._documents and source.readable:
            source.readable = False
            message = "the file is empty; copy cluster.yaml and change it"
            source.problems.append(Problem((), message))

    def _document(self, event: yaml.Event) -> bool:
        """Count documents; True when a second one begins."""
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                message = "a second document; a file describes one cluster"
                self._source.problems.append(Problem((), message, place=_place(event)))
                return True
        return False

    def _event(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.MappingStartEvent):
            self._open(event, {})
        elif isinstance(event, yaml.SequenceStartEvent):
            self._open(event, [])
        elif isinstance(event, yaml.CollectionEndEvent):
            self._close()

    # Where the next value belongs.

    def _target(self) -> tuple[Loc, bool]:
        """Location of the next value, and whether it counts for nothing."""
        if not self._stack:
            return (), False
        frame = self._stack[-1]
        if isinstance(frame.container, list):
            return (*frame.loc, len(frame.container)), frame.muted
        if frame.key is None:
            return frame.loc, True
        return (*frame.loc, frame.key), frame.muted

    def _attach(self, value: _Value) -> None:
        if not self._stack:
            self._source.value = value
            return
        frame = self._stack[-1]
        if isinstance(frame.container, list):
            frame.container.append(value)
            return
        if frame.key is not None:
            frame.container[frame.key] = value
        frame.key, frame.wants_key = None, True

    def _expects_key(self) -> bool:
        return bool(self._stack) and (
            isinstance(self._stack[-1].container, dict) and self._stack[-1].wants_key
        )

    # The events.

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        if self._expects_key():
            self._key(event)
            return
        loc, muted = self._target()
        self._refuse_anchor(event, loc, muted=muted)
        value = plain(event.value) if event.implicit[0] else event.value
        self._record(loc, event, muted=muted)
        if self._refuse_tag(event, loc, muted=muted):
            value = None
            self._excuse(loc, muted=muted)
        elif value is None and not muted and loc:
            self._problem(loc, event, _empty(loc))
            self._excuse(loc, muted=muted)
        self._attach(value)

    def _key(self, event: yaml.ScalarEvent) -> None:
        frame = self._stack[-1]
        frame.wants_key = False
        frame.key = None
        self._refuse_anchor(event, frame.loc, muted=frame.muted)
        if self._refuse_tag(event, frame.loc, muted=frame.muted):
            return
        key = plain(event.value) if event.implicit[0] else event.value
        if not isinstance(key, str):
            if not frame.muted:
                message = f"the key {bare(event.value)} is no text; put it in quotation marks"
                self._problem(frame.loc, event, message)
            return
        loc = (*frame.loc, key)
        if key in frame.container:
            if not frame.muted:
                first = self._source.keys[loc]
                message = f"the key stands here twice; the first is on line {first.line}"
                self._problem(loc, event, message)
            return
        if not frame.muted:
            self._source.keys[loc] = _place(event)
        frame.key = key

    def _alias(self, event: yaml.AliasEvent) -> None:
        name = clipped(str(event.anchor), 40)
        if self._expects_key():
            frame = self._stack[-1]
            frame.wants_key = False
            frame.key = None
            loc, muted = frame.loc, frame.muted
        else:
            loc, muted = self._target()
            self._record(loc, event, muted=muted)
            self._excuse(loc, muted=muted)
            self._attach(None)
        if not muted:
            self._problem(loc, event, f"an alias, *{name}; write out what it stands for")

    def _open(
        self, event: yaml.CollectionStartEvent, container: dict[str, Any] | list[Any]
    ) -> None:
        if len(self._stack) >= MAX_DEPTH:
            message = f"nested more than {MAX_DEPTH} deep; no description needs that"
            self._source.problems.append(Problem((), message, place=_place(event)))
            raise _HopelessError
        is_key = self._expects_key()
        if is_key:
            frame = self._stack[-1]
            frame.wants_key = False
            frame.key = None
            if not frame.muted:
                self._problem(frame.loc, event, "a list or mapping as a key; a key is a text")
            loc, muted = frame.loc, True
        else:
            loc, muted = self._target()
            self._record(loc, event, muted=muted)
        self._refuse_anchor(event, loc, muted=muted)
        if self._refuse_tag(event, loc, muted=muted):
            self._excuse(loc, muted=muted)
        self._stack.append(_Frame(loc, container, muted, is_key))

    def _close(self) -> None:
        frame = self._stack.pop()
        if not frame.is_key:
            self._attach(frame.container)

    # What is refused.

    def _refuse_anchor(self, event: yaml.NodeEvent, loc: Loc, *, muted: bool) -> None:
        if event.anchor is not None and not muted:
            name = clipped(str(event.anchor), 40)
            self._problem(loc, event, f"an anchor, &{name}; write out what it stands for")

    def _refuse_tag(
        self, event: yaml.ScalarEvent | yaml.CollectionStartEvent, loc: Loc, *, muted: bool
    ) -> bool:
        if event.tag is None or muted:
            return False
        self._problem(loc, event, f"a tag, {quoted(event.tag, 40)}; remove it")
        return True

    def _problem(self, loc: Loc, event: yaml.Event, message: str) -> None:
        self._source.problems.append(Problem(loc, message, place=_place(event)))

    def _record(self, loc: Loc, event: yaml.Event, *, muted: bool) -> None:
        self._count += 1
        if self._count > MAX_VALUES:
            message = f"more than {MAX_VALUES:,} values; no description needs that"
            self._source.problems.append(Problem((), message, place=_place(event)))
            raise _HopelessError
        if not muted:
            self._source.values[loc] = _place(event)

    def _excuse(self, loc: Loc, *, muted: bool) -> None:
        if not muted:
            self._source.excused.add(loc)


def _place(event: yaml.Event) -> Place:
    mark: Any = event.start_mark  # always there; the stubs allow None
    return Place(mark.line + 1, mark.column + 1)


def _empty(loc: Loc) -> str:
    # A node that asks for nothing is useful; everything else that is empty was forgotten.
    if loc[0] == "nodes" and len(loc) == 2:  # noqa: PLR2004
        return "is empty; write {} for a node without GPUs"
    return "is empty; give it a value, or remove it"
