"""One message bus from the browser tab to the Spark job."""

from onebus.bus import Bus
from onebus.message import Message
from onebus.objects.persistable import Persistable

__all__ = ["Bus", "Message", "Persistable"]

__version__ = "0.1.0"
