"""What a run says of its Pod: killed for memory, an exit code, a deadline; and its log at once."""

from __future__ import annotations

import json

from tests.support.realcluster import job, schedule, until


def _last_run(installed, team, name):
    return installed.get("schedule", name, f"--namespace={team}")["status"].get("lastRun", {})


def _failed(installed, team, name, says):
    """The newest run, once its message says this."""

    def named():
        last = _last_run(installed, team, name)
        return last if says in last.get("message", "") else None

    return until(f"{name} says {says}", named)


def _why(installed, team, name):
    return installed.duepoint("why", name, "-n", team).stdout


def test_a_container_that_runs_out_of_memory_is_called_so(installed, team):
    limited = job("head -c 200m /dev/zero | tail")
    container = limited["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {"memory": "20Mi"}}
    installed.apply(schedule("greedy", "@every 1h", jobTemplate=limited), namespace=team)
    installed.duepoint("trigger", "greedy", "-n", team)
    last = _failed(installed, team, "greedy", "137")
    assert "BackoffLimitExceeded" not in last["message"]
    assert "137" in _why(installed, team, "greedy")


def test_a_container_that_exits_with_3_is_named_with_its_code(installed, team):
    failing = schedule("failing", "@every 1h", jobTemplate=job("exit 3"))
    installed.apply(failing, namespace=team)
    installed.duepoint("trigger", "failing", "-n", team)
    _failed(installed, team, "failing", "exit code 3")
    assert "exit code 3" in _why(installed, team, "failing")
    listed = installed.duepoint("list", "--failing", "-n", team).stdout
    assert "RunFailed" in listed


def test_a_pod_that_is_evicted_is_called_so_though_it_is_gone_with_its_status(installed, team):
    patient = job("trap 'exit 143' TERM; sleep 300 & wait")
    installed.apply(schedule("drained", "@every 1h", jobTemplate=patient), namespace=team)
    installed.duepoint("trigger", "drained", "-n", team)
    selector = "--field-selector=status.phase=Running"
    [pod] = until("its Pod runs", lambda: installed.items("pods", f"--namespace={team}", selector))
    name = pod["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    path = f"/api/v1/namespaces/{team}/pods/{name}/eviction"
    installed("create", "--raw", path, "-f", "-", text=json.dumps(eviction))

    until("it has failed", lambda: _last_run(installed, team, "drained")["outcome"] == "Failed")

    assert "EvictionByEvictionAPI" in _last_run(installed, team, "drained")["message"]
    assert "EvictionByEvictionAPI" in _why(installed, team, "drained")
    assert not installed.items("pods", f"--namespace={team}")


def test_an_image_that_cannot_be_had_is_named_while_the_job_waits_for_it(installed, team):
    template = job("true")
    template["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.invalid/none:1"
    installed.apply(schedule("absent", "@every 1h", jobTemplate=template), namespace=team)
    installed.duepoint("trigger", "absent", "-n", team)

    shown = until(
        "why names it", lambda: "Image" in (said := _why(installed, team, "absent")) and said
    )

    assert "registry.invalid/none:1" in shown


def test_a_pod_that_pod_security_refuses_is_named_with_what_to_mend(installed, team):
    rooted = job("true", hostNetwork=True)
    installed.apply(schedule("refused", "@every 1h", jobTemplate=rooted), namespace=team)
    installed.duepoint("trigger", "refused", "-n", team)

    shown = until(
        "why names it", lambda: "PodSecurity" in (said := _why(installed, team, "refused")) and said
    )

    assert "hostNetwork" in shown
    assert "Pod Security label" in shown
