"""A message as a worker gets it over HTTP."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class HttpMessage:
    """One message, which has to be reported as processed before its time is up."""

    id: int
    payload: Any
    attempts: int = 1
    """How often it was handed out, this time included; 1 where the server does not tell."""
    lease: str = ""
    """Proves that this worker holds it; empty for a queue without a name, where the id is enough."""
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
