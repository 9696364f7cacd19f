"""Servers keep the memory that large batches use."""

import subprocess
import sys

PROGRAM = """
import resource
from onebus.heap import keep_freed_memory

keep_freed_memory()

def use_a_megabyte():
    parts = [bytes(1_000_000) for _ in range(4)]
    return b"".join(parts[:2])

for _ in range(10):
    use_a_megabyte()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    use_a_megabyte()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_memory_that_was_used_before_is_used_again() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)

    # A megabyte has 250 pages; all of them would have to be touched anew, a hundred times.
    assert int(ended.stdout) < 1000
