"""Find every place in the code that makes an error for the user, and the text that it can say.

The code is read, never run: a place is a call that makes one of the errors below. Where a function
makes an error from a text that it is given (`_error(path, what, fix)`), the places are its calls.
A place whose text comes from several branches says several things, each of them an entry.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

EXIT_CODES: Final = {
    "LabError": 1,
    "DataError": 2,
    "ProgramError": 1,
    "AgentConfigError": 2,
    "OneshotError": 2,
    "LinkError": 1,
    "NetworkError": 1,
    "ArgumentTypeError": 2,
    "Problem": 2,
    "InconclusiveError": 3,
}
"""The classes that are looked for, and what a command ends with; subclasses follow from these."""

REASON: Final = "reason"
COMPLAINT: Final = "_complaint"
_CODES: Final = {"flags": 2, "notify": 1, COMPLAINT: 1}
_BAD_STATES: Final = {"FAILED", "LOST", "CANCELLED"}
_RELAYED: Final = {"what", "message"}
_MOST: Final = 40
_DEPTH: Final = 6

_HOLE: Final = re.compile("⟨([^⟨⟩]*)⟩")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Env = Mapping[str, list[str]]


@dataclass(frozen=True, order=True)
class Place:
    """One thing that one place in the code can say.

    Attributes:
        module: `lab/gpu.py`.
        function: `take_inventory`, or "" outside of any.
        what: What is wrong; `⟨words⟩` stand for what is filled in.
        fix: How to fix it, likewise; "" where the text itself has it, or where there is none.
        kind: The class that is made, or `reason` for the reason in a task's or a run's state.
        exit_code: What the command ends with; None for a reason.
        about: The first line of the function's docstring.
        lines: Where it stands now; it is no part of what the place is.
    """

    module: str
    function: str
    what: str
    fix: str
    kind: str
    exit_code: int | None
    about: str = field(compare=False)
    lines: tuple[int, int] = field(compare=False)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Fits every text that this place can say."""
        return pattern(self.what)

    @cached_property
    def weight(self) -> int:
        """How much of the text is its own; among several that fit, the heaviest is meant."""
        return len(_HOLE.sub("", self.what))


def holes_as(template: str, sign: str) -> str:
    """A template with a sign for whatever is filled in."""
    return _HOLE.sub(sign, template)


def pattern(template: str) -> re.Pattern[str]:
    """What a template fits: anything stands for `⟨words⟩`."""
    fixed = _HOLE.split(template)[::2]
    return re.compile("(.*)".join(re.escape(part) for part in fixed), re.DOTALL)


@cache
def scan(root: Path = ROOT) -> list[Place]:
    """Every place in `lab/`, in the order of the files."""
    files = sorted((root / "lab").rglob("*.py"))
    trees = {
        path.relative_to(root).as_posix(): ast.parse(path.read_text("utf-8")) for path in files
    }
    classes = _classes(trees.values())
    places: dict[Place, Place] = {}
    for name, tree in trees.items():
        for place in _Module(name, tree, classes).places():
            places.setdefault(place, place)
    reasons: dict[tuple[str, str], Place] = {}
    for place in sorted(places):
        if place.kind == REASON:
            reasons.setdefault((place.module, place.what), place)
    return [each for each in places if each.kind != REASON] + list(reasons.values())


def _classes(trees: object) -> dict[str, int]:
    """Every class of errors and its exit code, subclasses of the known ones included."""
    found = dict(EXIT_CODES)
    grows = True
    definitions = [
        node
        for tree in trees  # type: ignore[attr-defined]
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    while grows:
        grows = False
        for node in definitions:
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            known = [base for base in bases if base in found]
            if known and node.name not in found:
                found[node.name] = _exit_code(node, found[known[0]])
                grows = True
    return found


def _exit_code(node: ast.ClassDef, inherited: int) -> int:
    for each in node.body:
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant):
            for target in each.targets:
                if isinstance(target, ast.Name) and target.id == "exit_code":
                    return int(str(each.value.value))
    return inherited


