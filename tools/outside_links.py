"""List the links that lead out of the documents' site, with the pages that have them.

    python -m tools.outside_links [--request]    after `make docs`; --request also opens each link

It fails if a link is malformed or not encrypted, or, with --request, if a link does not answer.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from html import unescape
from pathlib import Path
from re import findall
from typing import Final
from urllib.parse import urlsplit

import requests

SITE: Final = Path(__file__).resolve().parents[1] / "build/docs"


def links(site: Path) -> dict[str, list[str]]:
    """Return the pages of each link of the text of pages."""
    found = defaultdict(list)
    for page in sorted(site.rglob("*.html")):
        text = page.read_text("utf-8").partition("<article")[2].partition("</article")[0]
        for link in sorted(set(findall(r'href="(\w+://[^"]*|//[^"]*)"', text))):
            found[unescape(link)].append(page.relative_to(site).as_posix())
    return dict(sorted(found.items()))


def fault(link: str) -> str:
    """Return what is wrong with a link; "" if nothing is."""
    try:
        parts = urlsplit(link)
        known = "." in (parts.hostname or "") and parts.port != 0
    except ValueError as error:
        return f"malformed: {error}"
    if parts.scheme != "https":
        return "not https"
    return "" if known and not set(" <>`'\"") & set(link) else "malformed"


def answer(link: str) -> str:
    """Request a link; return what is wrong with the answer, or ""."""
    try:
        status = requests.get(link, timeout=30, stream=True).status_code
    except requests.RequestException as error:
        return type(error).__name__
    # A site that refuses programs, or so many requests, has the page.
    return "" if status in {200, 403, 429} else f"status {status}"


def main() -> None:
    """Print all links and their faults."""
    found = links(SITE)
    faults = {link: fault(link) or ("--request" in sys.argv and answer(link)) for link in found}
    for link, pages in found.items():
        print(link, *pages, f"FAULT: {faults[link]}" if faults[link] else "", sep="  ")
    sys.exit(any(faults.values()) or not found)


if __name__ == "__main__":
    main()
