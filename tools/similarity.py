"""Compare our programs with other files: how much of their text occurs there, too.

    python tools/similarity.py tests/tf1_programs benchmarks/book_loop.py --against FOLDER_OR_FILE

For each of our files it prints the share of its windows, of 8 tokens each, that occur in one of the
other files, for the files that share most, and the share that occurs in any of them. The exit code
is 1 where a share exceeds the limit, and 2 for wrong input.

What counts as a token: names, numbers, strings and operators, as they are written. Left out on both
sides is what does not change a program: comments, layout, triple-quoted texts, a comma before a
closing bracket; and 'a' counts as "a". So a copy cannot hide behind a formatter or new comments.
With --renamed all names that a program chooses count as equal, and so do all numbers and all
strings: that finds a copy with other names, but two programs that call the same library share far
more then (up to 40% of a program for TensorFlow 1 with twenty others together).

To repeat the comparison: put the public listings that you know into a folder outside the repository
and name it behind --against. Of a notebook (.ipynb) the code cells are read, of a page (.md) the
fenced blocks where it has any; of other files (.py, .txt) the whole text, of any Python version.
"""

from __future__ import annotations

import argparse
import json
import keyword
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

WINDOW: Final = 8
LIMIT_PERCENT: Final = 20.0
SUFFIXES: Final = frozenset({".py", ".ipynb", ".md", ".txt"})

_FENCED: Final = re.compile(r"^[ \t]*```[^\n]*\n(.*?)^[ \t]*```", re.MULTILINE | re.DOTALL)
_TOKEN: Final = re.compile(
    r'''
    (?P<left_out> \#[^\n]* | [rbufRBUF]{0,2}(?:"""|\'\'\')(?s:.*?)(?:"""|\'\'\')
                | ,(?=\s*(?:\#[^\n]*\s*)*[)\]}]) )
    | (?P<text> [rbufRBUF]{0,2}(?:"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\') )
    | (?P<other> \w+(?:\.\d\w*)? | \*\*=? | //=? | ->|:=|[-+*/%@&|^=!<>]=|<<|>>|<> | \S )
    ''',
    re.VERBOSE,
)

Window = tuple[str, ...]


class WrongInputError(Exception):
    """A path that cannot be compared; the message says which, and why."""


@dataclass(frozen=True, slots=True)
class Shares:
    """How much of one file occurs elsewhere.

    Attributes:
        path: The file.
        windows: The number of its windows; 0 for one with fewer tokens than a window.
        by_file: Percent of them that occur in each other file, the largest first.
        together: Percent of them that occur in any of the other files.
    """

    path: Path
    windows: int
    by_file: Sequence[tuple[Path, float]]
    together: float


def tokens(code: str) -> list[str]:
    """The tokens of a program's text, of whatever Python; see above for what is left out."""
    found = []
    for match in _TOKEN.finditer(code):
        if match["text"]:
            found.append(_double_quoted(match["text"]))
        elif match["other"]:
            found.append(match["other"])
    return found


def _double_quoted(text: str) -> str:
    prefix, quote, body = re.split(r"(['\"])", text[:-1], maxsplit=1)
    return text if quote == '"' or '"' in body else f'{prefix}"{body}"'


def renamed(found: Sequence[str]) -> list[str]:
    """The tokens with one name, one number and one string; attributes and keywords stay."""
    before = ["", *found]
    return [
        token if last == "." else _renamed(token)
        for last, token in zip(before, found, strict=False)
    ]


def _renamed(token: str) -> str:
    if token.endswith(("'", '"')):
        return '""'
    if token[0].isdigit():
        return "0"
    return "name" if token.isidentifier() and not keyword.iskeyword(token) else token


def windows(found: Sequence[str], size: int = WINDOW) -> list[Window]:
    """Each run of `size` tokens, in order; a run that occurs twice counts twice."""
    return [tuple(found[start : start + size]) for start in range(len(found) - size + 1)]


