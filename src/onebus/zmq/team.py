"""The consumers of one group of a broker, and who of them has which partition.

A partition goes from one member to another in three steps. Both are told; the old one says that it has let go, and the
new one that it has made ready; then the new one is sent what follows. Partitions that stay where they are go on.
"""

from collections.abc import Sequence
from itertools import count

from onebus.log.groups import assign

_generations = count(1)


class Member:
    """One consumer in one group."""

    def __init__(self, client: str, inbox: str | None) -> None:
        self.client = client
        self.inbox = inbox
        """Where it gets its messages, if it acknowledges them; None if it listens to rooms."""
        self.partitions: list[int] = []
        """What it should have."""
        self.confirmed: set[int] = set()
        """What it had when it was ready last; it may still work on those."""
        self.generation = 0
        """Of what it was told last; 0 if it was told nothing."""
        self.is_ready = False
        """Whether it has confirmed what it was told last."""

    def give(self, partitions: list[int]) -> None:
        self.partitions = partitions
        self.generation = next(_generations)
        self.is_ready = False

    def may_get(self, partition: int) -> bool:
        """Return whether a partition may be sent to this member.

        Whoever listens to rooms leaves all of them and enters the new ones, so that what is sent in between is lost.
        """
        if self.inbox is None and not self.is_ready:
            return False
        return partition in self.confirmed and partition in self.partitions


class Team:
    """The members of one group."""

    def __init__(self, topic: str, group: str) -> None:
        self.topic = topic
        self.group = group
        self.members: dict[str, Member] = {}

    def join(self, client: str, inbox: str | None) -> Member:
        """Return the member that a client is; joining twice makes no second one."""
        return self.members.setdefault(client, Member(client, inbox))

    def balance(self, partitions: Sequence[int]) -> list[Member]:
        """Spread the partitions fairly, moving as few as possible, and return those who have to be told."""
        owners = {number: member.client for member in self.members.values() for number in member.partitions}
        owned: dict[str, list[int]] = {client: [] for client in self.members}
        for number, client in assign(partitions, self.members, owners).items():
            owned[client].append(number)
        concerned = []
        for member in self.members.values():
            numbers = sorted(owned[member.client])
            if member.generation == 0 or numbers != member.partitions:
                member.give(numbers)
                concerned.append(member)
        return concerned

    def confirm(self, client: str, generation: object, partitions: list[int]) -> bool:
        """Hear that a member has done what it was told; return False if it speaks of something older."""
        member = self.members.get(client)
        if member is None or member.generation == 0:
            return False
        # Whoever does not repeat the generation at least repeats the partitions.
        is_latest = partitions == member.partitions if generation is None else generation == member.generation
        if is_latest:
            member.confirmed = set(member.partitions)
            member.is_ready = True
        return is_latest

    def owner(self, partition: int) -> Member | None:
        """Return who may be sent a partition at this moment; nobody, while it moves."""
        holders = [member for member in self.members.values() if partition in member.confirmed]
        return holders[0] if len(holders) == 1 and holders[0].may_get(partition) else None
