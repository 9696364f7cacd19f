"""How the command line speaks: errors in one line, and never a password."""

import re

import typer

from onebus.errors import BusError

_LOGIN = re.compile(r"(://[^\s:/@\[]*):\S*@")
_SECRET_PARAMETER = re.compile(r"([?&][a-z_]*(?:password|passwd|secret|token)=)[^&\s]*", re.IGNORECASE)


def redacted(text: str) -> str:
    """Return `text` with the passwords of all URLs in it blotted out."""
    return _SECRET_PARAMETER.sub(r"\1***", _LOGIN.sub(r"\1:***@", text))


def one_line(error: BusError) -> str:
    """Return what an error says as one line without passwords."""
    return redacted(" ".join(str(error).split()))


def print_error(error: BusError, place: str = "") -> None:
    """Print an error to stderr as ``error[code]: text``, maybe with the place it concerns; in red on a terminal."""
    text = f"{place}: {one_line(error)}" if place else one_line(error)
    typer.secho(f"error[{error.code}]: {text}", fg="red", err=True)
