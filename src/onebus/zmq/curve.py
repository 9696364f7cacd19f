"""Sockets that only those who know the secret of a broker can use, and on which nobody else can listen.

This is CurveZMQ. Its server key is made from the secret: a client proves with its first message that it has the key,
which never travels, and so nobody can connect without the secret.
"""

import hashlib
from typing import Final

import zmq
from zmq.utils import z85

# It takes some 50 ms, so that guessing takes long.
_COST: Final = 2**14
_SALT: Final = b"onebus broker"


def guard(socket: "zmq.Socket[bytes]", secret: str) -> None:
    """Let only those connect to a socket who know the secret."""
    key = _key_of(secret)
    socket.curve_secretkey = key
    socket.curve_publickey = zmq.curve_public(key)
    socket.curve_server = True


def unlock(socket: "zmq.Socket[bytes]", secret: str) -> None:
    """Let a socket connect to those that are guarded."""
    socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
    socket.curve_serverkey = zmq.curve_public(_key_of(secret))


def server_key(secret: str) -> str:
    """Return the public key of brokers that have this secret, for clients in other languages.

    Whoever has it can connect: keep it as safe as the secret.
    """
    return zmq.curve_public(_key_of(secret)).decode()


def _key_of(secret: str) -> bytes:
    return z85.encode(hashlib.scrypt(secret.encode(), salt=_SALT, n=_COST, r=8, p=1, dklen=32))
