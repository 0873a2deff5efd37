"""`duepoint logs` of runs with more than one container, or more than one Pod, or none any more."""

from __future__ import annotations

from tests.support.realcluster import job, schedule, until


def container(name, script):
    return {"name": name, "image": "busybox:1.37", "command": ["sh", "-c", script]}


def ended(cluster, team, name, outcome):
    cluster.duepoint("trigger", name, "-n", team)

    def has_ended():
        last = cluster.get("schedule", name, f"--namespace={team}")["status"]["lastRun"]
        return last["outcome"] == outcome

    until(f"{name} has {outcome}", has_ended)


def test_every_container_of_a_run_is_shown_by_its_name(installed, team):
    template = job("echo of-main", initContainers=[container("before", "echo of-before")])
    template["spec"]["template"]["spec"]["containers"].append(container("side", "echo of-side"))
    installed.apply(schedule("several", "@every 1h", jobTemplate=template), namespace=team)
    ended(installed, team, "several", "Succeeded")

    shown = installed.duepoint("logs", "several", "-n", team).stdout
    lines = {line.rpartition(" ")[2]: line for line in shown.splitlines()}

    # kubectl reads the containers in no promised order.
    assert {"of-before", "of-main", "of-side"} <= set(lines)
    for name in ("before", "main", "side"):
        assert name in lines[f"of-{name}"].rpartition(" ")[0]
    only = installed.duepoint("logs", "several", "-n", team, "--container=side").stdout
    assert "of-side" in only
    assert "of-main" not in only


def test_a_run_whose_pod_is_gone_says_so_and_what_to_ask(installed, team):
    installed.apply(schedule("gone", "@every 1h", jobTemplate=job("true")), namespace=team)
    ended(installed, team, "gone", "Succeeded")
    installed("delete", "pods", "--all", f"--namespace={team}", "--timeout=60s")

    shown = installed.duepoint("logs", "gone", "-n", team, check=False)

    assert "has no Pod" in shown.stderr
    assert "duepoint why gone" in shown.stderr
