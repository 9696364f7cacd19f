"""A web server for the tests in the browser: anybody may publish, and see who is held."""

import argparse

import uvicorn

from onebus import Bus
from onebus.objects.feeds.limits import FeedLimits
from onebus.web import FeedSettings, Guard, app


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--port", type=int)
    arguments.add_argument("--store")
    arguments.add_argument("--backlog", type=int, default=1000)
    arguments.add_argument("--hold", type=float, default=25.0)
    arguments.add_argument("--without-websockets", action="store_true")
    arguments.add_argument("--denied", action="append", default=[])
    arguments.add_argument("--secret", default="")
    given = arguments.parse_args()
    bus = Bus(given.store, feed_limits=FeedLimits(max_backlog_size=given.backlog))
    feeds = FeedSettings(
        allow_broadcast=True,
        long_polling_interval=given.hold,
        is_admin_lookup=lambda _: True,
        may_subscribe=lambda _, channel: channel not in given.denied,
    )
    uvicorn.run(
        app(bus, feeds=feeds, guard=Guard(secret=given.secret)),
        port=given.port,
        ws="none" if given.without_websockets else "auto",
        lifespan="on",
        log_level="warning",
    )


if __name__ == "__main__":
    main()
