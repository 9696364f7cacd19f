"""The bus over HTTP, as an ASGI application without a framework."""

from onebus.web.application import app

__all__ = ["app"]
