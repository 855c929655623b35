"""Put a built site of the documents beside those of other versions of lab.

    python -m tools.site_versions BUILT SITE

The site of each version is a folder, such as 0.2. The page of SITE leads to the newest version.
The file versions.json is what the theme's list of versions reads. Only Python's library is used.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from lab import __version__


def add(built: Path, site: Path, version: str) -> None:
    """Add or replace a version.

    Args:
        built: The site of this version, by `make docs`.
        site: The directory with a folder for each version.
        version: The version of lab: `0.2.0` becomes the folder `0.2`.
    """
    name = version.rsplit(".", 1)[0]
    shutil.rmtree(site / name, ignore_errors=True)
    shutil.copytree(built, site / name)
    listed = site / "versions.json"
    others = json.loads(listed.read_text()) if listed.exists() else []
    versions = [each for each in others if each["version"] != name]
    versions.append({"version": name, "title": version, "aliases": []})
    versions.sort(key=lambda each: [int(part) for part in each["version"].split(".")], reverse=True)
    listed.write_text(json.dumps(versions, indent=1))
    newest = versions[0]["version"]
    refresh = f'<meta http-equiv="refresh" content="0; url={newest}/index.html">'
    (site / "index.html").write_text(f"<!doctype html><title>lab</title>{refresh}")


if __name__ == "__main__":
    add(Path(sys.argv[1]), Path(sys.argv[2]), __version__)
