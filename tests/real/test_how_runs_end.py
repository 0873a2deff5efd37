"""What a run says of its Pod: killed for memory, an exit code, a deadline; and its log at once."""

from __future__ import annotations

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
    assert "JobFailed" in listed


def test_a_job_beyond_its_deadline_says_so_while_its_pod_is_ending(installed, team):
    slow = job("trap '' TERM; sleep 300", terminationGracePeriodSeconds=20)
    slow["spec"]["activeDeadlineSeconds"] = 3
    installed.apply(schedule("slow", "@every 1h", jobTemplate=slow), namespace=team)
    installed.duepoint("trigger", "slow", "-n", team)
    last = _failed(installed, team, "slow", "DeadlineExceeded")
    assert last["outcome"] == "Running"
    assert "DeadlineExceeded" in _why(installed, team, "slow")
    until("it has failed", lambda: _last_run(installed, team, "slow")["outcome"] == "Failed")


def test_the_log_of_a_run_that_has_just_begun_is_shown(installed, team):
    installed.apply(
        schedule("early", "@every 1h", jobTemplate=job("echo here; sleep 5")), namespace=team
    )
    installed.duepoint("trigger", "early", "-n", team)
    until("its Job exists", lambda: installed.items("jobs", f"--namespace={team}"))
    assert "here" in installed.duepoint("logs", "early", "-n", team).stdout
