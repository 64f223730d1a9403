"""Gangs start when they can be held as priced: consolidated, or anywhere."""

from __future__ import annotations

from itertools import combinations, count
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from schemas.domain import Lease
from schemas.events import ClusterConfigured, RoundScheduled
from schemas.servers import fewest
from services.mechanism.consolidation import Request, Room, place_as_priced
from services.mechanism.core import MechanismCore
from tests.mechanism.events import (
    allocation,
    estimate,
    job,
    plan,
    progress,
    stopped,
    told,
    worker,
)

ROUND_S, LEAD_S = 360.0, 10.0
BY_PLACEMENT = ClusterConfigured(policy="las:placement")
#: Gangs of any size lose half of their speed when they are not consolidated.
SPEEDS = {"v100": 2.0, "v100_unconsolidated": 1.0}


# --- room ----------------------------------------------------------------------------------------


@given(sizes=st.lists(st.integers(1, 8), min_size=1, max_size=6), workers=st.integers(1, 20))
def test_fewest_is_the_least_number_of_servers_that_can_hold_it(
    sizes: list[int], workers: int
) -> None:
    """No smaller set of servers has so many workers; without any set, there is no number."""
    enough = [
        k
        for k in range(1, len(sizes) + 1)
        if any(sum(chosen) >= workers for chosen in combinations(sizes, k))
    ]
    assert fewest(workers, sizes) == (enough[0] if enough else None)


