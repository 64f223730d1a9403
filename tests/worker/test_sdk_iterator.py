"""The iterator in real training processes, against a real lease socket."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from services.worker.lease_socket import Agreeable, Gone
from services.worker.ranks import Checkpointed, Done, Error, Hello, Progress, Stopped
from tests.worker.lease_host import Host, ended, hosting, plain_environment, task

HOUR_S = 3600.0

#: Trains by counting; what it is to do with the iterator follows.
PRELUDE = """
import itertools, json, os, signal, sys, time
from pathlib import Path
from gavel_iterator import GavelIterator

state = {"trained": 0, "loads": 0}

def load(path):
    state.update(json.loads(Path(path).read_text()))
    state["loads"] += 1

def save(path):
    Path(path).write_text(json.dumps(state))

def train(batch=None):
    state["trained"] += 1
    time.sleep(0.001)

"""
ENDLESS = """
it = GavelIterator(itertools.repeat(1), load=load, save=save)
for batch in it:
    train(batch)
print(json.dumps({"done": it.done, "stopped": it.stopped, "iteration": it.iteration, **state}))
"""


def script(folder: Path, text: str) -> list[str]:
    """A training script: its command line."""
    path = folder / "train.py"
    path.write_text(PRELUDE + text)
    return [str(path)]


def states(folder: Path, lease_id: str) -> dict[int, dict[str, int]]:
    """{steps: what was saved} of the checkpoints of a lease."""
    return {
        int(path.parent.parent.name): json.loads(path.read_text())
        for path in folder.glob(f"lease-{lease_id}/*/rank-0/state")
    }


def trained(
    folder: Path,
    text: str,
    *,
    steps: float,
    act: Callable[[Host], Awaitable[None]] | None = None,
    lease_id: str = "a",
    resume_from: str = "",
    ends_in_s: float = HOUR_S,
) -> tuple[Host, int, str, str]:
    """Run a script under one lease; the host, the exit code, and both outputs."""

    async def scenario() -> tuple[Host, int, str, str]:
        async with hosting(folder) as host:
            spec = task(folder, steps=steps, resume_from=resume_from)
            host.socket.expect(lease_id, spec, {0}, ends_in_s)
            process = await host.start(lease_id, spec, script(folder, text))
            if act is not None:
                await act(host)
            code, out, err = await ended(process)
            await host.until(lambda: bool(host.said(Gone)))
            return host, code, out, err

    return asyncio.run(scenario())


def begun(host: Host, rank: int = 0) -> bool:
    """Whether training is under way."""
    return any(progress.iteration for progress in host.said(Progress, rank=rank))


def test_a_job_is_trained_to_its_last_step(tmp_path: Path) -> None:
    """It ends at exactly the total, saved, ``done``, with code 0, and says so."""
    host, code, out, err = trained(tmp_path, ENDLESS, steps=20)
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "done": True,
        "stopped": False,
        "iteration": 20,
        "trained": 20,
        "loads": 0,
    }
    assert host.said(Done) == [Done(iteration=20)]
    assert states(tmp_path, "a").keys() == {20}
    assert not host.socket.refusals


def test_a_fraction_of_a_step_is_a_whole_batch(tmp_path: Path) -> None:
    """A total of 2.5 steps takes three batches, and counts as 2.5."""

    async def act(host: Host) -> None:
        await host.heard(Done)
        steps = host.socket.steps("a", "j")
        assert steps is not None
        assert (steps.steps, steps.checkpointed_steps) == (2.5, 2.5)

    trained(tmp_path, ENDLESS, steps=2.5, act=act)


def test_a_stopped_job_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """At the lease's end: a checkpoint, code 0, ``done`` false; then on, nothing trained twice."""

    async def act(host: Host) -> None:
        await host.until(lambda: begun(host))
        host.socket.stop("a", "j")

    host, code, out, _ = trained(tmp_path, ENDLESS, steps=1e9, act=act)
    first = json.loads(out)
    assert code == 0
    assert (first["done"], first["stopped"]) == (False, True)
    at = first["iteration"]
    assert host.said(Stopped) == [Stopped(iteration=at, checkpointed=at)]
    assert first["trained"] == at

    host, code, out, _ = trained(tmp_path, ENDLESS, steps=at + 5, lease_id="b", resume_from="a")
    second = json.loads(out)
    assert (code, second["done"], second["loads"]) == (0, True, 1)
    assert second["iteration"] == second["trained"] == at + 5
    assert host.said(Progress)[0].iteration == at


