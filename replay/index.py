"""The index of a log file: snapshots beside it, so that one need not begin at the beginning.

``LOG.snapshots`` holds what the cores have come to after every so many records and after the last,
and now and then, as they grow with the log, the folds of a ``Moment`` beside them. It is a cache:
what does not fit the log, or was made by other code than this, is left alone, and the log is folded
instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import ClassVar

import msgspec

from replay.moment import Cores, Moment
from replay.places import Place, places, read_from
from schemas.decisions import Decision, Effect
from schemas.events import AnyEvent, Event
from schemas.record import MalformedRecordError, Record
from services.runtime.actor import Actor
from services.runtime.file_log import DamagedLogError, read_log
from services.runtime.snapshot import Snapshots, UnfitSnapshotError

#: A log of more records is worth an index.
LONG = 10_000
#: Records between two snapshots: so many have to be folded at most.
EVERY = 2_500
#: At most so many are of whole moments; in a longer log they are further apart.
MOMENTS = 50
#: What the snapshots of one log are called; the folder is its own.
_NAME = "log"


class _Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """A place of the log with snapshots."""

    place: Place
    at: float
    #: Who had written by then, and so has a snapshot.
    actors: tuple[str, ...]
    #: Whether there is one of the folds beside the cores too.
    whole: bool


class Index:
    """The index of one log file."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._folder = log.with_name(f"{log.name}.snapshots")
        self._list = self._folder / "places.json"

    def write(self, progress: Callable[[int], None] = lambda _: None) -> int:
        """Fold the log once and keep what it comes to; how many records there are.

        Raises
        ------
        DamagedLogError, NewerSchemaError
            See ``services.runtime.file_log.read_log``.
        OSError
            A file cannot be written.
        UnfitSnapshotError
            A service knows something that no snapshot can hold.
        """
        moment = Moment(lambda: read_log(self._log, check=False))
        kept: dict[int, tuple[float, tuple[str, ...]]] = {}
        #: Snapshots of whole moments, and how many records apart.
        whole: set[int] = set()
        apart = EVERY
        last: Record | None = None
        for record in read_log(self._log):
            moment.take(record)
            last = record
            if record.seq % EVERY:
                continue
            kept[record.seq] = self._keep(moment, record)
            if record.seq % apart == 0:
                whole.add(self._keep_world(moment, record))
            if len(whole) > MOMENTS:
                apart *= 2
                whole = self._thinned(moment, whole, apart)
            progress(record.seq)
        if last is None:
            return 0
        if last.seq not in kept:
            kept[last.seq] = self._keep(moment, last)
        if last.seq not in whole:
            whole.add(self._keep_world(moment, last))
        found = places(self._log, kept.keys())
        listed = [
            _Snapshot(found[seq], at, actors, seq in whole) for seq, (at, actors) in kept.items()
        ]
        self._list.write_bytes(msgspec.json.encode(listed))
        return last.seq

    def moment(self, seq: int | None = None, until_s: float | None = None) -> Moment | None:
        """The log at the newest whole snapshot that fits, no later than asked; None without one."""
        for snapshot in self._fitting(seq, until_s, whole=True):
            moment = Moment(lambda: read_log(self._log, check=False))
            if self._fill(moment, snapshot):
                return moment
        return None

    def cores(
        self,
        seq: int | None = None,
        until_s: float | None = None,
        only: Collection[str] | None = None,
    ) -> Cores | None:
        """What services knew at the newest snapshot no later than asked; None without one.

        ``only``: the services that are wanted, if not all.
        """
        for snapshot in self._fitting(seq, until_s):
            cores = Cores(lambda: read_log(self._log, check=False), only)
            if self._fill(cores, snapshot):
                return cores
        return None

    def read(self, after: int) -> Iterator[Record]:
        """The records after one, from the nearest place on; their chain is not checked.

        Raises
        ------
        DamagedLogError, NewerSchemaError
            See ``services.runtime.file_log.read_log``.
        """
        before = [each.place for each in self._listed() if each.place.seq <= after]
        if not before:
            yield from read_log(self._log, after=after, check=False)
            return
        place = max(before, key=lambda each: each.seq)
        expected = place.seq
        try:
            for record in read_from(self._log, place):
                if record.seq != expected:
                    raise MalformedRecordError(f"its seq is {record.seq}")
                expected += 1
                if record.seq > after:
                    yield record
        except MalformedRecordError as error:
            what = f"{self._log}, line {expected} is not record {expected}: {error}"
            raise DamagedLogError(what) from None

    def _fitting(
        self, seq: int | None, until_s: float | None, *, whole: bool = False
    ) -> Sequence[_Snapshot]:
        """The newest two. Where both do not fit, the code or the log has changed, and none will."""
        fitting = [
            each
            for each in self._listed()
            if (seq is None or each.place.seq <= seq)
            and (until_s is None or each.at <= until_s)
            and (each.whole or not whole)
        ]
        return fitting[-1:-3:-1]

    def _listed(self) -> list[_Snapshot]:
        try:
            return msgspec.json.decode(self._list.read_bytes(), type=list[_Snapshot])
        except (OSError, msgspec.MsgspecError):
            return []

    def _keep(self, moment: Moment, record: Record) -> tuple[float, tuple[str, ...]]:
        for snapshots in self._of_cores(moment):
            snapshots.write(snapshots.take(record))
        return moment.now, tuple(moment.actors)

    def _keep_world(self, moment: Moment, record: Record) -> int:
        snapshots = self._of_world(moment)
        snapshots.write(snapshots.take(record))
        return record.seq

    def _thinned(self, moment: Moment, whole: set[int], apart: int) -> set[int]:
        """Those that are so far apart; the others are dropped."""
        kept = {seq for seq in whole if seq % apart == 0}
        for seq in whole - kept:
            self._of_world(moment).drop(seq)
        return kept

    def _fill(self, cores: Cores, snapshot: _Snapshot) -> bool:
        """Fill fresh cores, or a fresh moment, from a snapshot; False if it does not fit."""
        seq = snapshot.place.seq
        try:
            there = next(read_from(self._log, snapshot.place), None)
        except MalformedRecordError:
            return False
        for name in snapshot.actors:
            cores.join(name)
        of_world = [self._of_world(cores)] if isinstance(cores, Moment) else []
        try:
            for snapshots in (*self._of_cores(cores), *of_world):
                snapshots.restore(snapshots.read(seq), there)
        except UnfitSnapshotError:
            return False
        cores.now, cores.last_seq = snapshot.at, seq
        cores.services |= set(snapshot.actors)
        return True

    def _of_cores(self, cores: Cores) -> Iterator[Snapshots]:
        for actor in cores.actors.values():
            yield Snapshots(self._folder, _NAME, actor, every=EVERY, keep=None)
        yield self._of_folds("received", cores.last_seq, (cores.received,))

    def _of_world(self, moment: Moment) -> Snapshots:
        return self._of_folds("world", moment.last_seq, moment.beside)

    def _of_folds(self, name: str, seq: int, folds: Sequence[object]) -> Snapshots:
        """Of folds that are no core's; what bears them is an actor that does nothing."""
        bearer = Actor(name, _Nothing())
        bearer.last_seq = seq
        return Snapshots(
            self._folder, _NAME, bearer, folds, EVERY, keep=None, code=_code_of_folds()
        )


class _Nothing:
    """The core of folds that have none: a snapshot is an actor's."""

    effects: ClassVar[tuple[type[Effect], ...]] = ()

    @property
    def handles(self) -> Collection[type[Event]]:
        """See ``services.runtime.actor.Core``."""
        return ()

    def handle(self, event: AnyEvent, now: float) -> Sequence[Decision]:
        """See ``services.runtime.actor.Core``."""
        return ()


@cache
def _code_of_folds() -> str:
    """Digest of the sources that the folds beside the cores depend on."""
    here = Path(__file__).parent
    sources = [here / f"{name}.py" for name in ("received", "speeds", "underway", "world")]
    sources += sorted((here.parent / "schemas").glob("*.py"))
    return blake2b(b"".join(map(Path.read_bytes, sources)), digest_size=16).hexdigest()
