"""What a rank and the worker service say to each other: protocol version 1, on one screen.

JSON objects, one a line, at most 64 KiB, over a Unix stream socket; ``type`` names the message.
An *iteration* is one batch of one rank, counted from the job's first; the job's steps are
iterations x world size, since all ranks advance together. Seconds count from the message.

Rank to worker
    hello         protocol, lease, job, rank, world, iteration, checkpointed
                                       first line of every connection, also after a lost one
    progress      iteration, checkpointed, load_s, save_s
                                       once loaded, then every interval; seconds under this lease
    proposal      iteration            asked for by propose: the rank goes no further than this
                                       until it is told where to stop or checkpoint (5 s at most)
    checkpointed  iteration, save_s    this rank's part is on disk, under the lease's id
    stopped       iteration, checkpointed   the lease is over for this rank; the process leaves
    done          iteration            the job is complete, and saved
    error         iteration, text      an exception, a failed save, or the loop was left early

Worker to rank
    lease         ends_in_s            after hello, and whenever the lease is renewed
    propose                            name an iteration at least two seconds of work ahead
    checkpoint    at                   save once the iteration is reached, and go on
    stop          at                   save once the iteration is reached, and leave
    refused       kind, reason         what the rank said last was not taken

``at`` 0 is the next step. For a gang the worker asks all ranks with ``propose`` and sends the
highest answer of all servers as ``at``: every rank then stands at exactly that iteration.

Silence: without a word a rank trains until the lease last told of ends, saves and leaves; one that
was asked to propose waits for the answer first. A lost connection changes nothing else; it is tried
again until the process leaves, and the last word (done or stopped) is repeated on the new one.
Types that are not known are ignored.
"""

from __future__ import annotations

import json
import math
from typing import Any

VERSION = 1
LINE_LIMIT = 64 * 1024

Message = dict[str, Any]


class ProtocolError(Exception):
    """The worker service said something that is no message of this protocol."""


def encode(kind: str, fields: Message) -> bytes:
    """One line."""
    return json.dumps({"type": kind, **fields}).encode() + b"\n"


def decode(line: bytes) -> Message:
    """The message of one line.

    Raises
    ------
    ProtocolError
        It is no JSON object, or lacks what its type needs.
    """
    try:
        message = json.loads(line)
    except ValueError as error:
        raise ProtocolError(f"{line[:80]!r} is not JSON: {error}") from error
    if not isinstance(message, dict):
        raise ProtocolError(f"{line[:80]!r} is not a JSON object")
    kind = message.get("type")
    needed = {"lease": "ends_in_s", "checkpoint": "at", "stop": "at"}.get(str(kind))
    value = message.get(needed) if needed else 0
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ProtocolError(f"{kind}: {needed} is {value!r}, not a number")
    return message
