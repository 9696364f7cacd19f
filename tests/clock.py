"""The clock that moves only when a test says so."""

from onebus.testing import FakeClock

__all__ = ["FakeClock"]
