"""Where a topic and its groups are kept.

topic:NAME                          what the topic is
topic:NAME|P                        the messages of one partition
topic:NAME|group:GROUP              who has joined a group
topic:NAME|group:GROUP|P            how far the group has come in one partition, and who reads it
topic:NAME|group:GROUP|member:ID    a sign of life of one member
"""

from typing import NamedTuple

from onebus.errors import InvalidName
from onebus.log.names import PLACE_SEPARATOR, check_name
from onebus.objects.places import place_of_object

KIND = "topic"
LONGEST_TAIL = f"|member:{'0' * 32}"


class GroupName(NamedTuple):
    """One group of one topic."""

    topic: str
    group: str

    @property
    def place(self) -> str:
        return f"{place_of_topic(self.topic)}|group:{self.group}"

    def cursor(self, partition: int) -> str:
        return f"{self.place}|{partition}"

    def member(self, member: str) -> str:
        return f"{self.place}|member:{member}"


def place_of_topic(name: str) -> str:
    """Return where a topic lives.

    Raises:
        InvalidName: no topic can have this name.
    """
    return place_of_object(KIND, name)


def log_of(topic: str, partition: int) -> str:
    return f"{place_of_topic(topic)}|{partition}"


def checked_group(topic: str, group: str) -> GroupName:
    """Return the name of a group.

    Raises:
        InvalidName: no group can have this name.
    """
    check_name(group)
    if PLACE_SEPARATOR in group:
        raise InvalidName(f"The group {group!r} holds {PLACE_SEPARATOR!r}, which separates the parts of an object.")
    name = GroupName(topic, group)
    check_name(name.place + LONGEST_TAIL)
    return name
