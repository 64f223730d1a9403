"""What all tests share: reproducible hypothesis runs, and the folder of reference data."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

from services.policy import catalog

ROOT = Path(__file__).resolve().parent.parent

# A shell that runs tests in the background ignores Ctrl-C, and whatever they start would, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Deterministic unless asked otherwise: a red test stays red until the code changes. How long it
# takes depends on what else the machine does, and so fails nothing. Nor are constants of our
# modules tried: which of these a process has loaded depends on what it has run before.
pytest.MonkeyPatch().setattr(providers, "is_local_module_file", lambda _: False)
_UNTIMED = hypothesis.settings(
    deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("ci", _UNTIMED, derandomize=True, database=None)
hypothesis.settings.register_profile("explore", _UNTIMED, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def reference_data() -> Path:
    """Folder of published traces, throughputs and results; the test is skipped without it."""
    folder = Path(os.environ.get("GAVEL_REFERENCE_DATA", ROOT / ".." / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("reference data not present")
    return folder


@pytest.fixture(autouse=True)
def _own_policies_go() -> Iterator[None]:
    """What a test registers is gone after it: the catalogue is the process's."""
    yield
    catalog._registered.clear()
