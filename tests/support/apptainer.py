"""A real Apptainer for the tests, from Debian's unstable packages, and an image with Python.

Only Debian unstable has Apptainer. Its packages are unpacked into a directory of the tests, with
the libraries that they need: nothing of this host changes.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

from tests.support.engine import base_tar, install, run

PACKAGES = ("apptainer", "libc6", "libseccomp2", "libsqlite3-0")
SOURCES = (
    "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    " http://deb.debian.org/debian sid main\n"
)
VARIABLES = """\
export PATH="/opt/venv/bin:/usr/bin:/bin"
export PYTHONPATH="${PYTHONPATH:-/lab}"
"""


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


def make_image(apptainer: Path, image: Path) -> dict[str, str]:
    """Make an image, as a directory; the variables that bind the tests' Python and its packages.

    It is as one that is made from the containers' image: Python is in /opt/venv, and a `lab` of
    its own, which must not be used, is in /lab. TensorFlow is not copied.

    Raises:
        NoEngine: It cannot be made.
    """
    root = image.with_name("root")
    root.mkdir()
    run(["tar", "--extract", f"--directory={root}", f"--file={base_tar()}"])
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site, python = f"/opt/venv/lib/{version}/site-packages", Path(sys.base_prefix)
    for name in (site, "/opt/venv/bin", "/lab/lab", "/.singularity.d/env"):
        (root / name[1:]).mkdir(parents=True)
    (root / "opt/venv/bin/python3").symlink_to(python / "bin/python3")
    (root / "opt/venv/pyvenv.cfg").write_text(f"home = {python}/bin\n")
    (root / "lab/lab/__init__.py").write_text("raise ImportError('the lab of the image')\n")
    (root / "image").write_text("of the tests")
    (root / ".singularity.d/env/10-docker2singularity.sh").write_text(VARIABLES)
    run([apptainer / "apptainer", "build", "--sandbox", image, root])
    shutil.rmtree(root)
    tensorflow = importlib.util.find_spec("tensorflow")
    assert tensorflow is not None
    assert tensorflow.origin is not None
    binds = [f"{Path(tensorflow.origin).parents[1]}:{site}"]
    if python != Path("/usr"):
        binds.append(str(python))
    # With `contain`, the image sees nothing of this host but what is bound.
    return {"APPTAINER_BIND": ",".join(binds), "APPTAINER_CONTAIN": "1"}
