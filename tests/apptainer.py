"""A real Apptainer for the tests, from Debian's unstable packages, and an image with Python.

Only Debian unstable has Apptainer. Its packages are unpacked into a directory of the tests, with
the libraries that they need: nothing of this host changes.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from tests.engine import base_tar, install, run

PACKAGES = ("apptainer", "libc6", "libseccomp2", "libsqlite3-0")
SOURCES = (
    "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    " http://deb.debian.org/debian sid main\n"
)
SITE = "/opt/site"
"""Where the packages of the tests' Python are in the image."""


def install_apptainer(home: Path) -> Path:
    """Install Apptainer below a directory; the directory of its command.

    Raises:
        NoEngine: It cannot be installed.
    """
    install("patchelf")
    for name in ("lists/partial", "archives/partial", "packages"):
        (home / name).mkdir(parents=True)
    (home / "sources.list").write_text(SOURCES)
    options = (
        *("-o", f"Dir::Etc::sourcelist={home}/sources.list", "-o", "Dir::Etc::sourceparts=-"),
        *("-o", f"Dir::State::lists={home}/lists", "-o", "Dir::State::status=/dev/null"),
        *("-o", f"Dir::Cache::archives={home}/archives", "-o", "APT::Sandbox::User=root"),
    )
    run(["apt-get", *options, "update", "-q"])
    run(["env", "-C", home / "packages", "apt-get", *options, "download", "-q", *PACKAGES])
    for package in (home / "packages").iterdir():
        run(["dpkg-deb", "--extract", package, home])
    # Debian's binaries find their configuration and their state relative to their own place.
    shutil.move(home / "etc", home / "usr")
    (libraries,) = (home / "usr/lib").glob("*-linux-gnu*")
    (home / "usr/lib/var/lib/apptainer/mnt/session").mkdir(parents=True)
    (loader,) = libraries.glob("ld-linux*")
    command = home / "usr/bin/apptainer"
    for binary in (command, libraries / "apptainer/bin/starter"):
        # Not `runpath`: the libraries' own libraries are there, too.
        run(
            [
                "patchelf",
                "--set-interpreter",
                loader,
                "--force-rpath",
                "--set-rpath",
                libraries,
                binary,
            ]
        )
    # This host may lack a capability of root, and Apptainer then cannot grant all of them.
    configuration = home / "usr/etc/apptainer/apptainer.conf"
    text = configuration.read_text()
    assert "\nroot default capabilities = full\n" in text
    configuration.write_text(text.replace("capabilities = full", "capabilities = no"))
    return command.parent


def make_image(image: Path) -> dict[str, str]:
    """Make an image with Debian's Python, as a directory; the variables that bind its packages.

    TensorFlow is not copied: the image gets it from the tests' environment.

    Raises:
        NoEngine: It cannot be made.
    """
    image.mkdir()
    run(["tar", "--extract", f"--directory={image}", f"--file={base_tar()}"])
    (image / "usr/lib/python3/dist-packages/site.pth").write_text(f"{SITE}\n")
    (image / "image").write_text("of the tests")
    (image / SITE[1:]).mkdir(parents=True)
    # As in an image that was made from one of Docker: a lab of its own, which must not be used.
    (image / "lab/lab").mkdir(parents=True)
    (image / "lab/lab/__init__.py").write_text("raise ImportError('the lab of the image')\n")
    variables = image / ".singularity.d/env/10-docker2singularity.sh"
    variables.parent.mkdir(parents=True)
    variables.write_text('export PYTHONPATH="${PYTHONPATH:-/lab}"\n')
    tensorflow = importlib.util.find_spec("tensorflow")
    assert tensorflow is not None
    assert tensorflow.origin is not None
    packages = Path(tensorflow.origin).parents[1]
    # With `contain`, the image sees nothing of this host but what is bound.
    return {"APPTAINER_BIND": f"{packages}:{SITE}", "APPTAINER_CONTAIN": "1"}
