"""Complete the command line of a user's program at the moment its own parser reads it.

A parser refuses unknown flags, so a program gets values only for flags that it declares, in its own
spelling. The parser knows them when it parses `sys.argv[1:]`, however the program declares them.
Flags that the user gave stay as they are. The completed arguments are written back to `sys.argv`,
so that child processes get them, too. A program that reads `sys.argv` by hand gets nothing.

The parsers are those of argparse, absl (`tf.app.flags`), optparse and click.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final

from lab.base.variables import LAB_CLUSTER, LAB_RUN_DIR
from lab.task.after_import import after_import
from lab.task.flag_meanings import INDEX, JOB, OTHER, TEXT, UNTYPED, WHOLE, Flag, Place

_KINDS: Final[Mapping[object, str]] = {int: WHOLE, str: TEXT, float: OTHER, bool: OTHER}

_BUILDS_CLUSTER: Final = re.compile(
    r"\b(ClusterSpec|SimpleClusterResolver|ClusterDef|ClusterDeviceFilters"
    r"|(train|distribute)\.Server)\b"
)
_KNOWS_PLACE: Final = re.compile(
    r"TF_CONFIG|TFConfigClusterResolver|RunConfig|train_and_evaluate|model_to_estimator"
    r"|learn_runner|ParameterServerStrategy|MultiWorkerMirroredStrategy|CollectiveAllReduce"
    r"|\bestimator\b|horovod|gethostname|getfqdn|uname\b|SlurmClusterResolver"
    r"|LAB_TASK|HOSTNAME|(?:SLURM|OMPI|PMI)_[A-Z]"
)
"""Names in the source of a program that learns its place in the cluster without flags."""

RANK_PLACEHOLDERS: Final[Mapping[str, str]] = {
    "{rank}": "RANK",
    "{local_rank}": "LOCAL_RANK",
    "{size}": "WORLD_SIZE",
}
"""The placeholders of a rank, and the variables that torchrun sets in each of its processes."""

QUIET: Final = "--quiet"
"""The switch of the modules that start a program: no warning."""


# ---- The command line.


class Completion:
    """Completes the command line of this process for each parser that reads it.

    Attributes:
        depth: The number of parsers that are parsing; a subcommand's is the second.
        rests: The arguments that parsers have left to others.
    """

    def __init__(self, environ: Mapping[str, str], *, is_quiet: bool) -> None:
        """Read the place of the process in the cluster from its variables.

        Args:
            environ: The variables. A task with several GPUs has a process for each of them, and
                its framework gives each process a rank.
            is_quiet: Whether it does not warn if the program cannot know its place.
        """
        self.depth = 0
        self.rests: list[list[str]] = []
        self._place = Place(environ)
        self._folder = Path(environ.get(LAB_RUN_DIR, ""), "program")
        self._is_quiet = is_quiet
        self._flags: list[Flag] = []
        self._chosen: dict[str, Flag] = {}

    def reads(self, args: Sequence[str] | None) -> bool:
        """Whether these arguments of a parser are the process's own.

        They may be what an earlier parser has left, or belong to a subcommand.
        """
        if args is None or list(args) in (sys.argv[1:], *self.rests):
            return True
        return self.depth > 0 and list(args) == sys.argv[len(sys.argv) - len(args) :]

    def complete(self, args: Sequence[str] | None, flags: Sequence[Flag]) -> list[str]:
        """Return a parser's own arguments, completed, and write what is new to `sys.argv`.

        Args:
            args: The arguments, which the process `reads`.
            flags: The flags that the parser declares.
        """
        old = sys.argv[1:] if args is None else list(args)
        self._flags += [flag for flag in flags if flag not in self._flags]
        self._chosen = self._place.choose(self._flags, builds=self._builds_cluster())
        new = [*self._new_arguments(old, flags)]
        start = len(sys.argv) - len(old) if self.depth else 1
        written = [tokens for tokens in new if tokens[0] not in sys.argv]
        sys.argv[start:start] = chain.from_iterable(written)
        return [*chain.from_iterable(new), *old]  # the user's come last, so they win

    def warn(self) -> None:
        """Print once, into the task's log, if no parser's flags tell the program its place."""
        if not self._is_quiet and (notice := self._notice()):
            print(f"warning: {notice}", file=sys.stderr, flush=True)
        self._is_quiet = True

    def _new_arguments(self, old: Sequence[str], flags: Sequence[Flag]) -> Iterator[list[str]]:
        """Yield the arguments of each flag, those for positional arguments first."""
        words = {token.partition("=")[0] for token in old}
        values = {
            flag: self._place.values(meaning, self._chosen, self._flags)
            for meaning, flag in self._chosen.items()
            if flag in flags and words.isdisjoint(flag.options)
        }
        positional = [flag for flag in flags if not flag.options]
        if all(flag in values for flag in positional) and not _has_positional(old):
            yield from (values[flag] for flag in positional)
        # No positional argument may follow a flag that takes several.
        for flag in sorted(values, key=lambda flag: flag.many != "after"):
            if flag.options and values[flag]:
                yield from _written(flag, values[flag])

    def _builds_cluster(self) -> bool:
        """Whether a loaded module of the program names TensorFlow's cluster or server."""
        files = [getattr(module, "__file__", None) for module in [*sys.modules.values()]]
        own = [Path(file) for file in files if file and Path(file).is_relative_to(self._folder)]
        return _names(own, _BUILDS_CLUSTER)

    def _notice(self) -> str:
        """Return the warning that the program cannot know its place; "" if it may."""
        cluster = self._place.cluster
        needed = [JOB] * (len(cluster) > 1)
        needed += [INDEX] * any(len(tasks) > 1 for tasks in cluster.values())
        missing = [meaning for meaning in needed if meaning not in self._chosen]
        # All tasks have the same program: one of them warns.
        first = next((job for job in cluster if job != "ps"), "ps")
        is_first = self._place.task == f"{first}-0"
        if not missing or not is_first or _names(self._folder.rglob("*.py"), _KNOWS_PLACE):
            return ""
        placeholders = " and ".join(f"{{{meaning}}}" for meaning in missing)
        return (
            f"{Path(sys.argv[0]).name} declares no flag that lab knows for its"
            f" {' or '.join(missing)}, and does not read TF_CONFIG: its tasks would all start"
            f" identically; write {placeholders} after --, as in --name={{{missing[0]}}}"
        )


