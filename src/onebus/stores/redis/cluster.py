"""The connections of a store to a Redis Cluster."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection
from redis.exceptions import ClusterDownError
from redis.exceptions import ConnectionError as RedisConnectionError

from onebus.stores.redis.address import Address
from onebus.stores.redis.connection import (
    MAX_CONNECTIONS,
    Argument,
    Connections,
    Node,
    connected,
    connection_settings,
)


class FreshConnection(Connection):
    """Connects anew before it sends if the server has closed it meanwhile, as a pool would do outside a cluster."""

    async def send_packed_command(self, *args: Any, **kwargs: Any) -> None:
        if self._reader is not None and self._reader.at_eof():
            await self.disconnect(nowait=True)
        await super().send_packed_command(*args, **kwargs)


class FreshSSLConnection(FreshConnection, SSLConnection):
    pass


class ClusterConnections(Connections):
    """Sends each script to the node that has its keys; redis-py follows when they move."""

    def __init__(self, address: Address, connect_seconds: float) -> None:
        super().__init__(address)
        settings = connection_settings(address, address.login, connect_seconds)
        self._cluster = RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in address.hosts],
            max_connections=MAX_CONNECTIONS,
            # A redirection updates the slot it is about. The alternative closes all connections, also those in use.
            reinitialize_steps=0,
            ssl=address.uses_tls,
            **settings,
        )
        # The constructor offers no parameter for it. Nodes are made from these settings as they are found.
        connection_class = FreshSSLConnection if address.uses_tls else FreshConnection
        self._cluster.connection_kwargs["connection_class"] = connection_class

    async def nodes(self) -> list[Node]:
        await self._cluster.initialize()
        return [node.execute_command for node in self._cluster.get_primaries()]

    async def _close(self) -> None:
        # RedisCluster.aclose leaves connections open while it waits to look at the cluster again.
        await self._cluster.aclose()
        await self._cluster.nodes_manager.aclose()
        await self._cluster.nodes_manager.aclose("startup_nodes")

    async def _send(self, *command: Argument) -> Any:
        async with self._turns:
            self._check_open()
            await self._cluster.initialize()
            return await self._cluster.execute_command(*command)

    async def _pipeline(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        pipeline = self._cluster.pipeline()
        for command in commands:
            pipeline.execute_command(*command)
        return list(await pipeline.execute())

    async def _publish(self, channel: bytes, payload: bytes) -> int:
        await self._cluster.initialize()
        # Always through the same node: what one caller signals through two of them may overtake itself.
        publisher = self._cluster.get_node_from_key(channel.decode())
        # Whoever has a turn uses one connection to each node at a time, and there are no more of them.
        async with self._turns:
            await self._cluster.execute_command("PUBLISH", channel, payload, target_nodes=publisher)
            # The answer counts the listeners at that node only.
            counts = await asyncio.gather(
                *(node.execute_command("PUBSUB", "NUMSUB", channel) for node in self._cluster.get_nodes()),
                return_exceptions=True,
            )
        return sum(int(count[1]) for count in counts if isinstance(count, list))

    async def _dial(self) -> AbstractConnection:
        await self._cluster.initialize()
        nodes = self._cluster.get_nodes()
        failure: RedisConnectionError | None = None
        for node in random.sample(nodes, len(nodes)):
            try:
                return await connected(node.connection_class(**node.connection_kwargs))
            except RedisConnectionError as error:
                failure = error
        raise failure or RedisConnectionError("the cluster has no nodes")

    async def _probe(self) -> None:
        # All of them, because a call goes to any: until a lost one is replaced, calls had better wait.
        await self._cluster.initialize()
        await asyncio.gather(*(self._ask_state(node) for node in self._cluster.get_primaries()))

    async def _ask_state(self, node: ClusterNode) -> None:
        await node.disconnect_free_connections()
        info = await self._cluster.execute_command("CLUSTER INFO", target_nodes=node)
        if info.get("cluster_state") != "ok":
            raise ClusterDownError(f"{node.name} says that the cluster is down")
