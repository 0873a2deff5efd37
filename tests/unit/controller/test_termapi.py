"""A leader writes nothing once its term is over."""

from __future__ import annotations

import pytest

from duepoint.controller.leadership import TermApi
from duepoint.kube import errors, jobs, port
from tests.fakes.fakekubernetes import FakeKubernetes
from tests.support.builders import JOB_TEMPLATE

COLLECTION = jobs.collection("team")


@pytest.fixture
def api():
    return FakeKubernetes()


@pytest.fixture
def held():
    return [True]


@pytest.fixture
def term_api(api, held):
    return TermApi(api, lambda: held[0])


def a_job(name="one"):
    return {"metadata": {"name": name, "namespace": "team"}, "spec": JOB_TEMPLATE["spec"]}


@pytest.mark.parametrize("verb", ["POST", "PUT", "PATCH", "DELETE"])
async def test_after_the_term_nothing_is_sent_and_everything_can_be_read(api, term_api, held, verb):
    await api.request("POST", COLLECTION, a_job())
    held[0] = False
    with pytest.raises(errors.Unavailable) as caught:
        await term_api.request(verb, f"{COLLECTION}/one", a_job())
    assert not caught.value.sent
    assert not errors.may_be_carried_out(caught.value)
    assert "no longer the leader" in str(caught.value)
    assert await term_api.request("GET", f"{COLLECTION}/one")
    assert len(await port.listed(term_api, COLLECTION, jobs.Job)) == 1
