"""The holds of a log as rows: finding those that a range of ids meets, changing them, freeing what is due."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace
from sqlalchemy import bindparam, case, delete, func, insert, select, update
from sqlalchemy.sql import ClauseElement

from onebus.log.claims import FREE, Carving, Hold, Lease, carve
from onebus.stores.base import Lost
from onebus.stores.sql.tables import holds, text_of
from onebus.stores.sql.transaction import Transaction

_of_log = holds.c.log_id == bindparam("log")
_columns = (
    holds.c.first_id,
    holds.c.last_id,
    holds.c.fence,
    holds.c.due_ms,
    holds.c.attempts,
    holds.c.redeliver,
    holds.c.owner,
)

# Holds are disjoint, so of those that begin before a range only the last one can reach into it.
_nearest_before = select(func.max(holds.c.first_id)).where(_of_log, holds.c.first_id <= bindparam("first"))
_overlapping = (
    select(*_columns)
    .where(
        _of_log,
        holds.c.first_id >= func.coalesce(_nearest_before.scalar_subquery(), bindparam("first")),
        holds.c.first_id <= bindparam("last"),
        holds.c.last_id >= bindparam("first"),
    )
    .order_by(holds.c.first_id)
)
_free = select(*_columns).where(_of_log, holds.c.due_ms == FREE).order_by(holds.c.first_id).limit(bindparam("count"))
_due = select(*_columns).where(_of_log, holds.c.due_ms > FREE, holds.c.due_ms <= bindparam("now"))
_next_due = select(func.min(holds.c.due_ms)).where(_of_log, holds.c.due_ms > FREE)
_earliest = select(func.min(holds.c.due_ms)).where(_of_log)
_delete = delete(holds).where(_of_log, holds.c.first_id == bindparam("first"))
_delete_all = delete(holds).where(_of_log)
_insert = insert(holds)
_free_again = (
    update(holds)
    .where(_of_log, holds.c.due_ms > FREE, holds.c.due_ms <= bindparam("now"), holds.c.redeliver)
    .values(due_ms=FREE)
)
_ids = holds.c.last_id - holds.c.first_id + 1
_sums = select(
    func.coalesce(func.sum(case((holds.c.due_ms <= bindparam("now"), _ids), else_=0)), 0),
    func.coalesce(func.sum(case((holds.c.due_ms > bindparam("now"), _ids), else_=0)), 0),
).where(_of_log)
_first_since = case((holds.c.first_id < bindparam("first"), bindparam("first")), else_=holds.c.first_id)
_count_since = select(func.coalesce(func.sum(holds.c.last_id - _first_since + 1), 0)).where(
    _of_log, holds.c.last_id >= bindparam("first")
)


class HoldRows:
    """The holds of one log within a transaction that has locked the log."""

    def __init__(self, transaction: Transaction, log_id: int) -> None:
        self._transaction = transaction
        self._log_id = log_id

    def overlapping(self, first: int, last: int) -> list[Hold]:
        """Return the holds that share ids with ``first..last``, in order."""
        return self._all(_overlapping, first=first, last=last)

    def carve(self, leases: Sequence[Lease], *, now_ms: int) -> Carving:
        """Cut `leases` out of the table: what they cover is gone from it, the rest stays."""
        if not leases:
            return Carving([], [], [], [])
        met = self.overlapping(min(lease.first for lease in leases), max(lease.last for lease in leases))
        carving = carve(met, leases, now_ms=now_ms)
        self.remove(carving.touched)
        self.add(carving.rest)
        return carving

    def put_back(self, leases: Sequence[Lease], due_ms: int, *, fence: int | None, attempts: int, now_ms: int) -> Lost:
        """Set leased ids to another due time, and to no fence when they are released."""
        carving = self.carve(leases, now_ms=now_ms)
        self.add(hold.put_back(due_ms, fence=fence, attempts=attempts) for hold in carving.taken)
        return carving.lost

    def free_due(self, now_ms: int) -> list[Hold]:
        """Free what is due; return the holds that end here, because they are not redelivered."""
        ended = [hold for hold in self._all(_due, now=now_ms) if not hold.redeliver]
        self.remove(ended)
        self._transaction.execute(_free_again, {"log": self._log_id, "now": now_ms})
        return ended

    def next_due_ms(self) -> int | None:
        """Return when the next hold becomes free, or None if none ever does by itself."""
        ((due_ms,),) = self._transaction.execute(_next_due, {"log": self._log_id})
        return None if due_ms is None else int(due_ms)

    def are_all_taken(self, now_ms: int) -> bool:
        """Return whether nothing is free or due."""
        ((due_ms,),) = self._transaction.execute(_earliest, {"log": self._log_id})
        return due_ms is None or due_ms > max(now_ms, FREE)

    def free(self, count: int) -> list[Hold]:
        """Return up to `count` free holds, lowest ids first; they stay in the table."""
        return self._all(_free, count=count)

    def add(self, new: Iterable[Hold]) -> None:
        rows = [
            {
                "log_id": self._log_id,
                "first_id": hold.first,
                "last_id": hold.last,
                "fence": hold.fence,
                "due_ms": hold.due_ms,
                "attempts": hold.attempts,
                "redeliver": hold.redeliver,
                "owner": hold.owner,
            }
            for hold in new
        ]
        self._transaction.perform(_insert, rows)

    def remove(self, old: Iterable[Hold]) -> None:
        rows = [{"log": self._log_id, "first": hold.first} for hold in old]
        self._transaction.perform(_delete, rows)

    def remove_all(self) -> None:
        self._transaction.execute(_delete_all, {"log": self._log_id})

    def forget_before(self, first_id: int) -> None:
        """Forget that anybody held ids before `first_id`."""
        met = self.overlapping(0, first_id - 1)
        self.remove(met)
        self.add(replace(hold, first=first_id) for hold in met if hold.last >= first_id)

    def sums(self, now_ms: int) -> tuple[int, int]:
        """Return how many ids are free or due, and how many are held."""
        ((free, held),) = self._transaction.execute(_sums, {"log": self._log_id, "now": now_ms})
        return int(free), int(held)

    def count_since(self, first_id: int) -> int:
        """Return how many ids from `first_id` on are free, due or held."""
        ((count,),) = self._transaction.execute(_count_since, {"log": self._log_id, "first": first_id})
        return int(count)

    def _all(self, statement: ClauseElement, **parameters: int) -> list[Hold]:
        return [
            Hold(first, last, fence, due_ms, attempts, bool(redeliver), text_of(owner))
            for first, last, fence, due_ms, attempts, redeliver, owner in self._transaction.execute(
                statement, {"log": self._log_id, **parameters}
            )
        ]
