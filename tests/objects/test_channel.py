import asyncio
from functools import partial
from typing import Any

import pytest

from onebus import Bus
from onebus.errors import AlreadyAttached, InvalidArgument, InvalidName, NotAttached, NotConnected, StoreClosed
from onebus.message import Message
from onebus.objects.channel import Channel
from tests.clock import FakeClock
from tests.objects.conftest import Connect
from tests.objects.hearing import Heard, comes_true, errors_of

EVENTS = ("connect", "remote:connect", "disconnect", "remote:disconnect", "end", "error")


class Peer:
    """One end of a channel: what happened to it, and what it was sent."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.heard = Heard(channel, *EVENTS)
        self.messages: list[Message] = []
        channel.on("message", self.messages.append)

    @property
    def received(self) -> list[Any]:
        return [message.data for message in self.messages]

    async def receives(self, *data: Any) -> None:
        """Return when it has received exactly this."""
        try:
            await comes_true(lambda: len(self.messages) >= len(data))
        finally:
            assert self.received == list(data)


async def met(bus: Bus, other_bus: Bus, name: str, **options: Any) -> tuple[Peer, Peer]:
    """Return two peers that know of each other: the first one has connected, the second one listens."""
    client, server = Peer(bus.channel(name)), Peer(other_bus.channel(name))
    await server.channel.listen(**options)
    await client.channel.connect(**options)
    await client.heard.until("connect", "remote:connect")
    await server.heard.until("connect", "remote:connect")
    return client, server


# Meeting


@pytest.mark.parametrize("listens_first", [True, False])
async def test_peers_meet_in_either_order_and_talk(bus: Bus, other_bus: Bus, name: str, listens_first: bool) -> None:
    client, server = Peer(bus.channel(name)), Peer(other_bus.channel(name))
    arrivals = [server.channel.listen, client.channel.connect]
    for arrive in arrivals if listens_first else reversed(arrivals):
        await arrive()

    for number in range(5):
        await client.channel.send(f"to server {number}")
        await server.channel.send(f"to client {number}")

    await server.receives(*(f"to server {number}" for number in range(5)))
    await client.receives(*(f"to client {number}" for number in range(5)))
    await client.heard.until("connect", "remote:connect")
    await server.heard.until("connect", "remote:connect")
    await client.channel.end()
    await server.heard.until("connect", "remote:connect", "disconnect", "end")
    assert client.heard.events == ["connect", "remote:connect", "disconnect"]
    assert not server.channel.is_attached
    assert not client.channel.is_attached


async def test_peers_with_explicit_roles_both_connect(bus: Bus, other_bus: Bus, name: str) -> None:
    client, server = Peer(bus.channel(name, "client", "server")), Peer(other_bus.channel(name, "server", "client"))

    await asyncio.gather(client.channel.attach(), server.channel.attach())
    await client.channel.send("hello server")
    await server.channel.send("hello client")

    await server.receives("hello server")
    await client.receives("hello client")
    await client.channel.detach()
    await server.heard.until("connect", "remote:connect", "remote:disconnect")
    assert client.heard.events == ["connect", "remote:connect", "disconnect"]


async def test_a_channel_connects_and_disconnects_as_a_context(local_bus: Bus, name: str) -> None:
    channel = local_bus.channel(name)

    async with channel as entered:
        assert entered is channel
        assert channel.is_attached

    assert not channel.is_attached


async def test_a_peer_knows_whether_the_other_is_there(local_bus: Bus, other_local_bus: Bus, name: str) -> None:
    client, server = await met(local_bus, other_local_bus, name)
    assert client.channel.is_remote_connected
    assert server.channel.is_remote_connected

    await client.channel.disconnect()

    await server.heard.until("connect", "remote:connect", "remote:disconnect")
    assert not server.channel.is_remote_connected
    assert not client.channel.is_remote_connected


async def test_connecting_twice_is_an_error_and_changes_nothing(
    local_bus: Bus, other_local_bus: Bus, name: str
) -> None:
    client, server = await met(local_bus, other_local_bus, name)

    for connect in (client.channel.connect, client.channel.listen, server.channel.listen, server.channel.connect):
        with pytest.raises(AlreadyAttached, match="already connected"):
            await connect()

    await client.channel.send("still to the server")
    await server.receives("still to the server")
    assert client.received == []


async def test_listening_again_does_not_swap_the_roles_back(local_bus: Bus, other_local_bus: Bus, name: str) -> None:
    client, server = await met(local_bus, other_local_bus, name)
    await server.channel.disconnect()

    await server.channel.listen()
    await client.channel.send("to the one who listens")

    await server.receives("to the one who listens")
    assert (server.channel.local, server.channel.remote) == ("local", "remote")


async def test_connecting_twice_at_once_connects_once(local_bus: Bus, name: str) -> None:
    peer = Peer(local_bus.channel(name))

    results = await asyncio.gather(peer.channel.connect(), peer.channel.connect(), return_exceptions=True)

    assert [type(result) for result in results] == [type(None), AlreadyAttached]
    assert peer.heard.events == ["connect"]


async def test_a_channel_that_cannot_connect_may_try_again(name: str) -> None:
    bus = Bus(f"memory://{name}")
    channel = bus.channel(name)
    with pytest.raises(NotConnected):
        await channel.connect()
    async with bus:
        with pytest.raises(InvalidArgument):
            await channel.connect(index=3)
        with pytest.raises(InvalidArgument):
            await channel.connect(ttl=0)

        await channel.connect()

        assert channel.is_attached


@pytest.mark.parametrize("bad", ["", "a|b", "new\nline", "x" * 300])
async def test_bad_names_and_roles_are_refused(local_bus: Bus, bad: str) -> None:
    for name, local, remote in ((bad, "a", "b"), ("name", bad, "b"), ("name", "a", bad)):
        with pytest.raises(InvalidName):
            local_bus.channel(name, local, remote)
    with pytest.raises(InvalidName):
        await local_bus.channel("name").send_to(bad, "hello")


async def test_peers_need_different_roles(local_bus: Bus, name: str) -> None:
    with pytest.raises(InvalidArgument, match="must differ"):
        local_bus.channel(name, "peer", "peer")


# Sending


async def test_data_comes_as_what_it_was(bus: Bus, other_bus: Bus, name: str) -> None:
    sent = ["text ✓", b"\0\xff bytes", {"json": [1, 2.5, None, True]}, 7, None, [], "", b""]
    client, server = await met(bus, other_bus, name)

    ids = [await client.channel.send(data) for data in sent]

    await server.receives(*sent)
    assert [type(data) for data in server.received] == [type(data) for data in sent]
    assert [message.id for message in server.messages] == ids


async def test_sending_need_not_be_awaited(local_bus: Bus, other_local_bus: Bus, name: str) -> None:
    client, server = await met(local_bus, other_local_bus, name)

    for number in range(100):
        client.channel.send(number)

    await server.receives(*range(100))


async def test_anybody_may_send_to_a_role(bus: Bus, other_bus: Bus, name: str) -> None:
    passer_by = Peer(bus.channel(name))
    server = Peer(other_bus.channel(name, "server", "client"))

    await passer_by.channel.send_to("server", "before")
    await server.channel.connect()
    await passer_by.channel.send_to("server", {"after": True})

    await server.receives("before", {"after": True})
    assert passer_by.heard.events == []
    assert not passer_by.channel.is_attached
    assert server.heard.events == ["connect"]


async def test_messages_wait_for_a_peer_that_is_away(bus: Bus, other_bus: Bus, name: str) -> None:
    client = Peer(bus.channel(name))
    await client.channel.connect()
    await client.channel.send("before the other ever came")
    await client.channel.disconnect()
    server = Peer(other_bus.channel(name))

    await server.channel.listen()
    await server.receives("before the other ever came")
    await server.channel.disconnect()
    await client.channel.connect()
    await client.channel.send("while the other was away")
    await server.channel.listen()

    await server.receives("before the other ever came", "while the other was away")


async def test_channels_do_not_mix(bus: Bus, other_bus: Bus, name: str) -> None:
    client, server = await met(bus, other_bus, name)
    other_client, other_server = await met(bus, other_bus, f"{name}-other")
    queue = bus.queue(name)
    await queue.attach()

    await queue.push("into the queue")
    await client.channel.send("one")
    await other_client.channel.send("other")
    await server.channel.send("one back")
    await other_server.channel.send("other back")

    await server.receives("one")
    await other_server.receives("other")
    await client.receives("one back")
    await other_client.receives("other back")
    assert await queue.count() == 1


async def test_a_failing_handler_is_reported_and_stops_nothing(local_bus: Bus, other_local_bus: Bus, name: str) -> None:
    failure = ValueError("no ones, please")

    def fail_on_one(message: Message) -> None:
        if message.data == 1:
            raise failure

    client, server = await met(local_bus, other_local_bus, name)
    server.channel.on("message", fail_on_one)

    for number in (1, 2):
        await client.channel.send(number)

    await server.receives(1, 2)
    await server.heard.until("connect", "remote:connect", ("error", failure))


# Leaving


async def test_a_peer_that_disconnects_is_missed(bus: Bus, other_bus: Bus, name: str) -> None:
    client, server = await met(bus, other_bus, name)

    await client.channel.disconnect()
    await client.channel.disconnect()

    await server.heard.until("connect", "remote:connect", "remote:disconnect")
    assert client.heard.events == ["connect", "remote:connect", "disconnect"]
    assert not client.channel.is_attached
    assert server.channel.is_attached
    with pytest.raises(NotAttached):
        client.channel.send("too late")
    with pytest.raises(NotAttached):
        await client.channel.end()


async def test_whoever_comes_back_is_announced_anew_on_both_sides(bus: Bus, other_bus: Bus, name: str) -> None:
    client, server = await met(bus, other_bus, name)

    for _ in range(2):
        await client.channel.disconnect()
        await client.channel.connect()
        await comes_true(lambda: client.channel.is_remote_connected)

    came, went = "remote:connect", "remote:disconnect"
    await server.heard.until("connect", came, went, came, went, came)
    await client.heard.until("connect", came, "disconnect", "connect", came, "disconnect", "connect", came)


async def test_somebody_else_may_take_the_place_of_a_peer(bus: Bus, other_bus: Bus, name: str) -> None:
    client, server = await met(bus, other_bus, name)
    await server.channel.disconnect()
    successor = Peer(bus.channel(name))

    await successor.channel.listen()
    await client.channel.send("who are you?")

    await successor.receives("who are you?")
    await client.heard.until("connect", "remote:connect", "remote:disconnect", "remote:connect")
    assert server.received == []


async def test_a_peer_that_crashed_comes_back(bus: Bus, connect: Connect, name: str) -> None:
    doomed_bus = await connect()
    server, client = await met(bus, doomed_bus, name)
    await doomed_bus.link.store.close()
    await server.channel.send("while you were dead")

    reborn = Peer((await connect()).channel(name))
    await reborn.channel.listen()
    await server.channel.send("welcome back")

    await reborn.receives("while you were dead", "welcome back")
    await server.heard.until("connect", "remote:connect", "remote:connect")
    await reborn.heard.until("connect", "remote:connect")
    errors = errors_of(client.channel)
    await client.channel.disconnect()
    assert not client.channel.is_attached
    assert any(isinstance(error, StoreClosed) for error in errors)


async def test_what_a_crashed_peer_did_not_acknowledge_comes_again(
    connect: Connect, clock: FakeClock, name: str
) -> None:
    bus, doomed_bus = await connect(clock=clock), await connect(clock=clock)
    client, server = await met(bus, doomed_bus, name, reliable=True, ttl=300)
    errors_of(server.channel)
    for number in (1, 2):
        await client.channel.send(number)
    await server.receives(1, 2)
    await server.channel.ack(server.messages[0].id)
    await doomed_bus.link.store.close()

    clock.advance(60)
    reborn = Peer((await connect(clock=clock)).channel(name))
    await reborn.channel.listen(reliable=True, ttl=300)
    await client.channel.send(3)

    await comes_true(lambda: len(reborn.messages) == 2)
    assert sorted(reborn.received) == [2, 3]


async def test_a_bus_that_disconnects_takes_leave_of_every_peer(bus: Bus, other_bus: Bus, name: str) -> None:
    client, server = await met(bus, other_bus, name)
    client.channel.send("a last word")

    await bus.disconnect()

    await server.receives("a last word")
    await server.heard.until("connect", "remote:connect", "remote:disconnect")
    assert client.heard.events == ["connect", "remote:connect", "disconnect"]
    assert not client.channel.is_attached


async def test_a_channel_goes_on_when_its_bus_connects_again(bus: Bus, other_bus: Bus, name: str) -> None:
    client, server = await met(bus, other_bus, name)
    await bus.disconnect()
    await server.channel.send("while you were away")

    await bus.connect()
    await client.channel.connect()

    await client.receives("while you were away")


async def test_disconnecting_in_a_handler_leaves_the_other_messages_for_later(
    bus: Bus, other_bus: Bus, name: str
) -> None:
    client, server = await met(bus, other_bus, name)
    server.channel.on("message", lambda message: server.channel.disconnect())

    await asyncio.gather(*(client.channel.send(number) for number in range(3)))

    await server.receives(0)
    await server.heard.until("connect", "remote:connect", "disconnect")
    for seen in (1, 2):
        await server.channel.listen()
        await comes_true(lambda: not server.channel.is_attached)
        assert server.received == list(range(seen + 1))


async def test_disconnecting_when_connected_leaves_nothing_behind(local_bus: Bus, name: str) -> None:
    peer = Peer(local_bus.channel(name))
    peer.channel.once("connect", peer.channel.disconnect)

    await peer.channel.connect()

    assert not peer.channel.is_attached
    assert peer.heard.events[:2] == ["connect", "disconnect"]
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("onebus-channel")] == []
    await peer.channel.connect()
    assert peer.channel.is_attached


async def test_a_handler_may_disconnect_the_bus(bus: Bus, other_bus: Bus, name: str) -> None:
    client, server = await met(bus, other_bus, name)
    left = Heard(other_bus, "offline")
    server.channel.on("message", lambda message: other_bus.disconnect())

    await client.channel.send("go home")

    await left.until("offline")
    await client.heard.until("connect", "remote:connect", "remote:disconnect")
    await other_bus.connect()


async def test_an_end_waits_for_a_peer_that_is_away(local_bus: Bus, other_local_bus: Bus, name: str) -> None:
    client, server = Peer(local_bus.channel(name)), Peer(other_local_bus.channel(name))
    await client.channel.connect()
    await client.channel.send("the end is near")

    await client.channel.end()
    await server.channel.listen()

    await server.heard.until("connect", "remote:connect", "disconnect", "end")
    assert server.received == ["the end is near"]
    assert client.heard.events == ["connect", "disconnect"]


async def test_a_channel_may_begin_again_after_its_end(local_bus: Bus, other_local_bus: Bus, name: str) -> None:
    client, server = await met(local_bus, other_local_bus, name)
    await client.channel.end()
    await server.heard.until("connect", "remote:connect", "disconnect", "end")

    await client.channel.connect()
    await server.channel.listen()
    await client.channel.send("once more")

    await server.receives("once more")
    await server.heard.until("connect", "remote:connect", "disconnect", "end", "connect", "remote:connect")


# Acknowledging


async def test_only_what_was_not_acknowledged_comes_again(bus: Bus, other_bus: Bus, name: str) -> None:
    acknowledged: set[int] = set()

    async def ack_all_but_three(message: Message) -> None:
        if message.data != 3 or message.attempts > 1:
            await message.ack()
            acknowledged.add(message.data)

    client, server = await met(bus, other_bus, name, reliable=True)
    server.channel.on("message", ack_all_but_three)
    for number in range(1, 6):
        await client.channel.send(number)
    await server.receives(1, 2, 3, 4, 5)
    await comes_true(lambda: acknowledged == {1, 2, 4, 5})

    for last in (6, 7):
        await server.channel.disconnect()
        await server.channel.listen(reliable=True)
        await client.channel.send(last)

        await server.receives(1, 2, 3, 4, 5, 3, *range(6, last + 1))
        await comes_true(partial(acknowledged.issuperset, range(1, last + 1)))


async def test_an_acknowledgement_is_for_all_messages_before_it_too(
    local_bus: Bus, other_local_bus: Bus, name: str
) -> None:
    client, server = await met(local_bus, other_local_bus, name, reliable=True)
    for number in range(1, 6):
        await client.channel.send(number)
    await server.receives(1, 2, 3, 4, 5)

    await server.channel.ack(server.messages[3].id)
    await server.channel.disconnect()
    await server.channel.listen(reliable=True)

    await server.receives(1, 2, 3, 4, 5, 5)


async def test_the_comings_and_goings_of_a_peer_acknowledge_no_message(bus: Bus, other_bus: Bus, name: str) -> None:
    client, server = await met(bus, other_bus, name, reliable=True)
    await client.channel.send("not handled")
    await server.receives("not handled")
    await client.channel.disconnect()
    await client.channel.connect()
    await server.heard.until("connect", "remote:connect", "remote:disconnect", "remote:connect")

    await server.channel.disconnect()
    await server.channel.listen(reliable=True)

    await server.receives("not handled", "not handled")
    await server.messages[-1].ack()
    await server.channel.disconnect()
    await server.channel.listen()
    await client.channel.send("handled")
    await server.receives("not handled", "not handled", "handled")


async def test_acknowledging_without_being_connected_does_nothing(local_bus: Bus, name: str) -> None:
    await local_bus.channel(name).ack(1)