def test_a_complete_job_trains_no_step_more(tmp_path: Path) -> None:
    """Started again although complete, it loads, trains nothing and says done at once."""
    trained(tmp_path, ENDLESS, steps=7)
    host, code, out, _ = trained(tmp_path, ENDLESS, steps=7, lease_id="b", resume_from="a")
    assert code == 0
    assert json.loads(out)["trained"] == 7
    assert host.said(Done) == [Done(iteration=7)]


def test_a_renewed_lease_costs_no_checkpoint(tmp_path: Path) -> None:
    """Renewed in time, training goes on past the first end, and nothing has been saved."""

    async def act(host: Host) -> None:
        host.socket.renew("a", HOUR_S)
        first_end = time.monotonic() + 1.0
        await host.until(lambda: begun(host) and time.monotonic() > first_end)
        assert not host.said(Checkpointed)
        host.socket.stop("a", "j")

    host, code, _, _ = trained(tmp_path, ENDLESS, steps=1e9, act=act, ends_in_s=1.0)
    assert code == 0
    assert len(host.said(Checkpointed)) == 1


def test_a_lease_that_ends_without_a_word(tmp_path: Path) -> None:
    """Silence: the job saves and leaves at the lease's end, not before."""

    async def act(host: Host) -> None:
        await host.until(lambda: begun(host))
        told = time.monotonic()
        host.socket.renew("a", 1.0)
        await host.heard(Stopped)
        assert time.monotonic() - told >= 1.0

    host, code, out, _ = trained(tmp_path, ENDLESS, steps=1e9, act=act)
    assert code == 0
    assert json.loads(out)["stopped"]
    assert states(tmp_path, "a").keys() == {host.said(Stopped)[0].iteration}


def test_a_lost_worker_service_changes_nothing_before_the_end(tmp_path: Path) -> None:
    """With nobody at the socket a job trains to the lease's end, saves, and leaves with code 0."""

    async def scenario() -> None:
        async with hosting(tmp_path) as host:
            spec = task(tmp_path, steps=1e9)
            host.socket.expect("a", spec, {0}, HOUR_S)
            process = await host.start("a", spec, script(tmp_path, ENDLESS))
            await host.until(lambda: begun(host))
            host.socket.renew("a", 2.0)
            await host.socket.close()
            seen = host.said(Progress)[-1].iteration
            code, out, err = await ended(process)
            assert code == 0
            assert "lost the worker service" in err
            end = json.loads(out)
            assert end["stopped"]
            assert end["iteration"] > seen
            assert states(tmp_path, "a").keys() == {end["iteration"]}

    asyncio.run(scenario())


def test_a_worker_service_that_returns_is_told_all(tmp_path: Path) -> None:
    """A new socket at the old path hears a hello with the true count, and its orders count."""

    async def scenario() -> None:
        async with hosting(tmp_path) as host:
            spec = task(tmp_path, steps=1e9)
            host.socket.expect("a", spec, {0}, HOUR_S)
            process = await host.start("a", spec, script(tmp_path, ENDLESS))
            await host.until(lambda: begun(host))
            await host.socket.close()
            seen = host.said(Progress)[-1].iteration
            async with hosting(tmp_path) as successor:
                successor.socket.expect("a", spec, {0}, HOUR_S)
                assert (await successor.heard(Hello)).iteration >= seen > 0
                successor.socket.stop("a", "j")
                await successor.heard(Stopped)
                code, _, _ = await ended(process)
                assert code == 0

    asyncio.run(scenario())


def test_a_checkpoint_that_was_asked_for(tmp_path: Path) -> None:
    """It is written at the next step, training goes on, and an exact step is kept."""

    async def act(host: Host) -> None:
        await host.until(lambda: begun(host))
        host.socket.checkpoint("a", "j")
        at = (await host.heard(Checkpointed)).iteration + 200
        host.socket.checkpoint("a", "j", at=at)
        assert (await host.heard(Checkpointed, times=2)).iteration == at
        host.socket.stop("a", "j")

    host, code, _, _ = trained(tmp_path, ENDLESS, steps=1e9, act=act)
    assert code == 0
    saved = [message.iteration for message in host.said(Checkpointed)]
    assert states(tmp_path, "a").keys() == set(saved[-2:])


def test_ranks_of_unequal_pace_stop_at_one_step(tmp_path: Path) -> None:
    """Ranks that nothing but the worker service holds together stop at exactly the agreed step."""

    async def scenario() -> None:
        async with hosting(tmp_path) as host:
            spec = task(tmp_path, steps=1e9, ranks=3)
            host.socket.expect("a", spec, {0, 1, 2}, HOUR_S)
            pace = "time.sleep(0.002 + 0.001 * int(os.environ['GAVEL_RANK']))"
            command = script(tmp_path, ENDLESS.replace("train(batch)", pace))
            processes = [await host.start("a", spec, command, rank=rank) for rank in (0, 1, 2)]
            for rank in (0, 1, 2):
                await host.until(partial(begun, host, rank))
            host.socket.propose("a", "j")
            agreed = (await host.heard(Agreeable, rank=None)).iteration
            host.socket.stop("a", "j", at=agreed)
            for rank in (0, 1, 2):
                assert (await host.heard(Stopped, rank=rank)).iteration == agreed
            for process in processes:
                assert (await ended(process))[0] == 0

    asyncio.run(scenario())


KILLED_SAVE = """
def save(path):
    with open(path, "w") as file:
        file.write(json.dumps(state)[:5])
        file.flush()
        if state["trained"] == 10:
            os.kill(os.getpid(), signal.SIGKILL)
    Path(path).write_text(json.dumps(state))

it = GavelIterator(itertools.repeat(1), load=load, save=save)
for batch in it:
    train()
    if state["trained"] in (5, 10):
        {ask}
"""


def test_a_kill_in_the_middle_of_a_save(tmp_path: Path) -> None:
    """After a kill -9 with half a checkpoint written, the previous one is loaded whole."""
    ask = "it._session.course.checkpoint(0)"
    _, code, _, _ = trained(tmp_path, KILLED_SAVE.replace("{ask}", ask), steps=1e9)
    assert code == -signal.SIGKILL
    assert states(tmp_path, "a") == {5: {"trained": 5, "loads": 0}}
    assert list(tmp_path.glob("lease-a/*/rank-0.partial/state"))

    host, code, out, _ = trained(tmp_path, ENDLESS, steps=12, lease_id="b", resume_from="a")
    assert code == 0
    assert host.said(Progress)[0].iteration == 5
    assert json.loads(out)["trained"] == 12
    assert not list(tmp_path.glob("lease-*/*/*.partial"))


def test_epochs_of_a_short_loader(tmp_path: Path) -> None:
    """Nested loops stay epochs: each pass is whole but the last, which ends with the job."""
    text = """
it = GavelIterator([1, 2, 3], load=load, save=save)
passes = []
for epoch in range(100):
    passes.append(0)
    for batch in it:
        train()
        passes[-1] += 1
    if it.done or it.stopped:
        break
print(len(it), passes)
"""
    host, code, out, _ = trained(tmp_path, text, steps=10)
    assert (code, out.strip()) == (0, "3 [3, 3, 3, 1]")
    assert host.said(Done) == [Done(iteration=10)]


def test_a_loop_that_does_not_ask_is_ended(tmp_path: Path) -> None:
    """An epoch begun after the lease's end exits the process with code 0, cleaning up."""
    text = """
it = GavelIterator([1, 2, 3], load=load, save=save)
try:
    while not it.done:
        for batch in it:
            train()
finally:
    print("cleaned up")
"""
    host, code, out, err = trained(tmp_path, text, steps=1e9, ends_in_s=0.5)
    assert (code, out.strip(), err) == (0, "cleaned up", "")
    assert host.said(Stopped)
    assert not host.said(Error)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        pytest.param("if state['trained'] == 4: break", 0, "left early (after 3 of", id="break"),
        pytest.param(
            "if state['trained'] == 4: raise RuntimeError('no memory')",
            1,
            "RuntimeError: no memory (after 3 of",
            id="exception",
        ),
        pytest.param(
            "if state['trained'] == 4: sys.exit(3)", 3, "left early (after 3 of", id="exit"
        ),
    ],
)
def test_a_loop_that_is_left(tmp_path: Path, text: str, code: int, said: str) -> None:
    """Left before its end, a job says why, and the batch in hand does not count."""
    text = f"""
it = GavelIterator(itertools.repeat(1), load=load, save=save)
for batch in it:
    train()
    {text}
"""
    host, seen, _, _ = trained(tmp_path, text, steps=100)
    assert seen == code
    (error,) = host.said(Error)
    assert error.iteration == 3
    assert said in error.text
    assert not states(tmp_path, "a")


