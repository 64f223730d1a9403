"""The index of a log file: snapshots beside it, so that one need not begin at the beginning.

``LOG.snapshots`` holds what the cores, and the folds of a ``Moment`` beside them, have come to
after every so many records and after the last. It is a cache: what does not fit the log, or was
made by other code than this, is left alone, and the log is folded instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path

import msgspec

from replay.moment import Moment
from schemas.record import Record
from services.runtime.file_log import read_log
from services.runtime.snapshot import Snapshots, UnfitSnapshotError

#: Records between two snapshots: so many have to be folded at most.
EVERY = 2_500


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """A snapshot's place in the log."""

    seq: int
    at: float
    #: Who had written by then, and so has a snapshot.
    actors: tuple[str, ...]


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
        """
        moment = Moment(lambda: read_log(self._log, check=False))
        places: list[_Place] = []
        last: Record | None = None
        for record in read_log(self._log):
            moment.take(record)
            if record.seq % EVERY == 0:
                places.append(self._keep(moment, record))
                progress(record.seq)
            last = record
        if last is not None and last.seq % EVERY:
            places.append(self._keep(moment, last))
        if last is not None:
            self._list.write_bytes(msgspec.json.encode(places))
        return moment.world.last_seq

    def moment(self, seq: int | None = None, until_s: float | None = None) -> Moment | None:
        """The log at the newest snapshot that fits, no later than asked; None without one."""
        fitting = [
            place
            for place in self._places()
            if (seq is None or place.seq <= seq) and (until_s is None or place.at <= until_s)
        ]
        # Where two do not fit, the code has changed, and none will.
        for place in fitting[-1:-3:-1]:
            found = self._restored(place)
            if found is not None:
                return found
        return None

    def _places(self) -> list[_Place]:
        try:
            return msgspec.json.decode(self._list.read_bytes(), type=list[_Place])
        except (OSError, msgspec.MsgspecError):
            return []

    def _keep(self, moment: Moment, record: Record) -> _Place:
        for snapshots in self._snapshots(moment):
            snapshots.write(snapshots.take(record))
        return _Place(record.seq, moment.world.now, tuple(moment.actors))

    def _restored(self, place: _Place) -> Moment | None:
        moment = Moment(lambda: read_log(self._log, check=False))
        for name in place.actors:
            moment.join(name)
        there = next(read_log(self._log, after=place.seq - 1, check=False), None)
        try:
            for snapshots in self._snapshots(moment):
                snapshots.restore(snapshots.read(place.seq), there)
        except UnfitSnapshotError:
            return None
        return moment

    def _snapshots(self, moment: Moment) -> Iterator[Snapshots]:
        """One for each actor; the folds beside the cores go with the mechanism."""
        for name, actor in moment.actors.items():
            beside = moment.beside if name == "mechanism" else ()
            yield Snapshots(self._folder, _version(), actor, beside, EVERY, keep=None)


@cache
def _version() -> str:
    """Digest of the code of the folds beside the cores: another's snapshots do not fit."""
    here = Path(__file__).parent
    sources = (here / f"{name}.py" for name in ("world", "speeds", "underway", "moment"))
    return blake2b(b"".join(map(Path.read_bytes, sources)), digest_size=8).hexdigest()
