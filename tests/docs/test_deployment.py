"""The files for deployments: they name only what exists, and give a worker the time that it needs to stop."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from ratchet.cli.app import app
from ratchet.cli.worker.supervisor import DRAIN_MARGIN
from ratchet.model.durations import parse_duration
from ratchet.model.metrics import METRICS
from ratchet.model.options import Options
from ratchet.scheduler import Scheduler
from tests.cluster import shop
from tests.cluster.workers import ROOT
from tests.support.waiting import until

OPS = ROOT / "ops"
UNITS = sorted((OPS / "systemd").glob("*.service"))
MANIFESTS = sorted((OPS / "kubernetes").glob("*.yaml"))
#: What a worker serves with --http (`ratchet.cli.worker.probes`), and what `ratchet metrics` does.
PAGES = {"worker": {"/live", "/ready", "/metrics"}, "metrics": {"/live", "/metrics"}}


def documents(kind: str | None = None) -> list[dict[str, Any]]:
    """Every object of the manifests, or those of one kind."""
    found = [one for path in MANIFESTS for one in yaml.safe_load_all(path.read_text()) if "kind" in one]
    return [one for one in found if kind in (None, one["kind"])]


def pods() -> list[tuple[str, dict[str, Any]]]:
    """The pods that deployments and jobs make, with the names of these."""
    return [
        (one["metadata"]["name"], one["spec"]["template"]["spec"])
        for one in documents()
        if "template" in one.get("spec", {})
    ]


def instructions() -> list[tuple[str, str]]:
    """The lines of the Dockerfile as words of instruction and rest; of both stages."""
    text = (OPS / "docker" / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1].strip()) for line in lines]


def final_stage() -> list[tuple[str, str]]:
    found = instructions()
    return found[max(number for number, (word, _) in enumerate(found) if word == "FROM") + 1 :]


def of_docker(word: str) -> list[str]:
    return [rest for found, rest in final_stage() if found == word]


def understood(words: list[str]) -> None:
    """``ratchet …`` as these files call it is a command with these options."""
    command: Any = get_command(app)
    rest = words[1:]
    while rest and hasattr(command, "commands") and rest[0] in command.commands:
        command = command.commands[rest.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts}
    assert not hasattr(command, "commands"), f"{words}: there is no such command"
    assert {word for word in rest if word.startswith("--")} <= known, words


def unit(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names as they stand
    parser.read(path)
    return parser


# --- systemd


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_accepts_the_unit(path: Path, tmp_path: Path) -> None:
    """Where systemd is installed, it is asked; the program that the unit names is not on this machine."""
    text = re.sub(
        r"^ExecStart=\S+", f"ExecStart={shutil.which('true')}", path.read_text(), flags=re.MULTILINE
    )
    (tmp_path / path.name).write_text(text)
    understood(["ratchet", *shlex.split(unit(path)["Service"]["ExecStart"])[1:]])
    if program := shutil.which("systemd-analyze"):
        said = subprocess.run(
            [program, "verify", "--man=no", str(tmp_path / path.name)],
            capture_output=True,
            text=True,
            check=False,
        )
        complaints = [line for line in said.stderr.splitlines() if path.name in line]
        assert complaints == []


def test_the_unit_of_the_worker_fits_what_the_worker_does() -> None:
    """It notifies, the watchdog is slower than the loop, only the supervisor is told to stop, and a stop from afar stays one."""
    service = unit(OPS / "systemd" / "ratchet-worker.service")["Service"]
    assert (service["Type"], service["NotifyAccess"], service["KillMode"]) == ("notify", "main", "mixed")
    assert parse_duration(service["WatchdogSec"]) >= timedelta(seconds=30)
    assert service["Restart"] == "on-failure"
    assert "RATCHET_DRAIN" not in service.get("Environment", "")  # the worker follows TimeoutStopSec
    assert parse_duration(service["TimeoutStopSec"].replace("min", "m")) > Options().drain_timeout
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"


# --- Docker


def test_the_image_runs_as_nobody_in_particular_and_hears_signals() -> None:
    """A number that is not root, SIGTERM straight to the worker, and nothing that installs in what runs."""
    (user,) = of_docker("USER")
    assert int(user.partition(":")[0]) > 1000
    assert of_docker("STOPSIGNAL") == ["SIGTERM"]
    (entry,) = of_docker("ENTRYPOINT")
    words: list[str] = yaml.safe_load(entry)
    understood(words)
    assert not [line for line in of_docker("RUN") if "pip" in line or "apt-get" in line]
    assert [word for word, _ in final_stage()].index("USER") > [word for word, _ in final_stage()].index(
        "COPY"
    )
    (health,) = of_docker("HEALTHCHECK")
    assert "http://127.0.0.1:9464/live" in health
    assert words[words.index("--http") + 1] == "0.0.0.0:9464"
    assert of_docker("EXPOSE") == ["9464"]


def test_the_entry_point_drains_as_the_first_process(tmp_path: Path) -> None:
    """
    The words of ENTRYPOINT, with the variables of ENV, as process 1 of a namespace where this machine has them.

    SIGTERM, which the kernel keeps from a process 1 that does not ask for it: the running job finishes, and it ends with 0.
    """
    url, ledger = f"sqlite:///{tmp_path / 'jobs.db'}", str(tmp_path / "ledger")
    scheduler = Scheduler(url, allow=["tests.cluster"])
    scheduler.migrate()
    (entry,) = of_docker("ENTRYPOINT")
    words = [word.replace("0.0.0.0:9464", "127.0.0.1:0") for word in yaml.safe_load(entry)]
    variables = dict(word.split("=", 1) for line in of_docker("ENV") for word in shlex.split(line))
    assert parse_duration(variables["RATCHET_DRAIN"]) > Options().drain_timeout
    command = [*namespace(), sys.executable, "-m", *words]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **variables, "PATH": os.environ["PATH"], "RATCHET_APP": "tests.cluster.app:scheduler", "RATCHET_URL": url},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )  # fmt: skip
        try:
            handle = scheduler.enqueue_now(shop.slow, ledger, "running", 1.5)
            until(lambda: shop.lines(ledger), 60, (tmp_path / "log").read_text())
            os.kill(first_process(process.pid), signal.SIGTERM)
            assert process.wait(60) == 0, (tmp_path / "log").read_text()
            assert handle.job().status.value == "SUCCEEDED"
            assert [line[0] for line in shop.lines(ledger)] == ["start", "end"]
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            scheduler.close()


def namespace() -> list[str]:
    """What makes the words that follow process 1 of a namespace of their own; nothing where that is not allowed."""
    words = ["unshare", "--fork", "--pid", "--kill-child"]
    if os.geteuid() != 0:
        words += ["--user", "--map-current-user"]
    tried = (
        subprocess.run([*words, "true"], capture_output=True, check=False)
        if shutil.which("unshare")
        else None
    )
    return words if tried is not None and tried.returncode == 0 else []


def first_process(pid: int) -> int:
    """The worker itself: *pid*, or the child of unshare."""
    if Path(f"/proc/{pid}/comm").read_text().strip() != "unshare":
        return pid
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


# --- Kubernetes


def test_every_manifest_is_an_object_of_a_known_kind() -> None:
    """Each has a version and a name; selectors find the pods that they are about."""
    versions = {"Deployment": "apps/v1", "Job": "batch/v1", "PodDisruptionBudget": "policy/v1", "HorizontalPodAutoscaler": "autoscaling/v2"}  # fmt: skip
    assert {one["kind"] for one in documents()} == set(versions)
    for one in documents():
        assert one["apiVersion"] == versions[one["kind"]]
        assert one["metadata"]["name"]
    labels = {
        one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"]
        for one in documents("Deployment")
    }
    for one in documents("Deployment"):
        assert one["spec"]["selector"]["matchLabels"] == labels[one["metadata"]["name"]]
    (budget,) = documents("PodDisruptionBudget")
    assert budget["spec"]["selector"]["matchLabels"] == labels["ratchet-worker"]


@pytest.mark.parametrize(("name", "pod"), pods())
def test_a_pod_asks_for_what_is_served(name: str, pod: dict[str, Any]) -> None:
    """Probes, ports and annotations name pages and ports that the command serves; options and variables exist."""
    (container,) = pod["containers"]
    words = container.get("command") or yaml.safe_load(of_docker("ENTRYPOINT")[0])
    words = [*words, *container.get("args", [])]
    understood(words)
    ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
    if "--http" in words:
        assert list(ports.values()) == [int(words[words.index("--http") + 1].rpartition(":")[2])]
    probes = {kind: probe["httpGet"] for kind, probe in container.items() if kind.endswith("Probe")}
    for probe in probes.values():
        assert probe["path"] in PAGES[words[1]]
        assert probe["port"] in ports
    known = {f"RATCHET_{field}".upper() for field in Options.__dataclass_fields__} | {"RATCHET_URL", "RATCHET_DRAIN", "RATCHET_APP"}  # fmt: skip
    assert {variable["name"] for variable in container["env"]} <= known
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert str(pod["securityContext"]["runAsUser"]) == of_docker("USER")[0].partition(":")[0]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_a_worker_gets_more_time_to_end_than_its_jobs() -> None:
    """The grace period holds the drain and the time after which the supervisor kills; the budget and the rollout keep workers."""
    (worker,) = [one for one in documents("Deployment") if one["metadata"]["name"] == "ratchet-worker"]
    pod = worker["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    drain = parse_duration(
        {one["name"]: one.get("value") for one in container["env"]}["RATCHET_DRAIN"]
    ).total_seconds()
    assert pod["terminationGracePeriodSeconds"] >= drain + DRAIN_MARGIN + 5
    assert drain > Options().drain_timeout.total_seconds()
    live, ready = container["livenessProbe"], container["readinessProbe"]
    assert (live["httpGet"]["path"], ready["httpGet"]["path"]) == ("/live", "/ready")
    assert worker["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert "replicas" not in worker["spec"]  # the autoscaler's
    annotations = worker["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(container["ports"][0]["containerPort"])


def test_autoscaling_asks_for_a_metric_that_exists() -> None:
    """The age of the oldest job, by queue; the rule for the adapter makes exactly that metric; it scales what there is."""
    (scaler,) = documents("HorizontalPodAutoscaler")
    (metric,) = scaler["spec"]["metrics"]
    wanted = metric["external"]["metric"]
    known = {one.name: one for one in METRICS}
    assert set(wanted["selector"]["matchLabels"]) <= set(known[wanted["name"]].labels)
    (rule,) = yaml.safe_load((OPS / "kubernetes" / "prometheus-adapter.yaml").read_text())["rules"][
        "external"
    ]
    assert (rule["seriesQuery"], rule["name"]["as"]) == (wanted["name"], wanted["name"])
    assert wanted["name"] in rule["metricsQuery"]
    target = scaler["spec"]["scaleTargetRef"]
    assert target["name"] in {one["metadata"]["name"] for one in documents(target["kind"])}
    assert scaler["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] >= 300  # a drain
