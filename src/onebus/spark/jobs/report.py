"""An audit as one HTML file that needs nothing else: no script, no network."""

from collections.abc import Iterator, Sequence
from html import escape

from onebus.spark.jobs.commits import count, in_words
from onebus.spark.jobs.findings import Audit, SourceFindings

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1c2430 }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100% } th, td { padding: .3rem .6rem; border-bottom: 1px solid #dde2ea }
th, td { text-align: right } th:first-child, td:first-child { text-align: left }
.good { color: #14733a } .bad { color: #b3261e } .note { color: #6b7280 }
svg text { font: 12px system-ui, sans-serif; fill: #1c2430 }
"""
_COLOURS = {"lake": "#3b6fb6", "store": "#8fb8de", "forgotten": "#c9ced6", "missing": "#b3261e", "doubled": "#e08a1e"}
_WIDTH = 560
_COLUMNS = ("", "in the lake", "only in the store", "missing", "too many", "damaged", "forgotten", "out of order")


def html_report(audit: Audit) -> str:
    """Return an audit as a page."""
    verdict = (
        '<p class="good">Every message is there, exactly once.</p>'
        if audit.is_clean
        else f'<p class="bad">{audit.missing} missing or damaged, {audit.doubled} too many.</p>'
    )
    parts = [
        f"<h1>Audit of {escape(audit.lake)}</h1>",
        verdict,
        _list(audit.problems),
        "<h2>Where the messages are</h2>",
        _legend(),
        *(_bar(one) for one in audit.sources),
        "<h2>Partition by partition</h2>",
        _table(audit.sources),
        *_forgotten(audit.sources),
        "<h2>Messages in the lake, day by day</h2>",
        *_days(audit),
    ]
    title = f"<title>Audit of {escape(audit.lake)}</title>"
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8">{title}<style>{_STYLE}</style></head>'
    return f"{head}<body>{''.join(parts)}</body></html>\n"


def _list(problems: Sequence[str]) -> str:
    items = "".join(f'<li class="bad">{escape(problem)}</li>' for problem in problems)
    return f"<ul>{items}</ul>" if items else ""


def _legend() -> str:
    words = (f'<span style="color:{colour}">&#9632;</span> {name}' for name, colour in _COLOURS.items())
    return f"<p>{' &nbsp; '.join(words)}</p>"


def _bar(one: SourceFindings) -> str:
    amounts = {
        "lake": one.lake_rows - one.doubled_rows,
        "store": one.only_in_store,
        "forgotten": count(one.forgotten),
        "missing": one.missing_rows + count(one.holes) + count(one.corrupt),
        "doubled": one.doubled_rows,
    }
    total = sum(amounts.values()) or 1
    left, boxes = 200.0, []
    for name, amount in amounts.items():
        # What is wrong must be seen, however little it is.
        width = max(amount / total * _WIDTH, 2 if amount else 0)
        boxes.append(f'<rect x="{left:.1f}" y="3" width="{width:.1f}" height="14" fill="{_COLOURS[name]}"/>')
        left += width
    label = f'<text x="0" y="15">{escape(str(one.source))}</text>'
    return f'<svg width="100%" height="20" viewBox="0 0 800 20" role="img">{label}{"".join(boxes)}</svg>'


def _table(sources: Sequence[SourceFindings]) -> str:
    head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    return f"<table><tr>{head}</tr>{''.join(map(_row, sources))}</table>"


def _row(one: SourceFindings) -> str:
    cells = "".join(
        f'<td class="{"bad" if is_bad and number else "note" if not number else ""}">{number:,}</td>'
        for number, is_bad in numbers_of(one)
    )
    return f"<tr><td>{escape(str(one.source))}</td>{cells}</tr>"


def numbers_of(one: SourceFindings) -> list[tuple[int, bool]]:
    """Return the numbers of a partition as tables show them, and whether each is bad unless it is 0."""
    return [
        (one.lake_rows, False),
        (one.only_in_store, False),
        (one.missing_rows + count(one.holes), True),
        (one.doubled_rows + count(one.unexpected), True),
        (count(one.corrupt), True),
        (count(one.forgotten), False),
        (one.disordered, False),
    ]


def _forgotten(sources: Sequence[SourceFindings]) -> Iterator[str]:
    for one in sources:
        if one.forgotten:
            ids = in_words(one.forgotten)
            yield f'<p class="note">{escape(str(one.source))}: forgotten before they were archived: {ids}</p>'


def _days(audit: Audit) -> Iterator[str]:
    largest = max((number for *_, number in audit.days), default=1)
    for kind, name, day, number in audit.days:
        width = max(number / largest * (_WIDTH - 100), 1)
        label = f'<text x="0" y="15">{escape(f"{kind} {name} {day}")}</text>'
        box = f'<rect x="200" y="3" width="{width:.1f}" height="14" fill="{_COLOURS["lake"]}"/>'
        amount = f'<text x="{205 + width:.1f}" y="15">{number:,}</text>'
        yield f'<svg width="100%" height="20" viewBox="0 0 800 20" role="img">{label}{box}{amount}</svg>'