class Case(NamedTuple):
    """Gangs and others that have been chosen, and where."""

    requests: list[Request]
    servers: dict[str, list[str]]
    room: Room


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Gangs that the room has taken, jobs that fit beside them; some hold workers already."""
    sizes = draw(st.lists(st.sampled_from([2, 4, 6, 8]), min_size=1, max_size=4))
    servers = {f"s{i}": [f"s{i}-{j}" for j in range(size)] for i, size in enumerate(sizes)}
    room, free = Room(sizes), sum(sizes)
    idle = {name: list(ids) for name, ids in servers.items()}
    requests = []
    for _ in range(draw(st.integers(0, 8))):
        workers = draw(st.integers(1, 10))
        consolidated = workers > 1 and draw(st.booleans())
        if workers > free or (consolidated and not room.take(workers)):
            continue
        free -= workers
        held: tuple[str, ...] | None = None
        if draw(st.booleans()):
            # Any workers hold those who may lie anywhere; a gang's are on as few servers as can be.
            order = draw(st.permutations(sorted(idle)))
            there = [w for name in order for w in idle[name]]
            if consolidated:
                roomy = [name for name in order if len(idle[name]) >= workers]
                there = idle[roomy[0]] if roomy and room.span(workers) == 1 else []
            if len(there) >= workers:
                held = tuple(there[:workers])
                idle = {name: [w for w in ids if w not in held] for name, ids in idle.items()}
        requests.append(Request(workers, held, consolidated))
    return Case(requests, servers, room)


@given(case=cases())
def test_all_that_was_chosen_is_placed_as_priced(case: Case) -> None:
    """Everybody gets workers of their own, and gangs on as few servers as could ever hold them."""
    placed = place_as_priced(case.requests, case.servers, case.room)
    home = {w: name for name, ids in case.servers.items() for w in ids}
    given_out = [w for ids in placed for w in ids]
    assert len(given_out) == len(set(given_out))
    sizes = [len(ids) for ids in case.servers.values()]
    for request, ids in zip(case.requests, placed, strict=True):
        assert len(ids) == request.workers
        if request.consolidated:
            assert len({home[w] for w in ids}) == fewest(request.workers, sizes)


@given(case=cases())
def test_nobody_moves_without_need(case: Case) -> None:
    """Where all who are chosen hold workers, all keep them, in their order."""
    held = [request.held for request in case.requests]
    if all(ids is not None for ids in held):
        assert place_as_priced(case.requests, case.servers, case.room) == held


def gang(workers: int, *held: str) -> Request:
    """A chosen gang that must be consolidated."""
    return Request(workers, held or None, consolidated=True)


def single(held: str) -> Request:
    """A chosen job of one worker, which it holds."""
    return Request(1, (held,), consolidated=False)


def test_a_new_gang_goes_where_it_moves_the_fewest() -> None:
    """Two servers have room for the gang of two once others yield; it goes where one must."""
    servers = {"a": ["a0", "a1", "a2"], "b": ["b0", "b1", "b2"]}
    room = Room([3, 3])
    assert room.take(2)
    requests = [gang(2), single("a0"), single("a1"), single("b0")]
    placed = place_as_priced(requests, servers, room)
    assert placed == [("b1", "b2"), ("a0",), ("a1",), ("b0",)]


def test_gangs_move_where_no_other_way_makes_room() -> None:
    """Two gangs of two on two servers of four leave none whole; for one of four, one moves."""
    servers = {"a": ["a0", "a1", "a2", "a3"], "b": ["b0", "b1", "b2", "b3"]}
    room = Room([4, 4])
    assert all(room.take(workers) for workers in (2, 2, 4))
    requests = [gang(2, "a0", "a1"), gang(2, "b0", "b1"), gang(4)]
    one, other, new = place_as_priced(requests, servers, room)
    assert {w[0] for w in one} == {w[0] for w in other} != {w[0] for w in new}
    assert [one, other].count(("a0", "a1")) + [one, other].count(("b0", "b1")) == 1


def test_a_gang_that_was_turned_away_says_so() -> None:
    """Two servers of three hold two gangs of two together, not three; the rest is of no use."""
    room = Room([3, 3])
    assert [room.take(2) for _ in range(3)] == [True, True, False]
    assert room.refused


# --- rounds --------------------------------------------------------------------------------------


class Cluster:
    """A mechanism with servers of eight, told round by round what the policy wants."""

    def __init__(self, servers: int, config: ClusterConfigured = BY_PLACEMENT) -> None:
        self.core = MechanismCore()
        self.server: dict[str, str] = {}
        told(self.core, 0.0, config)
        for i, j in ((i, j) for i in range(servers) for j in range(8)):
            told(self.core, 0.0, worker(f"w{i}-{j}", server=f"s{i}"))
            self.server[f"w{i}-{j}"] = f"s{i}"
        for scale_factor in range(1, 17):
            told(self.core, 0.0, estimate(SPEEDS, scale_factor))
        self.held: dict[str, Lease] = {}
        self._rounds = count(1)
        self._now = LEAD_S

    def submit(self, **scale_factors: int) -> None:
        """Jobs come in, as {job id: scale factor}."""
        told(self.core, self._now, *(job(name, s) for name, s in scale_factors.items()))

    def allocate(self, **shares: dict[str, float]) -> None:
        """A new X of jobs alone."""
        told(self.core, self._now, allocation({(name,): x for name, x in shares.items()}))

    def next_round(self) -> RoundScheduled:
        """Plan, and report the round before."""
        number = next(self._rounds)
        planned = plan(self.core, number, self._now)
        kept = {name: each for name, each in self.held.items() if each.lease_id in planned.renewed}
        self.held = kept | {each.tasks[0].job_id: each for each in planned.granted}
        if number > 1:
            told(self.core, planned.starts_at_s, progress(number - 1))
        self._now = planned.ends_at_s - LEAD_S
        return planned

    def complete(self, job_id: str) -> None:
        """A job is done."""
        told(self.core, self._now, stopped(self.held[job_id].lease_id, job_id, "completed"))

    def span(self, job_id: str) -> int:
        """Servers that the job is on."""
        return len({self.server[w] for w in self.held[job_id].worker_ids})


def fragmented(config: ClusterConfigured = BY_PLACEMENT) -> Cluster:
    """Four servers of eight, on each of which a gang of five runs that is owed more than others."""
    cluster = Cluster(4, config)
    fives = {f"five{i}": 5 for i in range(4)}
    cluster.submit(**fives)
    cluster.allocate(**{name: {"v100": 1.0} for name in fives})
    cluster.next_round()
    assert {cluster.span(name) for name in fives} == {1}
    return cluster


def test_a_gang_waits_until_it_can_be_held_consolidated_as_priced() -> None:
    """Case 8: twelve workers are free, three on each server, and the gang of eight is not started.

    Not even to fill them. It starts on one server as soon as one of the others has ended.
    """
    cluster = fragmented()
    cluster.submit(eight=8)
    shares = {f"five{i}": {"v100": 1.0} for i in range(4)} | {"eight": {"v100": 0.1}}
    cluster.allocate(**shares)
    for _ in range(3):
        cluster.next_round()
        assert sorted(cluster.held) == sorted(set(shares) - {"eight"})
    cluster.complete("five2")
    cluster.next_round()
    assert cluster.span("eight") == 1
    assert not cluster.held["eight"].unconsolidated


def test_a_gang_priced_as_unconsolidated_starts_anywhere() -> None:
    """The same gang with a share of ``v100_unconsolidated`` runs at once, on what is free."""
    cluster = fragmented()
    cluster.submit(eight=8)
    shares = {f"five{i}": {"v100": 1.0} for i in range(4)}
    cluster.allocate(**shares, eight={"v100_unconsolidated": 0.1})
    cluster.next_round()
    assert cluster.held["eight"].unconsolidated
    assert cluster.held["eight"].worker_type == "v100"
    assert cluster.span("eight") == 3
    renewed = cluster.next_round().renewed
    assert cluster.held["eight"].lease_id in renewed


def test_other_policies_start_gangs_anywhere() -> None:
    """Without ``:placement`` the gang is started on the twelve that are free."""
    cluster = fragmented(ClusterConfigured(policy="las"))
    cluster.submit(eight=8)
    cluster.allocate(**{f"five{i}": {"v100": 1.0} for i in range(4)}, eight={"v100": 0.1})
    cluster.next_round()
    assert cluster.span("eight") == 3


def test_small_jobs_that_renew_do_not_keep_a_chosen_gang_waiting() -> None:
    """Sixteen single jobs on four servers leave none whole; the gang of eight starts all the same.

    Sixteen workers are free. The single jobs in its way move, four at most, and the rest renew.
    """
    cluster = Cluster(4)
    singles = {f"one{i}": 1 for i in range(32)}
    cluster.submit(**singles)
    cluster.allocate(**{name: {"v100": 1.0} for name in singles})
    cluster.next_round()
    for server in range(4):
        here = [name for name in singles if cluster.span(name) and _on(cluster, name, server)]
        for name in here[::2]:
            cluster.complete(name)
            del singles[name]
    cluster.submit(eight=8)
    cluster.allocate(**{name: {"v100": 1.0} for name in singles}, eight={"v100": 0.2})
    planned = cluster.next_round()
    assert cluster.span("eight") == 1
    moved = [each.tasks[0].job_id for each in planned.granted if each.tasks[0].job_id != "eight"]
    assert len(moved) == 4
    assert set(cluster.held) == {*singles, "eight"}
    assert cluster.next_round().granted == ()


def _on(cluster: Cluster, job_id: str, server: int) -> bool:
    return cluster.server[cluster.held[job_id].worker_ids[0]] == f"s{server}"


def test_a_gang_larger_than_a_server_is_on_as_few_as_can_hold_it() -> None:
    """Twelve workers lie on two servers of eight, whole on one of them, also beside others."""
    cluster = Cluster(3)
    cluster.submit(six=6, twelve=12)
    cluster.allocate(six={"v100": 1.0}, twelve={"v100": 1.0})
    cluster.next_round()
    assert (cluster.span("six"), cluster.span("twelve")) == (1, 2)


def test_gangs_that_cannot_all_be_held_take_turns() -> None:
    """Two of three gangs of five fit two servers of eight at a time; nobody is left behind."""
    cluster = Cluster(2)
    gangs = {"a": 5, "b": 5, "c": 5}
    cluster.submit(**gangs)
    cluster.allocate(**{name: {"v100": 1.0} for name in gangs})
    rounds = dict.fromkeys(gangs, 0)
    for _ in range(30):
        cluster.next_round()
        assert len(cluster.held) == 2
        for name in cluster.held:
            assert cluster.span(name) == 1
            rounds[name] += 1
    assert max(rounds.values()) - min(rounds.values()) <= 6


def test_a_new_policy_moves_the_gang_that_is_not_as_priced() -> None:
    """What ``las`` has spread over servers, ``las:placement`` gathers on one, by a new lease."""
    cluster = fragmented(ClusterConfigured(policy="las"))
    cluster.submit(eight=8)
    shares = {f"five{i}": {"v100": 1.0} for i in range(4)}
    cluster.allocate(**shares, eight={"v100": 0.1})
    cluster.next_round()
    told(cluster.core, 0.0, BY_PLACEMENT)
    for name in ("five0", "five1"):
        cluster.complete(name)
        del shares[name]
    cluster.allocate(**shares, eight={"v100": 1.0})
    before = cluster.held["eight"]
    planned = cluster.next_round()
    assert before.lease_id in planned.ended
    assert cluster.span("eight") == 1


def test_a_new_job_is_held_in_its_better_way_before_any_solve_knows_it() -> None:
    """Its equal share is of the faster way: consolidated here, anywhere where that is faster."""
    for speeds, spread in ((SPEEDS, False), ({"v100": 1.0, "v100_unconsolidated": 2.0}, True)):
        cluster = Cluster(2)
        told(cluster.core, 0.0, estimate(speeds, 8))
        cluster.submit(new=8)
        cluster.next_round()
        assert cluster.held["new"].unconsolidated == spread
