"""One message bus from the browser tab to the Spark job."""

from onebus.bus import Bus
from onebus.message import Message

__all__ = ["Bus", "Message"]

__version__ = "0.1.0"
