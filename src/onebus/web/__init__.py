"""The bus over HTTP, as an ASGI application without a framework."""

from onebus.web.answers import Answer
from onebus.web.application import Application, app
from onebus.web.feeds.settings import FeedSettings
from onebus.web.feeds.visitor import Visitor
from onebus.web.guard import Guard
from onebus.web.middleware import Middleware
from onebus.web.request import Request

__all__ = ["Answer", "Application", "FeedSettings", "Guard", "Middleware", "Request", "Visitor", "app"]
