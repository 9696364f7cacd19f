"""Options as somebody gave them: text by name, in whatever case. What nobody asks for is unknown, and an error."""

import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from onebus.errors import InvalidOption, InvalidUrl, UnknownScheme
from onebus.stores.urls import check_scheme

STORE_VARIABLE: Final = "ONEBUS_STORE"
"""The environment variable that says where the store is, here as for the commands."""

_TRUTHS = {"true": True, "false": False}


class Given:
    """The options of one reader or writer. Each is taken by name; `finish` finds those that were not."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): text for name, text in options.items()}
        self._known: dict[str, str] = {}

    def text(self, name: str) -> str | None:
        """Return an option, or None if it was not given.

        Raises:
            InvalidOption: it is empty.
        """
        self._known[name.lower()] = name
        text = self._options.get(name.lower())
        if text is not None and not text.strip():
            raise InvalidOption(f"The option {name} is empty. Give it a value, or leave it out.")
        return text

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """Return one of some words; the first of them if none was given."""
        text = (self.text(name) or choices[0]).strip().lower()
        if text not in choices:
            raise InvalidOption(f"The option {name} is one of {', '.join(choices)}, and not {text!r}.")
        return text

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.strip().lower() not in _TRUTHS:
            raise InvalidOption(f"The option {name} is true or false, and not {text!r}.")
        return _TRUTHS[text.strip().lower()]

    def number(self, name: str, *, at_least: int = 1) -> int | None:
        """Return a whole number, or None if it was not given."""
        text = self.text(name)
        if text is None:
            return None
        try:
            number = int(text)
        except ValueError:
            raise InvalidOption(f"The option {name} is a whole number, and not {text!r}.") from None
        if number < at_least:
            raise InvalidOption(f"The option {name} is at least {at_least}, and not {number}.")
        return number

    def words(self, name: str) -> tuple[str, ...] | None:
        """Return the words of a list with commas, or None if it was not given."""
        text = self.text(name)
        if text is None:
            return None
        words = tuple(word.strip() for word in text.split(","))
        if not all(words) or len(set(words)) < len(words):
            raise InvalidOption(f"The option {name} is a list with commas, each name once, and not {text!r}.")
        return words

    def urls(self, default: str | None) -> tuple[str, ...]:
        """Return where the store is: what the option ``url`` says, or else `default`, or else the environment.

        Several stores as one are separated by spaces.

        Raises:
            InvalidOption: there is none, or one that cannot be used.
        """
        text = self.text("url") or default or os.environ.get(STORE_VARIABLE, "")
        urls = tuple(_absolute(url) for url in text.split())
        if not urls:
            raise InvalidOption(
                f"No store is given. Say where it is with the option url or the environment variable {STORE_VARIABLE}."
            )
        for url in urls:
            try:
                check_scheme(url)
            except (InvalidUrl, UnknownScheme) as error:
                raise InvalidOption(f"The option url, or what stands in for it, cannot be used. {error}") from None
            if url.startswith("memory:"):
                raise InvalidOption("The option url names a store in memory, which Spark's processes cannot share.")
        return urls

    def finish(self) -> None:
        """Check that every option was asked for.

        Raises:
            InvalidOption: one is not known.
        """
        for name in self._options:
            if name not in self._known:
                near = difflib.get_close_matches(name, self._known, 1)
                hint = (
                    f"Did you mean {self._known[near[0]]}?" if near else f"Known are {', '.join(self._known.values())}."
                )
                raise InvalidOption(f"The option {name} is not known. {hint}")


def _absolute(url: str) -> str:
    """Return the URL of a file so that it means the same in every process, whatever folder that works in."""
    scheme, separator, path = url.partition(":///")
    if scheme == "sqlite" and separator and path and not path.startswith("/"):
        return f"{scheme}{separator}{Path(path).absolute()}"
    return url