def _names(files: Iterable[Path], pattern: re.Pattern[str]) -> bool:
    return any(
        file.is_file() and pattern.search(file.read_text("utf-8", "replace")) for file in files
    )


def _has_positional(args: Sequence[str]) -> bool:
    """Whether one of the user's arguments is neither a flag nor directly behind one."""
    pairs = pairwise(["", *args])
    return any(
        not token.startswith("-") and (not before.startswith("-") or "=" in before)
        for before, token in pairs
    )


def _written(flag: Flag, values: Sequence[str]) -> Iterator[list[str]]:
    option = flag.options[0]
    if flag.many == "after":
        yield [option, *values]
    elif option.startswith("--"):
        yield from ([f"{option}={value}"] for value in values)
    else:  # optparse takes `-j=worker` as "=worker"
        yield from ([option, value] for value in values)


# ---- The parsers.


def complete_flags(environ: Mapping[str, str], *, is_quiet: bool) -> None:
    """Complete the command line in each parser that the program uses, if the task has a cluster.

    Args:
        environ: The environment variables of the process.
        is_quiet: As in `Completion`.
    """
    if LAB_CLUSTER not in environ:
        return
    completion = Completion(environ, is_quiet=is_quiet)
    for name, hook in _HOOKS.items():
        action = functools.partial(hook, completion)
        if (module := sys.modules.get(name)) is not None:
            action(module)
        else:
            after_import({name}, action)


