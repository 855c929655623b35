"""Find out from its source what a program needs of TensorFlow, of GPUs and of the cluster."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

from lab.programs.python_source import imported_packages, names_in, texts_in
from lab.protocol.runtimes import HERITAGE, RUNTIMES

_WITH_PS: Final = frozenset(
    {"ParameterServerStrategy", "ParameterServerStrategyV1", "ParameterServerStrategyV2"}
)
STRATEGIES: Final = _WITH_PS | {"MultiWorkerMirroredStrategy", "CollectiveAllReduceStrategy"}
"""TensorFlow's strategies for several tasks."""

_FIT: Final = frozenset({"fit", "fit_generator"})

_KERAS_2: Final = re.compile(
    r"\b(?:(?:fit|predict|evaluate)_generator|CuDNN(?:LSTM|GRU)|set_session|(?:set_)?learning_phase"
    r"|(?:K|backend)\.(?:function|placeholder|get_session)|(?:layers|keras)\.experimental"
    r"|optimizers\.legacy|(?:Ada(?:delta|grad|m|max)|Nadam|RMSprop|SGD)\(lr=\))(?!\w)"
)
"""Names and arguments that Keras 2.15 has and Keras 3 does not."""


@dataclass(frozen=True, slots=True)
class Need:
    """Why a program needs `HERITAGE`, TensorFlow's last version with Keras 2.

    Attributes:
        what: What the program does: `imports Horovod`.
        fault: What happens with another version, after `which`; `{}` stands for that version.
    """

    what: str
    fault: str

    def notice(self, program: str, runtime: str, *, chosen: bool) -> str:
        """Return the notice about the runtime that a program runs with; "" if there is none.

        Args:
            program: The program's name.
            runtime: The name of the runtime.
            chosen: Whether the user has chosen it.
        """
        if runtime != HERITAGE.name:
            fault = self.fault.format(RUNTIMES[runtime].title)
            return f"{program} {self.what}, which {fault}; use --framework {HERITAGE.name}"
        return "" if chosen else f"{program} {self.what}: it runs with {HERITAGE.title}"


def needed_tf1(
    trees: Mapping[Path, ast.Module], tasks: int, *, tensorflow_1: bool = False
) -> Need | None:
    """Return why a program needs `HERITAGE`; None if it runs with TensorFlow's newest version.

    Args:
        trees: The syntax trees of the program and of the modules that it imports.
        tasks: The number of tasks in the cluster.
        tensorflow_1: Whether the program is for TensorFlow 1.
    """
    packages, names = imported_packages(trees), names_in(trees.values())
    if "horovod" in packages:
        return Need("imports Horovod", "{} lacks, so its tasks cannot form a ring")
    if uses_estimator(trees.values()):
        return Need("uses Estimator", "{} lacks")
    fits = not names.isdisjoint(_FIT)
    # Keras 3 has no parameter servers, and its `fit` does not accept the inputs of several workers.
    if tasks > 1 and fits and not names.isdisjoint(STRATEGIES):
        return Need("calls Keras's fit in a strategy for several tasks", "fails in {}")
    used = [name for tree in trees.values() for name, _ in _names(tree)]
    if "torch" in packages or not any("keras" in name for name in used):
        return None
    # Keras 3 trains in no graph of TensorFlow 1.
    if tensorflow_1 and fits:
        return Need("calls Keras's fit in a program for TensorFlow 1", "fails in {}")
    first = next(filter(None, map(_KERAS_2.search, used)), None)
    return first and Need(f"uses {first[0]} of Keras 2", "{} lacks")