class _Module:
    """One file."""

    def __init__(self, name: str, tree: ast.Module, classes: Mapping[str, int]) -> None:
        self.name = name
        self.tree = tree
        self.classes = classes
        self.parents = {
            child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)
        }
        self.functions: dict[str, Function] = {
            node.name: node for node in ast.walk(tree) if isinstance(node, Function)
        }
        self.tables = {
            node.target.id: node.value
            for node in tree.body
            if isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(node.value, ast.Dict)
        }
        self.calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]

    def places(self) -> Iterator[Place]:
        for call in self.calls:
            kind = self._kind(call)
            if kind is not None:
                yield from self._made(call, call, kind, {}, _DEPTH)
        yield from self._reasons()

    # Errors that are made.

    def _kind(self, call: ast.Call) -> str | None:
        name = _called(call)
        if name in self.classes or name == COMPLAINT:
            return name
        if name == "error" and self.name == "lab/task/sdk/flags.py":
            return "flags"
        if name == "notify" and self.name == "lab/cli/errors.py" and _says_error(call):
            return "notify"
        return None

    def _made(
        self, site: ast.Call, call: ast.Call, kind: str, env: Env, depth: int
    ) -> Iterator[Place]:
        """What one call makes: at its own place, or at those of the relay it stands in."""
        function = self._function(call)
        what, fix = self._arguments(call, kind)
        if what is None or _is_passed_on(what):
            return
        relay = function.name if function else ""
        names = {node.id for node in ast.walk(what) if isinstance(node, ast.Name)}
        if function is not None and depth and names & _RELAYED & _parameters(function):
            for caller in self.calls:
                if _called(caller) == relay and self._function(caller) is not function:
                    given = self._given(function, caller)
                    yield from self._relayed(caller, call, kind, given)
            return
        yield from self._texts(site, kind, self.texts(what, call, env), fix, call, env)

    def _relayed(self, caller: ast.Call, call: ast.Call, kind: str, env: Env) -> Iterator[Place]:
        what, fix = self._arguments(call, kind)
        if what is None:
            return
        yield from self._texts(caller, kind, self.texts(what, call, env), fix, call, env)

    def _texts(  # noqa: PLR0917
        self,
        site: ast.Call,
        kind: str,
        texts: list[str],
        fix: ast.expr | None,
        call: ast.Call,
        env: Env,
    ) -> Iterator[Place]:
        fixes = self.texts(fix, call, env) if fix is not None else []
        words = " / ".join(text for text in fixes if text)
        code = _CODES.get(kind) or self.classes[kind]
        for text in texts:
            if text:
                ended = 130 if kind == "notify" and text.endswith("interrupted") else code
                yield self._place(site, kind, text, words, ended)

    def _arguments(self, call: ast.Call, kind: str) -> tuple[ast.expr | None, ast.expr | None]:
        first = 1 if kind in {"Problem", COMPLAINT} else 0
        what = call.args[first] if len(call.args) > first else None
        fix = call.args[first + 1] if len(call.args) > first + 1 else None
        return what, None if kind == "Problem" else fix

    def _given(self, function: Function, caller: ast.Call) -> Env:
        """What a call gives to the parameters of a relay."""
        names = [each.arg for each in function.args.args if each.arg != "self"]
        pairs = list(zip(names, caller.args, strict=False))
        pairs += [(each.arg, each.value) for each in caller.keywords if each.arg]
        return {
            name: self.texts(value, caller, {})
            for name, value in pairs
            if name in _RELAYED | {"fix", "doing"}
        }

    # Reasons in states.

    def _reasons(self) -> Iterator[Place]:
        if not self.name.startswith(("lab/task/", "lab/run/")):
            return
        for node in ast.walk(self.tree):
            for expression in _reason_in(node):
                for text in self.texts(expression, node, {}):
                    if re.search(r"[a-z]{3}", _HOLE.sub("", text)):
                        yield self._place(node, REASON, text, "", None)

    def _place(self, node: ast.AST, kind: str, text: str, fix: str, code: int | None) -> Place:
        function = self._function(node)
        lines = (node.lineno, node.end_lineno or node.lineno)  # type: ignore[attr-defined]
        name = "" if function is None else self._qualified(function)
        return Place(self.name, name, text, fix, kind, code, self._about(node), lines)

    # Texts.

    def texts(self, node: ast.AST, at: ast.AST, env: Env, depth: int = _DEPTH) -> list[str]:
        """Every text that an expression can be, as templates."""
        return list(dict.fromkeys(self._resolve(node, at, env, depth)))[:_MOST]

    def _resolve(self, node: ast.AST, at: ast.AST, env: Env, depth: int) -> list[str]:  # noqa: PLR0911
        hole = [f"⟨{_word(node)}⟩"]
        if depth == 0:
            return hole
        match node:
            case ast.Constant(value=str(text)):
                return [text.replace("{0}", "⟨name⟩")]
            case ast.JoinedStr(values=values):
                return _joined([self._part(each, at, env, depth - 1) for each in values])
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                both = [self._resolve(each, at, env, depth - 1) for each in (left, right)]
                return _joined(both)
            case ast.IfExp(body=body, orelse=orelse):
                sides = (self._resolve(each, at, env, depth - 1) for each in (body, orelse))
                return list(itertools.chain.from_iterable(sides))
            case ast.BoolOp(op=ast.Or(), values=values):
                sides = (self._resolve(each, at, env, depth - 1) for each in values)
                return list(itertools.chain.from_iterable(sides))
            case ast.Name(id=name):
                if name in env:
                    return env[name]
                found = [
                    self._resolve(value, at_value, env, depth - 1)
                    for value, at_value in self._assigned(name, at)
                ]
                return list(itertools.chain.from_iterable(found)) or hole
            case ast.Subscript(value=ast.Name(id=name)) if name in self.tables:
                return [text for text in self._table(name, 0) if text]
            case ast.Call() if _called(node) == "short" and node.args:
                return self._resolve(node.args[0], at, env, depth - 1)
            case ast.Call() if (function := self.functions.get(_called(node))) is not None:
                return self._returned(function, depth - 1) or hole
        return hole

    def _part(self, node: ast.expr, at: ast.AST, env: Env, depth: int) -> list[str]:
        """A part of an f-string: what is filled in stays a hole, unless it is itself a text."""
        if not isinstance(node, ast.FormattedValue):
            return self._resolve(node, at, env, depth)
        value = node.value
        if isinstance(value, ast.Subscript):
            return self._resolve(value, at, env, depth)
        if isinstance(value, ast.Name):
            if value.id in env:
                return env[value.id]
            for given, _ in self._assigned(value.id, at):
                if isinstance(given, ast.Subscript | ast.JoinedStr):
                    return self._resolve(given, at, env, depth)
        return [f"⟨{_word(value)}⟩"]

    def _table(self, name: str, index: int) -> Iterator[str]:
        for value in self.tables[name].values:
            chosen = value.elts[index] if isinstance(value, ast.Tuple) else value
            if isinstance(chosen, ast.Constant):
                yield str(chosen.value)

    def _returned(self, function: Function, depth: int) -> list[str]:
        found: list[str] = []
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None:
                if isinstance(node.value, ast.Constant) and node.value.value is None:
                    continue
                found += self._resolve(node.value, node, {}, depth)
        return found

    def _assigned(self, name: str, at: ast.AST) -> Iterator[tuple[ast.expr, ast.AST]]:
        """What a name can hold at a place: the last assignments that lead there, nearest first."""
        function = self._function(at)
        if function is None:
            return
        found: list[tuple[ast.AST, ast.expr]] = []
        for node in ast.walk(function):
            match node:
                case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                    found.append((node, value))
                case ast.Assign(
                    targets=[ast.Tuple(elts=[ast.Name(id=target), *_])],
                    value=ast.Subscript() as value,
                ) if target == name:
                    found.append((node, value))
                case ast.NamedExpr(target=ast.Name(id=target), value=value) if target == name:
                    found.append((node, value))
        line = at.lineno  # type: ignore[attr-defined]
        before = [pair for pair in found if pair[0].lineno <= line]  # type: ignore[attr-defined]
        for node, value in sorted(before, key=lambda pair: -pair[0].lineno):  # type: ignore[attr-defined]
            if self._diverge(node, at):
                continue
            yield value, node
            if self._leads(node, at):
                return

    def _above(self, node: ast.AST) -> list[ast.AST]:
        chain = [node]
        while chain[-1] in self.parents:
            chain.append(self.parents[chain[-1]])
        return chain

    def _diverge(self, one: ast.AST, other: ast.AST) -> bool:
        """Whether two statements stand in different branches of one `if`."""
        first, second = self._above(one), self._above(other)
        shared = next(node for node in first if node in second)
        if not isinstance(shared, ast.If) or shared in {one, other}:
            return False
        below = [chain[chain.index(shared) - 1] for chain in (first, second)]
        return (below[0] in shared.body and below[1] in shared.orelse) or (
            below[0] in shared.orelse and below[1] in shared.body
        )

    def _leads(self, one: ast.AST, other: ast.AST) -> bool:
        """Whether every path to the second node passes the first."""
        return self.parents[one] in self._above(other) and not self._diverge(one, other)

    # Where.

    def _function(self, node: ast.AST) -> Function | None:
        for each in self._above(node)[1:]:
            if isinstance(each, Function):
                return each
        return None

    def _qualified(self, function: Function) -> str:
        above = self._above(function)
        return ".".join(
            each.name for each in reversed(above) if isinstance(each, Function | ast.ClassDef)
        )

    def _about(self, node: ast.AST) -> str:
        """The first line of the nearest docstring above."""
        for each in self._above(node):
            if isinstance(each, Function | ast.ClassDef | ast.Module):
                text = ast.get_docstring(each)
                if text:
                    return text.splitlines()[0].strip().removesuffix(".")
        return ""


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _says_error(call: ast.Call) -> bool:
    """Whether a line that is said is an error of its own, not one that was raised."""
    text = ast.unparse(call.args[0]) if call.args else ""
    return "error: " in text and text != "f'error: {error}'"


