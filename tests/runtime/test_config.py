"""Settings: where they come from, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from services.runtime.config import ConfigError, LogSettings, Settings, check, load

FILE = """\
[log]
servers = ["nats://a:4222", "nats://b:4222"]
cluster = "lab"

[service]
health_port = 8080
"""


def settings(tmp_path: Path, text: str, environment: dict[str, str] | None = None) -> Settings:
    """Settings of a file with this text."""
    path = tmp_path / "gavel.toml"
    path.write_text(text)
    return check(load(Settings, path, environment or {}))


def test_nothing_said_is_the_default() -> None:
    """Without a file and variables, every setting has its default, and they make sense."""
    assert check(load(Settings, None, {})) == Settings()


def test_the_environment_counts_over_the_file(tmp_path: Path) -> None:
    """Each key stands in the file or in a variable; texts become what the key is."""
    environment = {
        "GAVEL_LOG_CLUSTER": "night",
        "GAVEL_LOG_SERVERS": "nats://c:1, nats://d:2",
        "GAVEL_SERVICE_LOG_JSON": "true",
        "GAVEL_HOME": "/somebody/else's",
        "PATH": "/bin",
    }
    found = settings(tmp_path, FILE, environment)
    assert found.log == LogSettings(servers=("nats://c:1", "nats://d:2"), cluster="night")
    assert (found.service.health_port, found.service.log_json) == (8080, True)


@pytest.mark.parametrize(
    ("text", "environment", "message"),
    [
        ("[log]\nclutser = 'a'", {}, r"gavel.toml, line 2: 'clutser' .* did you mean 'cluster'"),
        ("\n[servce]\n", {}, r"line 2: 'servce' is no section; did you mean 'service'"),
        ("[log]\nxyz = 1", {}, r"line 2: 'xyz' is no key of \[log\]; there are servers, cluster"),
        ("[log]\nreplicas = 'a'", {}, r"line 2: log.replicas is 'a': expected `int`"),
        ("log = 3", {}, r"line 1: log must be a table"),
        ("[log\n", {}, r"gavel.toml is no TOML: .*line 1"),
        ("", {"GAVEL_LOG_CLUSTR": "x"}, r"GAVEL_LOG_CLUSTR .*did you mean 'GAVEL_LOG_CLUSTER'"),
        ("", {"GAVEL_LOG_REPLICAS": "x"}, r"GAVEL_LOG_REPLICAS: log.replicas is 'x': expected"),
        ("[log]\ncluster = 'a.b'", {}, r"log.cluster is 'a.b', must be letters"),
        ("[log]\nreplicas = 2", {}, r"log.replicas is 2, must be 1, 3 or 5"),
        ("[log]\nservers = []", {}, r"log.servers is \(\), must be one URL"),
        (
            "[log]\nservers = ['http://u:p@h:1']",
            {},
            r"servers is 'http://h:1', must be nats://HOST",
        ),
        ("[service]\nlog_level = 'loud'", {}, r"log_level is 'loud', must be one of debug"),
        ("[service]\nhealth_port = 70000", {}, r"health_port is 70000, must be 0 to 65535"),
        ("[service]\nsnapshot_every = 0", {}, r"snapshot_every is 0, must be 1 or more records"),
        ("[worker]\nports = [9, 20]", {}, r"worker.ports is \(9, 20\), must be two ports, 1024"),
        ("", {"GAVEL_WORKER_PORTS": "3000"}, r"worker.ports is \(3000,\), must be two ports"),
        ("[worker]\npace = 'v100=2'", {}, r"pace is 'v100=2', must be nothing where accelerators"),
        ("[log]\nmonitor_url = 'file:///x'", {}, r"monitor_url is 'file:///x', must be empty, or"),
    ],
)
def test_a_wrong_setting_is_named(
    tmp_path: Path, text: str, environment: dict[str, str], message: str
) -> None:
    """The error has the place, the key, the value, and what would be right."""
    with pytest.raises(ConfigError, match=message):
        settings(tmp_path, text, environment)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """It is not silently taken for an empty one."""
    with pytest.raises(ConfigError, match=r"absent\.toml cannot be read: No such file"):
        load(Settings, tmp_path / "absent.toml", {})


def test_every_setting_has_its_variable() -> None:
    """Names of sections and keys make names of variables that are told apart."""
    names = [
        f"GAVEL_{section.name}_{key.name}".upper()
        for section in msgspec.structs.fields(Settings)
        for key in msgspec.structs.fields(section.type)
    ]
    assert len(names) == len(set(names))