def code_of(path: Path) -> str:
    """What of a file is code: the cells of a notebook, the fenced blocks of a page, or everything.

    Raises:
        WrongInputError: It cannot be read, or is no notebook though it is called one.
    """
    try:
        text = path.read_text("utf-8", errors="replace")
        if path.suffix == ".ipynb":
            return "\n".join(_cells(json.loads(text)))
    except OSError as error:
        raise WrongInputError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise WrongInputError(f"{path} is no notebook; is it complete?") from None
    blocks = _FENCED.findall(text) if path.suffix == ".md" else []
    return "\n".join(blocks) or text


def _cells(notebook: Mapping[str, list[Mapping[str, str | list[str]]]]) -> Iterator[str]:
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            lines = "".join(cell["source"]).splitlines()
            yield "\n".join(line for line in lines if not line.lstrip().startswith(("%", "!")))


def files(paths: Iterable[Path]) -> list[Path]:
    """The files that are named, and those in the folders that are named, sorted.

    Raises:
        WrongInputError: A path does not exist, or a folder holds no file of a known kind.
    """
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise WrongInputError(f"{path} does not exist; check the path")
        inside = (
            [each for each in path.rglob("*") if each.suffix in SUFFIXES and each.is_file()]
            if path.is_dir()
            else [path]
        )
        if not inside:
            raise WrongInputError(
                f"{path} holds no file that ends in {', '.join(sorted(SUFFIXES))}"
            )
        found += sorted(inside)
    return list(dict.fromkeys(found))


def compare(
    ours: Iterable[Path],
    others: Iterable[Path],
    size: int = WINDOW,
    read: Callable[[str], Sequence[str]] = tokens,
) -> Iterator[Shares]:
    """The shares of each of our files.

    Args:
        ours: Our files.
        others: The files that they are compared with.
        size: Tokens of a window.
        read: Makes tokens of a file's code.

    Raises:
        WrongInputError: A file cannot be read.
    """
    theirs = {path: set(windows(read(code_of(path)), size)) for path in others}
    everything = set[Window]().union(*theirs.values())
    for path in ours:
        own = windows(read(code_of(path)), size)
        shares = [(other, _percent(own, its)) for other, its in theirs.items()]
        shares.sort(key=lambda share: (-share[1], share[0]))
        yield Shares(path, len(own), shares, _percent(own, everything))


def _percent(own: Sequence[Window], others: set[Window]) -> float:
    return 100 * sum(window in others for window in own) / len(own) if own else 0.0


def show(shares: Shares, top: int, limit: float) -> None:
    """Print the largest shares of a file, a line each; `!` marks those above the limit."""
    print(f"{shares.path} ({shares.windows} windows)")
    rows = [(share, str(other)) for other, share in shares.by_file[:top]]
    for share, name in [*rows, (shares.together, "all of them together")]:
        print(f"  {'!' if share > limit else ' '} {share:5.1f}%  {name}")


def main(words: Sequence[str] | None = None) -> int:
    """Compare what the command line names.

    Returns:
        0; 1 where a share exceeds the limit; 2 for a path that cannot be compared.
    """
    parser = argparse.ArgumentParser(
        description="How much of our programs occurs in other files, too.",
        epilog="Example: python tools/similarity.py tests/tf1_programs --against ../public",
    )
    parser.add_argument("ours", nargs="+", type=Path, help="our files, or folders of them")
    parser.add_argument(
        "--against", nargs="+", type=Path, required=True, help="other files, or folders of them"
    )
    parser.add_argument(
        "--limit", type=float, default=LIMIT_PERCENT, help="percent; 20 unless given"
    )
    parser.add_argument("--window", type=int, default=WINDOW, help="tokens; 8 unless given")
    parser.add_argument("--renamed", action="store_true", help="let all names count as equal")
    parser.add_argument("--top", type=int, default=3, help="files shown for each; 3 unless given")
    flags = parser.parse_args(words)
    if flags.window < 1:
        parser.error("--window must be at least 1")
    read = (lambda code: renamed(tokens(code))) if flags.renamed else tokens
    over = 0
    try:
        for shares in compare(files(flags.ours), files(flags.against), flags.window, read):
            show(shares, flags.top, flags.limit)
            over += shares.together > flags.limit
    except WrongInputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if over:
        print(f"{over} above {flags.limit:g}%")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
