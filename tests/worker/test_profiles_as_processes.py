"""Profiles where accelerators are real: the operator's commands, and what becomes of bad ones."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import structlog

from schemas.domain import Lease, TaskSpec
from schemas.events import WorkerRegistered
from services.worker.devices import Accelerators
from services.worker.hands import Profile
from services.worker.launch import Settings
from services.worker.processes import ProcessHands
from services.worker.system import tasks_under
from services.worker.view import LogView

NAME = "worker.a"
#: Some 100 steps a second, or 50: what there is to do takes its time.
LOOP = """
import itertools, time
from pathlib import Path
from gavel_iterator import GavelIterator
loader = itertools.count()
for _ in GavelIterator(loader, load=str, save=lambda path: Path(path).touch()):
    time.sleep({step_s})
"""
REFERENCE = "A3C"


def command(code: str) -> str:
    """A command line that runs Python code."""
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}"


def profile_of(name: str, worker: str, job_command: str, beside: str = "") -> Lease:
    """A profile of a job, alone or beside a reference."""
    tasks = [
        TaskSpec(job_id="a", job_type="new", scale_factor=1, total_steps=10.0, command=job_command)
    ]
    if beside:
        tasks.append(TaskSpec(job_id="", job_type=beside, scale_factor=1, total_steps=0.0))
    return Lease(
        lease_id=name,
        tasks=tuple(tasks),
        worker_type="v100",
        worker_ids=(worker,),
        reporters=(NAME,),
        profile=True,
    )


def measured(
    folder: Path, references: Mapping[str, str], *leases: Lease, for_s: float = 30.0
) -> list[Profile]:
    """What profiles of these find, all at once."""

    async def run() -> list[Profile]:
        workers = {
            worker_id: (
                WorkerRegistered(
                    worker_id=worker_id, worker_type="v100", server_id="s", reporter=NAME
                ),
                str(number),
            )
            for number, worker_id in enumerate(("w0", "w1"))
        }
        settings = Settings(
            folder=folder / "worker",
            checkpoint_root=folder / "checkpoints",
            secrets={},
            checkpoint_grace_s=1.0,
            terminate_grace_s=1.0,
            progress_interval_s=1.0,
            emulated=False,
            references=references,
        )
        now = asyncio.get_running_loop().time
        logger = structlog.get_logger()
        hands = ProcessHands(Accelerators(lambda: workers), settings, LogView(NAME), now, logger)
        await hands.open()
        try:
            starts_at_s = now()
            return await asyncio.gather(
                *(hands.measure(lease, starts_at_s, starts_at_s + for_s) for lease in leases)
            )
        finally:
            await hands.close(leave_tasks=False)
            assert not tasks_under(settings.folder)

    return asyncio.run(run())


def test_a_job_and_the_operator_s_reference_are_measured_side_by_side(tmp_path: Path) -> None:
    """Both go on beyond the job's own ten steps; nothing is left in the job's checkpoint folder."""
    slow, fast = command(LOOP.format(step_s=0.02)), command(LOOP.format(step_s=0.01))
    found = measured(
        tmp_path,
        {REFERENCE: slow},
        profile_of("p0", "w0", fast),
        profile_of("p1", "w1", fast, beside=REFERENCE),
        for_s=12.0,
    )
    for profile in found:
        assert profile.outcome == "measured", profile.detail
        # However busy the machine, no loop is faster than it says.
        assert 0 < profile.speeds[0] < 110
    assert 0 < found[1].speeds[1] < 55
    assert not list((tmp_path / "checkpoints" / ".profiles").iterdir())


def test_a_reference_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    """No process is started for nothing; the message says where its command belongs."""
    lease = profile_of("p0", "w0", command(LOOP), beside=REFERENCE)
    (found,) = measured(tmp_path, {}, lease)
    assert (found.outcome, found.speeds) == ("failed", ())
    assert REFERENCE in found.detail
    assert "worker.references_file" in found.detail
    assert not (tmp_path / "worker" / "jobs").exists()


def test_a_job_without_a_command_cannot_be_profiled(tmp_path: Path) -> None:
    """These accelerators are real: nobody imagines how fast it would be."""
    (found,) = measured(tmp_path, {}, profile_of("p0", "w0", ""))
    assert found.outcome == "failed"
    assert "no command is known for 'new'" in found.detail


def test_a_process_that_ends_ends_its_profile_at_once(tmp_path: Path) -> None:
    """For want of memory: a fact about the job. Otherwise: none; its log stays to be looked at."""
    memory = command("raise MemoryError('CUDA out of memory')")
    crash = command("import no_such_module")
    fits, fails = measured(
        tmp_path, {}, profile_of("p0", "w0", memory), profile_of("p1", "w1", crash)
    )
    assert (fits.outcome, fails.outcome) == ("does_not_fit", "failed")
    assert "no_such_module" in fails.detail
    assert list((tmp_path / "worker" / "jobs" / "a" / "p1").iterdir())


def test_a_gang_of_several_services_is_none_of_one_service_s_business(tmp_path: Path) -> None:
    """It holds some of the workers only."""
    lease = profile_of("p0", "elsewhere", command(LOOP))
    (found,) = measured(tmp_path, {}, lease)
    assert found.outcome == "failed"
    assert "several worker services" in found.detail
