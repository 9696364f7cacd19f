"""The feeds of a bus over HTTP: polls, streams, server-sent events and websockets."""
