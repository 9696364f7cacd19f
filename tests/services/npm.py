"""Packages of npm, installed from a lock file into the folder in which it lies."""

import fcntl
import subprocess
from pathlib import Path

from tests.services.process import ServiceFailed, find_program


def install_packages(folder: Path) -> None:
    """Install what a lock file names, unless it is there; only one process at a time does.

    Raises:
        MissingService: Node.js or npm is not installed.
        ServiceFailed: npm could not install it.
    """
    lock, installed = folder / "package-lock.json", folder / "node_modules" / ".package-lock.json"
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if installed.exists() and installed.stat().st_mtime >= lock.stat().st_mtime:
            return
        command = [find_program("npm", "npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServiceFailed(f"npm could not install the packages of {folder}:\n{done.stderr}")


def node(*arguments: str) -> list[str]:
    """Return the command that runs Node.js."""
    return [find_program("node", "nodejs"), *arguments]