def _hook(
    completion: Completion,
    owner: Any,
    method: str,
    argument: str,
    flags_of: Callable[[Mapping[str, Any]], Iterable[Flag]],
    *,
    rest_of: Callable[[Any], list[str]] | None = None,
    is_last: Callable[[Mapping[str, Any]], bool] = lambda _: True,
    head: int = 0,
    depth: int = 1,
) -> None:
    """Let a method of a parser parse the completed arguments.

    Args:
        completion: What completes them.
        owner: The class or module of the method.
        method: The method's name.
        argument: The name of its parameter with the arguments.
        flags_of: Returns the declared flags; it receives the parameters of the call.
        rest_of: Returns the arguments that the method leaves to other parsers, from its result.
        is_last: Whether no other parser follows, so that all flags are known.
        head: The number of arguments before those of the command line.
        depth: 0 if the method leaves the work to another one.
    """
    parse = getattr(owner, method)
    signature = inspect.signature(parse)

    @functools.wraps(parse)
    def parse_completed(*values: Any, **named: Any) -> Any:
        call = signature.bind(*values, **named)
        args = call.arguments.get(argument)
        own = args[head:] if args else args
        if not completion.reads(own):
            return parse(*values, **named)
        completed = completion.complete(own, [*flags_of(call.arguments)])
        call.arguments[argument] = [*(args or ())[:head], *completed]
        completion.depth += depth
        try:
            result = parse(*call.args, **call.kwargs)
        finally:
            completion.depth -= depth
        if rest_of is not None:
            completion.rests.append(rest_of(result))
        if is_last(call.arguments):
            completion.warn()
        return result

    setattr(owner, method, parse_completed)


def _flag(  # noqa: PLR0917  (all parsers have all of them)
    options: Iterable[str], name: str | None, kind: str, many: str, choices: object, default: object
) -> Flag:
    """Make a flag; its default shows the kind of an untyped one."""
    spellings = sorted(options, key=lambda option: not option.startswith("--"))
    if kind == UNTYPED:
        kind = _KINDS.get(type(default), UNTYPED)
    listed = choices if isinstance(choices, list | tuple | set | frozenset) else ()
    defaults = default if isinstance(default, list | tuple) else [default]
    return Flag(
        options=tuple(spellings),
        names=tuple(_plain(spelling) for spelling in (*spellings, name) if spelling),
        kind=kind,
        many=many,
        choices=tuple(value for value in listed if isinstance(value, str)),
        default=",".join(str(value) for value in defaults if type(value) in {str, int}),
    )


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def _hook_argparse(completion: Completion, module: Any) -> None:
    def flag_of(action: Any) -> Flag:
        is_special = action.nargs in {0, module.PARSER, module.REMAINDER}
        kind = OTHER if is_special else _KINDS.get(action.type, UNTYPED)
        many = "repeated" if isinstance(action, module._AppendAction) else ""
        many = many if action.nargs in {None, 0, "?"} else "after"
        names = action.option_strings, action.dest
        default = None if action.default is module.SUPPRESS else action.default
        return _flag(*names, kind, many, action.choices, default)

    parser = module.ArgumentParser
    _hook(
        completion, parser, "parse_known_args", "args",
        lambda call: map(flag_of, call["self"]._actions),
        rest_of=lambda result: result[1], is_last=lambda _: False,
    )  # fmt: skip
    _hook(completion, parser, "parse_args", "args", lambda _: (), depth=0)


def _hook_absl(completion: Completion, module: Any) -> None:
    kinds = {"string": TEXT, "string enum": TEXT, "int": WHOLE, "multi string": TEXT}
    kinds["comma separated list of strings"] = TEXT

    def flags_of(call: Mapping[str, Any]) -> Iterator[Flag]:
        for name, flags in call["self"].flags_by_module_dict().items():
            for flag in flags if name.partition(".")[0] not in {"absl", "tensorflow"} else ():
                options = f"--{flag.name}", f"-{flag.name}"
                kind = kinds.get(flag.flag_type(), OTHER)
                many = "repeated" if flag.flag_type().startswith("multi") else ""
                choices = getattr(flag.parser, "enum_values", ())
                yield _flag(options, None, kind, many, choices, flag.default)

    _hook(
        completion, module.FlagValues, "__call__", "argv", flags_of,
        rest_of=lambda result: result[1:], head=1,
    )  # fmt: skip