def uses_estimator(trees: Iterable[ast.Module]) -> bool:
    """Return whether a program or one of its modules uses TensorFlow's Estimator."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr == "estimator")
        or (isinstance(node, ast.ImportFrom | ast.Import) and "estimator" in ast.unparse(node))
        for node in chain.from_iterable(map(ast.walk, trees))
    )


def has_coordinator(trees: Mapping[Path, ast.Module]) -> bool:
    """Return whether a chief assigns all steps: its workers serve, and never end by themselves.

    This is TensorFlow 2's ParameterServerStrategy. Estimator's workers train and end.

    Args:
        trees: The syntax trees of the program and of the modules that it imports.
    """
    names = names_in(trees.values())
    has_strategy = not names.isdisjoint(_WITH_PS) and not uses_estimator(trees.values())
    return has_strategy or "ClusterCoordinator" in names


_TENSORFLOW: Final = "tensorflow"

_ONLY_1: Final = re.compile(
    r"""(?:
    app|contrib|examples|flags|gfile|layers|logging|python_io
    |Session|InteractiveSession|ConfigProto|GPUOptions
    |(?:sparse_)?placeholder(?:_with_default)?|get_variable|variable_scope
    |all_variables|global_variables|trainable_variables|get_collection|GraphKeys
    |global_variables_initializer|initialize_all_variables|tables_initializer
    |get_default_graph|reset_default_graph|set_random_seed|random_normal|truncated_normal
    |assign|assign_add|to_float|to_int32|log|div|py_func|FIFOQueue|TFRecordReader
    |train\.(?:Server|Supervisor|Scaffold|Saver|Monitored\w*Session|replica_device_setter
        |SummaryWriter|string_input_producer|start_queue_runners
        |(?:get|create|get_or_create)_global_step|exponential_decay|\w+Optimizer(?:V2)?|\w+Hook)
    |nn\.(?:dynamic_rnn|rnn_cell)|summary\.(?:FileWriter|merge_all)
    |losses\.\w*softmax_cross_entropy
    )(?![^.])""",
    re.VERBOSE,
)
"""Names that TensorFlow 2 does not have; a program for TensorFlow 1 uses one of them at least."""

_ONLY_2: Final = frozenset({"function", "GradientTape", "Module", "config"})
"""Names of TensorFlow 2. A program with them uses TensorFlow 1's in some case, or by mistake."""

_GUARDS: Final = ("ImportError", "ModuleNotFoundError", "AttributeError", "Exception")
_VERSION: Final = re.compile(r"version|hasattr|tf_?[12]\b|_v[12]\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Use:
    """A use of what a runtime or a task may lack, such as TensorFlow 1.

    Attributes:
        what: What is used: `tf.placeholder`.
        file: The file, relative to the program's directory.
        line: Its line.
    """

    what: str
    file: Path
    line: int


def tensorflow_1_use(trees: Mapping[Path, ast.Module], python_2: Mapping[Path, int]) -> Use | None:
    """Return the first use of what only TensorFlow 1 has; None: the program is not for it.

    A use below a test of the version, or in a `try` that expects its failure, does not count. A
    program with names of TensorFlow 2 is not for TensorFlow 1.

    Args:
        trees: The program and its modules, by path relative to the program's directory.
        python_2: The files in Python 2, each with the first line that shows it. If the program
            imports TensorFlow, it is for version 1.
    """
    first: Use | None = None
    for file, tree in trees.items():
        bases = {*_aliases(tree), _TENSORFLOW}
        for name, line in _names(tree):
            base, _, member = name.partition(".")
            if base in bases and member.partition(".")[0] in _ONLY_2:
                return None
            if first is None and base in bases and (only_1 := _ONLY_1.match(member)):
                first = Use(f"{base}.{only_1[0]}", file, line)
    if first is None and _TENSORFLOW in imported_packages(trees):
        first = next((Use("Python 2", file, line) for file, line in python_2.items()), None)
    return first


def _aliases(tree: ast.Module) -> Set[str]:
    """Return the names of plain TensorFlow in a module; none that may also mean `compat.v1`."""
    plain, other = set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.alias):
            package, dot, _ = node.name.partition(".")
            is_plain = package == _TENSORFLOW and not (dot and node.asname)
            (plain if is_plain else other).add(node.asname or package)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            other.add(node.id)
    return plain - other


def _names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield each unguarded name with its line: `tf.train.Server`, `SGD(lr=)` for an argument."""
    queue: list[ast.AST] = [tree]
    while queue:
        node = queue.pop(0)
        names: list[str] = []
        if isinstance(node, ast.Attribute):
            names = [_dotted(node)]
        elif isinstance(node, ast.Call):
            names = [f"{_dotted(node.func)}({keyword.arg}=)" for keyword in node.keywords]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{each.name}" for each in node.names]
        for name in names:
            yield name, getattr(node, "lineno", 1)
        queue[:0] = _unguarded(node)


def _dotted(node: ast.expr) -> str:
    """Return a name with its attributes, `tf.train.Server`; it begins with a dot after a call."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return getattr(node, "id", "")


