"""A log so simple that it can be trusted: one small object per message, and a search through all of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from onebus.log.claims import ANY_FENCE, NO_FENCE, Lease


@dataclass(slots=True)
class ModelMessage:
    text: str
    attempts: int = 0
    is_done: bool = False
    is_taken: bool = False
    fence: int = 0
    due_ms: int = 0
    redeliver: bool = True

    def is_held_by(self, fence: int, now_ms: int) -> bool:
        if self.is_done or self.fence == NO_FENCE:
            return False
        return self.due_ms > now_ms if fence == ANY_FENCE else self.fence == fence


@dataclass(slots=True)
class ModelLog:
    """What the contract says a log is."""

    messages: dict[int, ModelMessage] = field(default_factory=dict)
    first_id: int = 1
    last_id: int = 0
    ttl_ms: int = 0
    expires_ms: int = 0

    def append(self, texts: Iterable[str], now_ms: int) -> int:
        first_id = self.last_id + 1
        for text in texts:
            self.last_id += 1
            self.messages[self.last_id] = ModelMessage(text)
        self.touch(None, now_ms)
        return first_id

    def room_if_full(self, count: int, capacity: int | None, max_count: int | None) -> int | None:
        """Return how many messages fit when `count` of them do not, once the log has been trimmed with them."""
        first_kept = self.first_id
        if max_count is not None:
            first_kept = max(first_kept, self.last_id + count - max_count + 1)
        unfinished = sum(id_ >= first_kept for id_ in self.open_texts())
        added = count if max_count is None else min(count, max_count)
        if capacity is None or unfinished + added <= capacity:
            return None
        return max(capacity - unfinished, 0)

    def touch(self, ttl_ms: int | None, now_ms: int) -> None:
        if ttl_ms is not None:
            self.ttl_ms = ttl_ms
        self.expires_ms = now_ms + self.ttl_ms if self.ttl_ms else 0

    def claim(self, limit: int, lease_ms: int | None, redeliver: bool, now_ms: int) -> list[int]:
        """Return the ids that a claim must take, in order; the fence is set by `hold`."""
        for _, message in self.taken():
            if 0 < message.due_ms <= now_ms:
                message.due_ms = 0
                message.is_done = not message.redeliver
        free = [id_ for id_, message in self.taken() if message.due_ms == 0]
        new = [id_ for id_, message in sorted(self.messages.items()) if not message.is_taken]
        chosen = [*free, *new][:limit]
        for id_ in chosen:
            message = self.messages[id_]
            message.is_taken = True
            message.attempts += 1
            message.redeliver = redeliver
            message.is_done = lease_ms is None
            message.due_ms = 0 if lease_ms is None else now_ms + lease_ms
        return chosen

    def hold(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            for id_ in range(lease.first, lease.last + 1):
                self.messages[id_].fence = lease.fence

    def held_by(self, lease: Lease, now_ms: int) -> tuple[list[int], list[int]]:
        """Return which ids of a lease are still held by it, and which are lost."""
        held: list[int] = []
        lost: list[int] = []
        for id_ in range(lease.first, lease.last + 1):
            message = self.messages.get(id_)
            is_held = message is not None and message.is_held_by(lease.fence, now_ms)
            (held if is_held else lost).append(id_)
        return held, lost

    def settle(self, ids: Iterable[int]) -> None:
        for id_ in ids:
            self.messages[id_].is_done = True

    def release(self, ids: Iterable[int], due_ms: int, attempted: bool) -> None:
        for id_ in ids:
            message = self.messages[id_]
            message.due_ms = due_ms
            message.fence = 0
            message.redeliver = True
            message.attempts -= 0 if attempted else 1

    def extend(self, ids: Iterable[int], due_ms: int) -> None:
        for id_ in ids:
            self.messages[id_].due_ms = due_ms

    def trim(self, max_count: int) -> None:
        self.first_id = max(self.first_id, self.last_id - max_count + 1)
        self.messages = {id_: message for id_, message in self.messages.items() if id_ >= self.first_id}

    def taken(self) -> Iterator[tuple[int, ModelMessage]]:
        """Yield the messages that are taken and not done, in order."""
        for id_, message in sorted(self.messages.items()):
            if message.is_taken and not message.is_done:
                yield id_, message

    def claimable(self, now_ms: int) -> int:
        new = sum(not message.is_taken for message in self.messages.values())
        return new + sum(message.due_ms <= now_ms for _, message in self.taken())

    def held(self, now_ms: int) -> int:
        return sum(message.due_ms > now_ms for _, message in self.taken())

    def open_texts(self) -> dict[int, str]:
        """Return what must still be readable."""
        return {id_: message.text for id_, message in self.messages.items() if not message.is_done}
