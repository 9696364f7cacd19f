"""The fair and sticky assignment of partitions."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from onebus.log.groups import assign

MEMBERS = st.sets(st.sampled_from("abcdefgh"), min_size=1)


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[int], set[str], dict[int, str]]:
    partitions = list(range(draw(st.integers(0, 30))))
    owners = draw(st.dictionaries(st.sampled_from(partitions), st.sampled_from("abcdefghxyz"))) if partitions else {}
    return partitions, draw(MEMBERS), owners


@given(situations())
def test_every_partition_has_a_member_and_nobody_has_two_more_than_another(
    situation: tuple[list[int], set[str], dict[int, str]],
) -> None:
    partitions, members, owners = situation

    assigned = assign(partitions, members, owners)

    counts = Counter(assigned.values())
    assert sorted(assigned) == partitions
    assert set(assigned.values()) <= members
    assert max(counts[member] for member in members) - min(counts[member] for member in members) <= 1


@given(situations())
def test_what_is_fair_already_stays_as_it_is(situation: tuple[list[int], set[str], dict[int, str]]) -> None:
    partitions, members, owners = situation
    once = assign(partitions, members, owners)

    assert assign(partitions, members, once) == once


@given(situations())
def test_nobody_loses_more_than_fairness_takes(situation: tuple[list[int], set[str], dict[int, str]]) -> None:
    partitions, members, owners = situation
    assigned = assign(partitions, members, owners)
    least = len(partitions) // len(members)

    for member in members:
        before = {partition for partition, owner in owners.items() if owner == member}
        kept = {partition for partition in before if assigned[partition] == member}
        assert len(kept) >= min(len(before), least)


def test_one_who_joins_gets_one_of_each_and_the_others_keep_the_rest() -> None:
    owners = {0: "a", 1: "a", 2: "a", 3: "b", 4: "b", 5: "b"}

    assigned = assign(range(6), "abc", owners)

    assert Counter(assigned.values()) == {"a": 2, "b": 2, "c": 2}
    assert sum(assigned[partition] != owner for partition, owner in owners.items()) == 2


def test_without_members_nobody_has_anything() -> None:
    assert assign(range(3), [], {0: "a"}) == {}