def _unguarded(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the children of a node that are executed whatever TensorFlow's version."""
    if isinstance(node, ast.If | ast.IfExp) and _VERSION.search(ast.unparse(node.test)):
        return
    if isinstance(node, ast.Try) and any(map(_expects_failure, node.handlers)):
        yield from node.finalbody
        return
    yield from ast.iter_child_nodes(node)


def _expects_failure(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or any(name in ast.unparse(handler.type) for name in _GUARDS)


# ---- GPUs

_CHOICE: Final = re.compile(r"cuda|gpu|cpu|device|nccl|gloo|backend|available", re.IGNORECASE)
"""What a test has with which a program chooses between GPUs and CPUs."""

_TESTS: Final = ("test", "iter", "subject")
"""The fields of nodes that decide whether other nodes are executed."""


def gpu_use(trees: Mapping[Path, ast.Module]) -> tuple[Use, ...]:
    """Return the calls of PyTorch that fail without a GPU; none if the program may leave them out.

    It may if it has such a test or names Gloo, in any place. A call in a `try` that expects errors
    does not count, nor does one in a function that is not used.

    Args:
        trees: The syntax trees of the program and of the modules that it imports.
    """
    used, optional = names_in(trees.values()), set[ast.AST]()
    for node in chain.from_iterable(map(ast.walk, trees.values())):
        tests = [node] if isinstance(node, ast.BoolOp) else []
        tests += filter(None, (getattr(node, field, None) for field in _TESTS))
        may_choose = any(_CHOICE.search(ast.unparse(test)) for test in tests)
        if may_choose or getattr(node, "value", None) == "gloo":
            return ()
        if isinstance(node, ast.Try) and node.handlers:
            optional.update(chain.from_iterable(map(ast.walk, node.body)))
        elif isinstance(node, ast.FunctionDef) and node.name not in used:
            optional.update(ast.walk(node))
    found = [
        Use(need, file, node.lineno)
        for file, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node not in optional
        for need in _needs(node)
    ]
    return tuple({use.what: use for use in reversed(found)}.values())[::-1]


def _needs(call: ast.Call) -> Iterator[str]:
    """Yield what a call needs of a GPU."""
    function = ast.unparse(call.func)
    if function == "torch.cuda.set_device":
        yield function
    elif function.rpartition(".")[2] == "init_process_group":
        backends = [*call.args[:1], *(each.value for each in call.keywords)]
        if any(getattr(value, "value", None) == "nccl" for value in backends):
            yield "backend nccl"


# ---- the cluster

_BUILDS_CLUSTER: Final = frozenset(
    {"ClusterSpec", "SimpleClusterResolver", "ClusterDef", "ClusterDeviceFilters", "Server"}
)
_ADDRESS: Final = re.compile(
    r"(?:grpc://)?(?!127\.|0\.0\.0\.0|localhost:)"
    r"(?P<host>\d{1,3}(?:\.\d{1,3}){3}|[A-Za-z][\w.-]*(?=:\d{4})):\d{1,5}"
)
"""An address of a server on another host; a name with a shorter number may be a device."""

_OF_JOB: Final = re.compile(r"-*(?:job_?name|task_?type|worker_?type|role(?:_?name)?|lab_task)")
"""A name or a text of a program that learns its job."""


def knows_its_job(trees: Sequence[ast.Module]) -> bool:
    """Whether a program names a flag or a variable with the job of its task."""
    words = names_in(trees) | texts_in(trees)
    return any(_OF_JOB.fullmatch(word.lower().replace("-", "_").lstrip("_")) for word in words)


def fixed_hosts_notice(program: str, trees: Sequence[ast.Module], nodes: Collection[str]) -> str:
    """Return the notice that a program's own cluster has addresses of other hosts, or "".

    Args:
        program: The program's name.
        trees: The syntax trees of the program and of the modules that it imports.
        nodes: The config's nodes, whose names are hosts.
    """
    texts = texts_in(trees)
    addresses = filter(None, (_ADDRESS.fullmatch(text) for text in sorted(texts)))
    address = next((found[0] for found in addresses if found["host"] not in nodes), None)
    gets_hosts = any(text.rstrip("=").endswith("hosts") for text in texts)
    has_cluster = not names_in(trees).isdisjoint(_BUILDS_CLUSTER)
    if address is None or gets_hosts or not has_cluster:
        return ""
    return (
        f"{program} has addresses of other hosts in its source, such as {address}: its tasks"
        " cannot find each other; replace them with NODE:PORT from the config"
    )