def _hook_optparse(completion: Completion, module: Any) -> None:
    kinds = {"string": UNTYPED, "int": WHOLE, "choice": TEXT}

    def flags_of(call: Mapping[str, Any]) -> Iterator[Flag]:
        for option in call["self"]._get_all_options():
            options = *option._long_opts, *option._short_opts
            kind = kinds.get(option.type, OTHER) if option.nargs in {None, 1} else OTHER
            many = "repeated" if option.action == "append" else ""
            default = call["self"].defaults.get(option.dest)
            yield _flag(options, option.dest, kind, many, option.choices, default)

    parser = module.OptionParser
    _hook(completion, parser, "parse_args", "args", flags_of, rest_of=lambda result: result[1])


def _hook_click(completion: Completion, module: Any) -> None:
    kinds = {"integer": WHOLE, "integer range": WHOLE, "text": UNTYPED, "choice": TEXT}

    def flag_of(param: Any) -> Flag:
        options = param.opts if param.param_type_name == "option" else ()
        kind = kinds.get(param.type.name, OTHER) if param.nargs == 1 else OTHER
        if getattr(param, "is_flag", False) or getattr(param, "count", False):
            kind = OTHER
        many = "repeated" if param.multiple else ""
        return _flag(
            options, param.name, kind, many, getattr(param.type, "choices", ()), param.default
        )

    command = module.Command
    _hook(completion, command, "main", "args", lambda _: (), is_last=lambda _: False)
    _hook(
        completion, command, "parse_args", "args",
        lambda call: map(flag_of, call["self"].get_params(call["ctx"])),
        is_last=lambda call: not isinstance(call["self"], module.Group),
    )  # fmt: skip


_HOOKS: Final[Mapping[str, Callable[[Completion, Any], None]]] = {
    "argparse": _hook_argparse,
    "absl.flags._flagvalues": _hook_absl,
    "optparse": _hook_optparse,
    "click.core": _hook_click,
}


# ---- `tf.app.flags` of TensorFlow 1.0 to 1.4.

_VALUES: Final = frozenset({"true", "false", "t", "f", "yes", "no", "1", "0"})


def restore_flags(values: Any) -> None:
    """Make absl's flags, `tf.app.flags` since TensorFlow 1.5, behave like those of 1.0 to 1.4.

    - A program may declare a flag that a library has declared before, such as `log_dir`.
    - Undeclared arguments are ignored.
    - `--flag False` sets a boolean flag, as `--flag=False` does.
    - `FLAGS._parse_flags()` parses the command line.

    Args:
        values: The flags that the libraries have declared, and the program will declare.
    """
    for name in values:
        values[name].allow_override = True
    # Python finds the method that a call uses in the class, not in the object.
    kind: Any = type(values)
    original_call = kind.__call__

    @functools.wraps(original_call)
    def parse(self: Any, argv: Sequence[str], known_only: bool = True) -> list[str]:
        del known_only
        rest: list[str] = original_call(self, _joined(self, argv), known_only=True)
        return rest

    kind.__call__ = parse
    kind._parse_flags = lambda self, args=None: self(sys.argv if args is None else args)


def _joined(values: Any, argv: Sequence[str]) -> list[str]:
    """Return the arguments; the value of a boolean flag is joined to the flag."""
    joined: list[str] = []
    for argument in argv:
        name = joined[-1].lstrip("-") if joined and joined[-1].startswith("-") else ""
        if name in values and values[name].boolean and argument.lower() in _VALUES:
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined
