"""Jobs that take messages out of a log, every payload decoded."""

from dataclasses import dataclass

from bench.processes import Gate
from bench.timing import Span, Stopwatch
from onebus.log.batch import decode
from onebus.log.stored import StoredBatch
from onebus.stores import create_store
from onebus.stores.base import Claim
from onebus.stores.following import claimant

CLAIM_MESSAGES = 100_000
"""So many that a claim ends where its bytes do, between two batches. A smaller limit cuts batches in two, and
both claims fetch and decode the whole of it."""
LEASE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Read:
    """Reads a log that is already filled, from its beginning."""

    url: str
    log: str
    messages: int

    async def run(self, gate: Gate) -> Span:
        async with create_store(self.url) as store:
            await gate.passed()
            watch = Stopwatch(self.messages)
            after = 0
            while watch.messages < self.messages:
                found = await store.read(self.log, after=after)
                watch.count(sum(len(decode(batch.blob).payloads()) for batch in found.batches))
                after = found.batches[-1].last_id
            return watch.stop()


@dataclass(frozen=True, slots=True)
class Consume:
    """Claims with a lease and settles along with the next claim, until all messages are settled."""

    url: str
    log: str
    messages: int

    async def run(self, gate: Gate) -> Span:
        async with create_store(self.url) as store:
            await store.touch(self.log, create=True)
            claiming = claimant(store, self.log, limit=CLAIM_MESSAGES, lease_seconds=LEASE_SECONDS, owner="bench")
            async with claiming as claims:
                await gate.passed()
                watch = Stopwatch(self.messages)
                while watch.messages < self.messages:
                    claim = await claims.next()
                    watch.count(len(claimed_payloads(claim)))
                    claims.done(claim.leases)
                await claims.flush()
                return watch.stop()


def claimed_payloads(claim: Claim) -> list[bytes]:
    """Decode what was claimed, which may begin or end within a batch."""
    values: list[bytes] = []
    for batch in claim.batches:
        decoded = decode(batch.blob).payloads()
        for first, last in _claimed_of(batch, claim):
            values += decoded[first - batch.first_id : last - batch.first_id + 1]
    return values


def _claimed_of(batch: StoredBatch, claim: Claim) -> list[tuple[int, int]]:
    shared = [(max(lease.first, batch.first_id), min(lease.last, batch.last_id)) for lease in claim.leases]
    return [(first, last) for first, last in shared if first <= last]
