"""Who of a group reads which partition. Whoever knows the same comes to the same result, so nobody has to decide."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence


def assign(partitions: Sequence[int], members: Iterable[str], owners: Mapping[int, str]) -> dict[int, str]:
    """Return the member for each partition; none where nobody is there.

    Fair: no two members differ by more than one partition. Sticky: as many partitions as fairness allows stay with
    those of `members` who own them now, according to `owners`.
    """
    everybody = sorted(set(members))
    if not everybody:
        return {}
    owned = Counter(owner for owner in owners.values() if owner in everybody)
    share, extra = divmod(len(partitions), len(everybody))
    # Whoever has most may keep one more than the others, so that fewest have to move.
    richest = sorted(everybody, key=lambda member: (-owned[member], member))
    room = {member: share + (rank < extra) for rank, member in enumerate(richest)}
    assigned: dict[int, str] = {}
    for partition in partitions:
        owner = owners.get(partition)
        if owner is not None and room.get(owner, 0) > 0:
            assigned[partition] = owner
            room[owner] -= 1
    free = (partition for partition in partitions if partition not in assigned)
    takers = (member for member in everybody for _ in range(room[member]))
    return assigned | dict(zip(free, takers, strict=True))
