"""A web server in a thread of its own, for clients that block."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from onebus.web.asgi import App
from tests.services.port import free_port


@contextmanager
def served_in_a_thread(application: App) -> Iterator[str]:
    """Serve an application on a free port, and yield its address."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(application, port=port, lifespan="on", log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        deadline = time.monotonic() + 20
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            assert time.monotonic() < deadline, "the server did not start in time"
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
