"""Generated text in a page, between the marks `<!-- name -->` and `<!-- end -->`."""

from __future__ import annotations

END = "<!-- end -->"


def put(page: str, name: str, text: str) -> str:
    """Return the page with a new text between the marks of this name.

    Raises:
        ValueError: The page lacks these marks.
    """
    head, begin, rest = page.partition(f"<!-- {name} -->\n")
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the marks of {name}")
    return f"{head}{begin}\n{text}\n{end}{tail}"
