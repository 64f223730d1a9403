"""``gavel log``: look into a log, follow one job through it, copy it to another format."""

from __future__ import annotations

import io
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
import zstandard

from replay import story as words
from replay.options import InputError, OptionError, examples, new_file, one_of, put_when_whole
from schemas.domain import JobSpec
from schemas.events import AnyEvent, JobSubmitted
from schemas.record import Record
from services.runtime.file_log import Ending, FileLog, read_log

#: Lines to a zstd frame, as the log's own writer has.
_FRAME_LINES = 4096

app = typer.Typer(
    no_args_is_help=True,
    help="Look into a log file: its records, one job's story, a copy in another format.",
)
LogFile = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A log file.")
]


@app.command(
    epilog="Columns: sequence; log time in seconds; who wrote it; kind of event; <N, the record it "
    "answers; what happened.\n\n"
    + examples(
        "gavel log tail run.jsonl --kind RoundScheduled",
        "gavel log tail run.jsonl.zst -n 0 --job 17",
    )
)
def tail(
    log: LogFile,
    number: Annotated[int, typer.Option("-n", min=0, help="How many; 0: all.")] = 20,
    kind: Annotated[str, typer.Option(help="Only this kind of event.")] = "",
    job: Annotated[str, typer.Option(help="Only what is about this job.")] = "",
) -> None:
    """Print the last records, one a line."""
    if kind:
        one_of("--kind", kind, [each.__name__ for each in AnyEvent.__args__])
    story = words.Story(_submitted("--job", log, job)) if job else None
    told = (
        (record, story.take(record) if story else words.describe(record.event))
        for record in _read(log)
    )
    lines = (
        words.line(record, text)
        for record, text in told
        if text is not None and kind in ("", words.kind(record.event))
    )
    print(words.HEADING)
    for shown in deque(lines, maxlen=number) if number else lines:
        print(shown)


@app.command("story", epilog=examples("gavel log story run.jsonl 17 --brief"))
def tell_story(
    log: LogFile,
    job: Annotated[str, typer.Argument(help="A job id.")],
    *,
    brief: Annotated[
        bool, typer.Option("--brief", help="Leave out renewals and rounds merely lived through.")
    ] = False,
) -> None:
    """Print all records about a job, each with the record it answers.

    Plans are told as they concern the job (leases granted, renewed, ended), allocations where its
    share changes.
    """
    thread = words.Story(_submitted("JOB", log, job), brief=brief)
    for shown in words.tell(thread, _read(log)):
        print(shown)


@app.command(
    epilog=examples(
        "gavel log export run.jsonl.zst run.jsonl", "gavel log export killed.jsonl whole.jsonl"
    )
)
def export(
    log: LogFile,
    out: Annotated[Path, typer.Argument(help="The copy; compressed if it ends in .zst.")],
    *,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")] = False,
) -> None:
    """Copy a log, plain to .zst or back: the same records to the byte, chained and sealed.

    What a killed writer had begun and not finished is left out.
    """
    if out.exists() and out.samefile(log):
        raise OptionError("OUT", str(out), "another file than the one to be copied")
    new_file("OUT", out, force=force)
    # The first reading finds damage, before anything is written.
    records = sum(1 for _ in _read(log))
    with put_when_whole(out) as partial:
        _copy_lines(log, partial, records)
        # The log's own writer checks the copy from its first line on, and seals it.
        FileLog(partial).close()
    print(f"{out}: {records} records")


@app.command(epilog=examples("gavel log index run.jsonl.zst"))
def index(log: LogFile) -> None:
    """Fold a log once, and keep in LOG.snapshots what it comes to.

    Then `replay` goes to any record, and `explain` answers, at once. It is a cache: made anew by
    this command, passed by where it does not fit, free to be deleted.
    """
    from replay.index import Index  # noqa: PLC0415 - numpy and the solvers take a while to load
    from replay.places import lines_in  # noqa: PLC0415 - as above
    from replay.views import record_progress  # noqa: PLC0415 - as above
    from services.runtime.snapshot import UnfitSnapshotError  # noqa: PLC0415 - as above

    try:
        with record_progress(lines_in(log), "indexing") as progress:
            records = Index(log).write(progress)
    except UnfitSnapshotError as error:
        raise InputError(f"{log} cannot be indexed: {error}") from None
    print(f"{log}.snapshots: {records} records indexed")


def _read(log: Path) -> Iterator[Record]:
    """Records of a log; says on stderr if it has no proper end."""

    def note(ending: Ending) -> None:
        if not ending.sealed:
            torn = "; its last line, begun but not finished, is left out" if ending.torn else ""
            text = f"gavel: {log} is not sealed: its writer is at work or was killed{torn}"
            print(text, file=sys.stderr)

    return read_log(log, on_end=note)


def _submitted(option: str, log: Path, job_id: str) -> JobSpec:
    """The job of that id; refuses one that is not in the log."""
    jobs: dict[str, JobSpec] = {}
    for record in read_log(log):
        if isinstance(record.event, JobSubmitted):
            jobs[record.event.job.job_id] = record.event.job
            if job_id in jobs:
                break
    return jobs[one_of(option, job_id, jobs)]


def _copy_lines(log: Path, out: Path, number: int) -> None:
    """Copy the first lines as they are."""
    with _opened(log) as source, out.open("wb") as target:
        compress = zstandard.ZstdCompressor(write_checksum=True).compress
        for lines in _groups(islice(source, number), _FRAME_LINES):
            text = b"".join(lines)
            target.write(compress(text) if out.suffix == ".zst" else text)


@contextmanager
def _opened(log: Path) -> Iterator[Iterable[bytes]]:
    with log.open("rb") as file:
        if log.suffix != ".zst":
            yield file
            return
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        yield io.BufferedReader(reader)


def _groups(lines: Iterator[bytes], size: int) -> Iterator[list[bytes]]:
    while group := list(islice(lines, size)):
        yield group
