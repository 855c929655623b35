"""Compare our programs with other files: compute the share of their text that occurs there.

    python tools/similarity.py tests/tf1_programs benchmarks/book_loop.py --against FOLDER_OR_FILE

A window is 8 consecutive tokens. For each of our files the tool prints the share of its windows
that occur in each of the most similar files, and the share that occurs in any file. The exit code
is 1 if a share exceeds the limit, and 2 for wrong input.

Tokens are names, numbers, strings and operators, as written. Comments, layout, triple-quoted texts
and a comma before a closing bracket are ignored, and 'a' equals "a". So a formatter or new comments
do not hide a copy. With --renamed all names that a program chooses are equal. So are all numbers
and all strings. This finds a copy with other names, but programs for the same library then share
more (up to 40% of a TensorFlow 1 program with twenty others together).

To repeat the comparison, put public listings into a folder outside the repository and pass it to
--against. The tool reads the code cells of a notebook (.ipynb) and the fenced blocks of a page
(.md). It reads the whole text of pages without blocks and of other files, of any Python version.
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
    """A path that cannot be compared; the message has the path and the reason."""


@dataclass(frozen=True, slots=True)
class Shares:
    """The shares of one file that occur in other files.

    Attributes:
        path: The file.
        windows: The number of its windows; 0 if it has fewer tokens than a window.
        by_file: Percent of its windows that occur in each other file, the largest first.
        together: Percent of its windows that occur in any other file.
    """

    path: Path
    windows: int
    by_file: Sequence[tuple[Path, float]]
    together: float


def tokens(code: str) -> list[str]:
    """Return the tokens of a program's text, of any Python version; see the module's text."""
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
    """Replace all names, numbers and strings by one each; attributes and keywords stay."""
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
    """Return each sequence of `size` tokens, in order; repeated sequences are repeated."""
    return [tuple(found[start : start + size]) for start in range(len(found) - size + 1)]


def code_of(path: Path) -> str:
    """Return the code of a file: a notebook's cells, a page's fenced blocks, or the whole text.

    Raises:
        WrongInputError: The file cannot be read, or it is an invalid `.ipynb` file.
    """
    try:
        text = path.read_text("utf-8", errors="replace")
        if path.suffix == ".ipynb":
            return "\n".join(_cells(json.loads(text)))
    except OSError as error:
        raise WrongInputError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise WrongInputError(f"{path} is not a notebook; check that it is complete") from None
    blocks = _FENCED.findall(text) if path.suffix == ".md" else []
    return "\n".join(blocks) or text


def _cells(notebook: Mapping[str, list[Mapping[str, str | list[str]]]]) -> Iterator[str]:
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            lines = "".join(cell["source"]).splitlines()
            yield "\n".join(line for line in lines if not line.lstrip().startswith(("%", "!")))


def files(paths: Iterable[Path]) -> list[Path]:
    """Return the named files, and the files in the named folders, sorted.

    Raises:
        WrongInputError: A path does not exist, or a folder has no file of a known kind.
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
                f"{path} has no file that ends in {', '.join(sorted(SUFFIXES))}; name another"
            )
        found += sorted(inside)
    return list(dict.fromkeys(found))


def compare(
    ours: Iterable[Path],
    others: Iterable[Path],
    size: int = WINDOW,
    read: Callable[[str], Sequence[str]] = tokens,
) -> Iterator[Shares]:
    """Yield the shares of each of our files.

    Args:
        ours: Our files.
        others: The files to compare them with.
        size: The number of tokens in a window.
        read: Splits a file's code into tokens.

    Raises:
        WrongInputError: A file cannot be read.
    """
    theirs = {path: set(windows(read(code_of(path)), size)) for path in others}
    union = set[Window]().union(*theirs.values())
    for path in ours:
        own = windows(read(code_of(path)), size)
        shares = [(other, _percent(own, its)) for other, its in theirs.items()]
        shares.sort(key=lambda share: (-share[1], share[0]))
        yield Shares(path, len(own), shares, _percent(own, union))


def _percent(own: Sequence[Window], others: set[Window]) -> float:
    return 100 * sum(window in others for window in own) / len(own) if own else 0.0


def show(shares: Shares, top: int, limit: float) -> None:
    """Print the largest shares of a file, a line each; `!` marks a share above the limit."""
    print(f"{shares.path} ({shares.windows} windows)")
    rows = [(share, str(other)) for other, share in shares.by_file[:top]]
    for share, name in [*rows, (shares.together, "all of them together")]:
        print(f"  {'!' if share > limit else ' '} {share:5.1f}%  {name}")


def main(argv: Sequence[str] | None = None) -> int:
    """Compare the files that the command line names.

    Returns:
        0; 1 if a share exceeds the limit; 2 for a path that cannot be compared.
    """
    parser = argparse.ArgumentParser(
        description="Compute the share of our programs that occurs in other files.",
        epilog="Example: python tools/similarity.py tests/tf1_programs --against ../public",
    )
    parser.add_argument("ours", nargs="+", type=Path, help="our files or folders")
    parser.add_argument(
        "--against", nargs="+", type=Path, required=True, help="the other files or folders"
    )
    parser.add_argument(
        "--limit", type=float, default=LIMIT_PERCENT, help="the limit in percent (default: 20)"
    )
    parser.add_argument(
        "--window", type=int, default=WINDOW, help="tokens in a window (default: 8)"
    )
    parser.add_argument(
        "--renamed", action="store_true", help="treat all names, numbers and strings as equal"
    )
    parser.add_argument(
        "--top", type=int, default=3, help="other files to show for each file (default: 3)"
    )
    flags = parser.parse_args(argv)
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
