"""The package as npm installs it, from the lock file beside this one, into a folder that git ignores."""

from pathlib import Path
from typing import Final

from tests.services.npm import install_packages, node

FOLDER: Final = Path(__file__).parent
VERSION: Final = "2.9.5"


def install() -> None:
    """Install the package unless it is there.

    Raises:
        MissingService: Node.js or npm is not installed.
        ServiceFailed: npm could not install the package.
    """
    install_packages(FOLDER)


def node_command(script: str) -> list[str]:
    # The package was written for a Node.js whose ways have since been deprecated.
    return node("--no-deprecation", str(FOLDER / script))
