"""The least that stands between publishers and consumers: a program of its own, with a room and two addresses."""

import sys

import zmq


def main(room: str, publishers: str, consumers: str) -> None:
    with zmq.Context() as context, context.socket(zmq.PULL) as pull, context.socket(zmq.PUB) as pub:
        # It waits for a consumer that is slow: one that loses frames would look fast.
        pub.setsockopt(zmq.XPUB_NODROP, 1)
        pull.bind(publishers)
        pub.bind(consumers)
        while True:
            pub.send_multipart([room.encode(), pull.recv()])


if __name__ == "__main__":
    main(*sys.argv[1:])
