"""For the tests of programs that use the bus: a bus in memory, and a clock that stands still.

pytest finds the fixtures in `onebus.testing.plugin` by itself.
"""

from onebus.testing.clock import FakeClock
from onebus.testing.memory import memory_bus, memory_url

__all__ = ["FakeClock", "memory_bus", "memory_url"]
