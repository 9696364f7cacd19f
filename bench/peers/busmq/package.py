"""The package as npm installs it, from the lock file beside this one, into a folder that git ignores."""

import subprocess
from pathlib import Path
from typing import Final

from tests.services.process import ServiceFailed, find_program

FOLDER: Final = Path(__file__).parent
VERSION: Final = "2.9.5"
_LOCK: Final = FOLDER / "package-lock.json"
_INSTALLED: Final = FOLDER / "node_modules" / ".package-lock.json"


def install() -> None:
    """Install the package unless it is there.

    Raises:
        MissingService: Node.js or npm is not installed.
        ServiceFailed: npm could not install the package.
    """
    if _INSTALLED.exists() and _INSTALLED.stat().st_mtime >= _LOCK.stat().st_mtime:
        return
    command = [find_program("npm", "npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServiceFailed(f"npm could not install busmq {VERSION}:\n{done.stderr}")


def node_command(script: str) -> list[str]:
    # The package was written for a Node.js whose ways have since been deprecated.
    return [find_program("node", "nodejs"), "--no-deprecation", str(FOLDER / script)]