def test_a_loader_that_runs_dry(tmp_path: Path) -> None:
    """A generator cannot be passed over twice; the error says so, and how far it came."""
    text = """
it = GavelIterator((n for n in range(4)), load=load, save=save)
while not it.done:
    for batch in it:
        train()
"""
    host, code, _, err = trained(tmp_path, text, steps=100)
    assert code == 1
    assert "LoaderError: the loader gave no batch after 4 of 100" in err
    assert "LoaderError" in host.said(Error)[0].text


def test_a_forked_process_neither_reports_nor_saves(tmp_path: Path) -> None:
    """A child that iterates past the job's end only trains; the parent's counts are untouched."""
    text = """
it = GavelIterator([1] * 8, load=load, save=save)
for batch in it:
    train()
    if state["trained"] == 2:
        child = os.fork()
if child == 0:
    print("child", state["trained"], it.done, sum(it))
    sys.exit(0)
os.waitpid(child, 0)
print("parent", state["trained"], it.done)
"""
    host, code, out, err = trained(tmp_path, text, steps=6)
    assert (code, err) == (0, "")
    assert out.splitlines() == ["child 8 False 8", "parent 6 True"]
    assert host.said(Done) == [Done(iteration=6)]
    assert not host.said(Error)
    assert host.said(Checkpointed)[0].iteration == 6


@pytest.mark.parametrize("at_the_end", [False, True])
def test_a_save_that_fails(tmp_path: Path, at_the_end: bool) -> None:
    """On request it is reported and training goes on; at the end the process fails loudly."""
    text = ENDLESS.replace(
        "it = ",
        "def save(path):\n    if not state.get('saved', 0):\n        state['saved'] = 1\n"
        "        raise OSError('disk full')\n    Path(path).write_text('{}')\nit = ",
    )

    async def act(host: Host) -> None:
        await host.until(lambda: begun(host))
        if not at_the_end:
            host.socket.checkpoint("a", "j")
            assert "disk full" in (await host.heard(Error)).text
        host.socket.stop("a", "j")

    host, code, _, err = trained(tmp_path, text, steps=1e9, act=act)
    assert "OSError: disk full" in host.said(Error)[0].text
    if at_the_end:
        assert code == 1
        assert "CheckpointError" in err
        assert not host.said(Stopped)
    else:
        assert code == 0
        assert host.said(Stopped)


def test_a_process_of_another_lease_is_turned_away(tmp_path: Path) -> None:
    """Refused by the worker service, a process ends at once with the reason."""

    async def scenario() -> None:
        async with hosting(tmp_path) as host:
            spec = task(tmp_path, steps=9)
            process = await host.start("never granted", spec, script(tmp_path, ENDLESS))
            code, _, err = await ended(process)
            assert code == 1
            assert "WorkerError" in err
            assert "unknown_lease: lease 'never granted' of job 'j' is not out here" in err
            assert "did not answer" not in err
            assert host.socket.refusals == {"unknown_lease": 1}

    asyncio.run(scenario())


def test_one_iterator_per_process(tmp_path: Path) -> None:
    """A second iterator, say for validation, would report the wrong loop: it is refused."""
    text = "for _ in range(2):\n    it = GavelIterator([1], load=load, save=save)\n"
    _, code, _, err = trained(tmp_path, text, steps=9)
    assert code == 1
    assert "GavelError: one GavelIterator per process" in err


def test_a_step_costs_next_to_nothing(tmp_path: Path) -> None:
    """Beside the bare loop a step costs under 5 microseconds of the processor."""
    text = """
loader = range(500_000)
it = GavelIterator(loader, load=load, save=save)
def seconds(batches):
    started = time.thread_time()
    for batch in batches:
        pass
    return time.thread_time() - started
print((min(seconds(it) for _ in range(3)) - seconds(loader)) / len(loader))
"""
    _, _, out, _ = trained(tmp_path, text, steps=1e9)
    assert float(out) < 5e-6


def test_no_thread_and_no_count_outside_the_scheduler(tmp_path: Path) -> None:
    """Without the worker's variables there is the loader, and nothing else."""
    text = """
import threading
loader = [1, 2, 3]
it = GavelIterator(loader, load=load, save=save)
assert type(iter(it)) is type(iter(loader))
assert [list(it), list(it)] == [loader, loader]
assert threading.active_count() == 1
print(it.done, it.stopped, it.iteration, len(it), state)
"""

    async def scenario() -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *script(tmp_path, text),
            env=plain_environment(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        code, out, err = await ended(process)
        assert (code, err) == (0, "")
        assert out.strip() == "False False 0 3 {'trained': 0, 'loads': 0}"

    asyncio.run(scenario())
