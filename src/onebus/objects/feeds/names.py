"""Under which names feeds live: one log for all of them, and one for each channel of each site."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from msgspec import Struct

from onebus.errors import InvalidName
from onebus.log.names import PLACE_SEPARATOR, check_name

FEEDS: Final = "feeds"
"""The log to which every message of every channel is mirrored, in the order of publishing."""

SiteLookup = Callable[[], str | None]
"""Returns the site for which the program works at this moment, if it works for several."""

GLOBAL_PREFIX: Final = "/global/"
"""Channels that all sites have in common."""


class ChannelName(Struct, frozen=True, gc=False):
    """A channel of a site; without a site, or where all sites share it, of none."""

    name: str
    site_id: str | None = None

    @property
    def log(self) -> str:
        return f"{FEEDS}{PLACE_SEPARATOR}{self.site_id or ''}{PLACE_SEPARATOR}{self.name}"


@lru_cache(maxsize=10_000)
def channel_name(name: str, site_id: str | None) -> ChannelName:
    """Return a channel of a site.

    Raises:
        InvalidName: no log can have such a name.
    """
    if not name:
        raise InvalidName("A channel has a name such as '/chat', and it must not be empty.")
    if site_id is not None and (not site_id or PLACE_SEPARATOR in site_id):
        raise InvalidName(f"The site {site_id!r} must be text without {PLACE_SEPARATOR!r}.")
    channel = ChannelName(name, None if name.startswith(GLOBAL_PREFIX) else site_id)
    check_name(channel.log)
    return channel


@lru_cache(maxsize=10_000)
def channel_of_log(log: str) -> ChannelName:
    """Return the channel to which a log belongs."""
    _, site_id, name = log.split(PLACE_SEPARATOR, 2)
    return ChannelName(name, site_id or None)
