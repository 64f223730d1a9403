"""The page in a real browser: it draws every picture, without an error and without a network."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from replay.cli.__main__ import app

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_SIZE = (1280, 1800)

pytestmark = pytest.mark.timeout(300)  # a browser on a loaded machine takes its time to start


@pytest.fixture(scope="module")
def browser() -> str:
    """A headless browser's command; skipped where there is none."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium here (Debian: apt-get install chromium)")
    return found


def shown(browser: str, page: Path, *options: str) -> tuple[str, list[str]]:
    """The page's elements once its scripts have run, and what they wrote to the console."""
    done = subprocess.run(
        [
            *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--disable-dev-shm-usage", "--virtual-time-budget=20000", "--enable-logging=stderr"),
            *(f"--user-data-dir={page.parent / 'profile'}", "--dump-dom", *options),
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    return done.stdout, re.findall(r"CONSOLE[:(].*", done.stderr)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a small run."""
    folder = tmp_path_factory.mktemp("page")
    log, out = folder / "run.jsonl", folder / "run.html"
    options = "--generate --multi-gpu --jobs 30 --mean-gap 900 --cluster v100=8,p100=8,k80=8"
    simulate = ["simulate", *options.split(), "--log", str(log)]
    assert CliRunner().invoke(app, simulate).exit_code == 0
    assert CliRunner().invoke(app, ["report", str(log), "--out", str(out)]).exit_code == 0
    return out


def test_every_picture_is_drawn(browser: str, page: Path) -> None:
    """Each place has its drawing, and the console is silent."""
    elements, console = shown(browser, page)
    assert console == []
    places = re.findall(r'<div class="picture[^"]*" id="([a-z-]+)"', elements)
    assert len(places) == page.read_text().count('class="picture"') > 5
    for place in places:
        after = elements.partition(f'id="{place}"')[2].partition("</section>")[0]
        assert "main-svg" in after, place


def test_the_screenshot_has_colours(browser: str, page: Path) -> None:
    """It is neither blank nor a broken page: bars and lines are where they belong."""
    from matplotlib.image import imread  # noqa: PLC0415 - of this test only

    picture = page.with_suffix(".png")
    shown(browser, page, f"--screenshot={picture}", f"--window-size={_SIZE[0]},{_SIZE[1]}")
    seen = np.asarray(imread(picture))[..., :3]
    assert seen.shape[:2] == (_SIZE[1], _SIZE[0])
    saturated = np.ptp(seen, axis=2) > 0.3
    # The timeline fills the width; the charts stand below it, in two columns.
    assert saturated[: _SIZE[1] // 2].mean() > 0.05
    assert saturated[_SIZE[1] // 2 :, : _SIZE[0] // 2].any()
    assert saturated[_SIZE[1] // 2 :, _SIZE[0] // 2 :].any()


def test_an_error_would_be_noticed(browser: str, page: Path) -> None:
    """A page that throws, or fetches something, writes to the console that is looked at."""
    broken = page.with_name("broken.html")
    text = page.read_text()
    broken.write_text(text.replace("</main>", "</main><script>nowhere()</script>"))
    assert "nowhere" in " ".join(shown(browser, broken)[1])
    broken.write_text(text.replace("</main>", '</main><img src="https://example.com/a.png">'))
    assert "Content Security Policy" in " ".join(shown(browser, broken)[1])
