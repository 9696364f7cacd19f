"""The smallest useful program: append messages to a log, read them, and work them off.

python examples/log.py                       keeps the messages in memory
python examples/log.py sqlite:///bus.db      keeps them in a file; any store URL will do
"""

import asyncio
import sys
import time

from onebus.log.batch import Entry, decode, encode
from onebus.log.stored import StoredBatch
from onebus.stores import create_store

LOG = "greetings"


def show(batch: StoredBatch) -> None:
    for offset, value in enumerate(decode(batch.blob).payloads()):
        print(f"  {batch.first_id + offset}: {value.decode()}")


async def main(url: str) -> None:
    async with create_store(url) as store:
        entries = [Entry(text.encode()) for text in ("hello", "good morning", "moin")]
        first_id = await store.append(LOG, encode(entries, now_ms=time.time_ns() // 1_000_000))
        print(f"appended {len(entries)} messages, the first has id {first_id}")

        # Reading changes nothing: anybody may read, again and again, from any id on.
        found = await store.read(LOG, after=first_id - 1)
        print("read:")
        for batch in found.batches:
            show(batch)

        # Claiming is for sharing work: what is claimed is nobody else's until the lease ends.
        claim = await store.claim(LOG, limit=100, lease_seconds=30)
        print(f"claimed {claim.count} messages for 30 seconds")

        # Settled messages are done. Without this they would come back to the next one who claims.
        await store.settle(LOG, claim.leases)
        print("settled them: the work is done")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
