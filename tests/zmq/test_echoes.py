from onebus.zmq.echoes import MAX_ECHOES, Echoes


def test_a_batch_is_known_by_being_the_same_object() -> None:
    echoes = Echoes()
    batch = bytes([1, 2, 3])

    echoes.keep(batch, b"[1,2,3]")

    assert echoes.of(batch) == b"[1,2,3]"
    assert echoes.of(bytes(bytearray(batch))) is None


def test_few_batches_are_remembered() -> None:
    echoes = Echoes()
    batches = [number.to_bytes(9) for number in range(MAX_ECHOES + 1)]

    for batch in batches:
        echoes.keep(batch, b"[1]")

    assert [echoes.of(batch) for batch in batches] == [None, *[b"[1]"] * MAX_ECHOES]
