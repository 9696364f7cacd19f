"""A web server in a thread of its own, for clients that block."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from onebus.web.asgi import App
from tests.services.patience import comes_true
from tests.services.port import free_port

START_SECONDS = 20.0


@contextmanager
def served_in_a_thread(application: App) -> Iterator[str]:
    """Serve an application on a free port, and yield its address."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(application, port=port, lifespan="on", log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert comes_true(lambda: server.started or not thread.is_alive(), START_SECONDS), "it did not start in time"
        assert thread.is_alive(), "it did not start"
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
