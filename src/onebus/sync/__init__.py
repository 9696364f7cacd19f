"""The bus for blocking code: the same objects as in `onebus`, whose methods return when they are done."""

from onebus.sync.bus import Bus
from onebus.sync.channel import Channel
from onebus.sync.deadletters import DeadLetters
from onebus.sync.message import Message
from onebus.sync.persistable import Persistable, Persisted
from onebus.sync.pubsub import PubSub
from onebus.sync.queue import Queue
from onebus.sync.service import Service
from onebus.sync.topics import Topic, TopicBatch, TopicConsumer

__all__ = [
    "Bus",
    "Channel",
    "DeadLetters",
    "Message",
    "Persistable",
    "Persisted",
    "PubSub",
    "Queue",
    "Service",
    "Topic",
    "TopicBatch",
    "TopicConsumer",
]
