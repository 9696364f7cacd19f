"""A page with the npm package message-bus-client, in Node.js."""

from contextlib import AbstractAsyncContextManager

from tests.faults.program import Program
from tests.interop.script import running_script


def page(address: str, transport: str, channel: str) -> AbstractAsyncContextManager[Program]:
    """Open a page that tells what it gets from a server; see page.js."""
    return running_script("page.js", address, transport, channel)
