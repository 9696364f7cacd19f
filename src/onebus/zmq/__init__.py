"""The wire protocol of raintank-queue on top of topics: ZeroMQ for messages, Socket.IO for who reads what.

`Broker` serves clients of raintank-queue as they are. `Publisher` and `Consumer` talk to the same broker, and know what
is stored and what is done. The extra ``zmq`` installs what they need.
"""

from onebus.zmq.broker import Broker
from onebus.zmq.consumer import Consumer
from onebus.zmq.curve import server_key
from onebus.zmq.publisher import Publisher

__all__ = ["Broker", "Consumer", "Publisher", "server_key"]
