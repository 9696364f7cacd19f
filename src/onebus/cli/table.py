"""Rows of text as lines that people can read."""

from collections.abc import Sequence


def table(rows: Sequence[Sequence[str]]) -> list[bytes]:
    """Return rows, of which the first has the titles, as lines: names on the left, numbers below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))]
        )
        .rstrip()
        .encode()
        for row in rows
    ]
