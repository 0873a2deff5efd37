"""What a user does first: a Job whose log is read, a webhook to a Service."""

from __future__ import annotations

import json

from tests.support.realcluster import job, schedule, until, webhook


def test_the_container_of_a_schedule_runs_and_its_log_is_shown(installed, team):
    told = job('echo "slot $DUEPOINT_SCHEDULED_TIME of $DUEPOINT_SCHEDULE_NAME"')
    installed.apply(schedule("first", "@every 2s", jobTemplate=told), namespace=team)

    def succeeded():
        status = installed.get("schedule", "first", f"--namespace={team}")["status"]
        return [one for one in status["recentRuns"] if one["outcome"] == "Succeeded"]

    runs = until("a run has succeeded", succeeded)
    shown = installed.duepoint("logs", "first", "-n", team).stdout

    assert runs[0]["scheduledTime"]
    assert "slot 20" in shown


def test_a_webhook_reaches_a_service_of_its_namespace(installed, team, receiver):
    hook = schedule("hook", "@every 1s", webhook=webhook("/hook"))
    installed.apply(hook, namespace=team)

    requests = until("three requests came", lambda: receiver.requests("/hook")[2:])

    assert json.loads(requests[0]["body"])["data"]["schedule"]["name"] == "hook"


def test_a_refused_webhook_is_tried_again_with_the_same_id(installed, team, receiver):
    receiver.answer("/refused", 503)
    hook = schedule("refused", "@every 1h", webhook=webhook("/refused"))
    installed.apply(hook, namespace=team)
    installed.duepoint("trigger", "refused", "-n", team)

    first = until("a request came", lambda: receiver.requests("/refused"))
    receiver.answer("/refused", 204)
    until("it was tried again", lambda: receiver.requests("/refused")[1:])

    identifiers = {one["headers"]["webhook-id"] for one in receiver.requests("/refused")}
    assert identifiers == {first[0]["headers"]["webhook-id"]}
