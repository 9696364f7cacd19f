"""Clients of the queues that `onebus serve` serves, for programs that speak HTTP to it: these wait with await.

`onebus.http.sync` has the same for blocking code.
"""

from onebus.http.consumer import Consumer
from onebus.http.message import HttpMessage
from onebus.http.producer import Producer

__all__ = ["Consumer", "HttpMessage", "Producer"]