def _is_passed_on(what: ast.expr) -> bool:
    """Whether a text is one that has its own place: a complaint's, or a description's problems."""
    text = ast.unparse(what)
    return (
        "complaint.what" in text
        or text == "problems"
        or text.startswith(("super()", "report(", "texts("))
    )


def _parameters(function: Function) -> set[str]:
    arguments = function.args
    return {each.arg for each in (*arguments.args, *arguments.kwonlyargs)}


def _reason_in(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that become the reason for a bad state."""
    match node:
        case ast.Call(args=arguments):
            yield from _behind_state(arguments)
        case ast.Tuple(elts=elements):
            yield from _behind_state(elements)
        case ast.Assign(targets=[ast.Name(id="reason") | ast.Attribute(attr="reason")]):
            if isinstance(node.value, ast.Constant | ast.JoinedStr):
                yield node.value


def _behind_state(elements: list[ast.expr]) -> Iterator[ast.expr]:
    for state, reason in itertools.pairwise(elements):
        match state:
            case ast.Attribute(value=ast.Name(id="State"), attr=name) if name in _BAD_STATES:
                yield reason


def _joined(parts: list[list[str]]) -> list[str]:
    return ["".join(each) for each in itertools.islice(itertools.product(*parts), _MOST)]


def _word(node: ast.AST) -> str:
    """A name for the value that an expression fills in."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.strip("_").replace("_", " ")
        case ast.Subscript(value=value):
            return _word(value)
        case ast.Call(args=[first, *_]):
            return _word(first)
        case ast.Call(func=function):
            return _word(function)
    return "…"
