"""How soon a leader that dies, or hangs, is replaced: `make bench` prints it."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import suppress

import pytest

from schemas.events import LeaderElected, ThroughputEstimated
from tests.live.servers import connected, new_cluster
from tests.live.shells import Outsider, until
from tests.live.test_shell import Replica, job, of_kind, table_of

_TAKE_OVER_S = 10.0
_PATIENCE_S = 60.0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_take_over(how: signal.Signals) -> None:
    """Seconds from the leader's end, or its standstill, to its successor's first decision."""

    async def measure() -> float:
        cluster = new_cluster()
        first, second = (Replica(cluster, "estimator", name) for name in "ab")
        async with connected(cluster) as log:
            await Outsider(log, "operator").append(table_of(2))
            await first.start()
            await until(log, lambda records: bool(of_kind(records, LeaderElected)))
            # Asking again who leads, the standby has had an answer: it is one.
            questions = await log.client.subscribe(f"gavel.{cluster}.live.estimator")
            await second.start()
            for _ in range(2):
                await questions.next_msg(_PATIENCE_S)
            await questions.unsubscribe()
            client = Outsider(log, "client.a")
            await client.append(job(0))
            await until(log, lambda records: len(of_kind(records, ThroughputEstimated)) == 1)
            began = time.monotonic()
            first.send(how)
            await client.append(job(1))
            records = await until(log, lambda found: len(of_kind(found, ThroughputEstimated)) == 2)
            took_s = time.monotonic() - began
            for replica in (first, second):
                with suppress(ProcessLookupError):
                    await replica.end(signal.SIGKILL)
        assert len({record.epoch for record in of_kind(records, ThroughputEstimated)}) == 2
        return took_s

    took_s = asyncio.run(measure())
    print(f"\ntake-over after {how.name}: {took_s:.1f} s (at most {_TAKE_OVER_S:g})")
    assert took_s < _TAKE_OVER_S
