"""A metric that a page names is one that the product serves."""

from __future__ import annotations

import re

import pytest

from tools.devcluster.state import REPOSITORY

SERVED = set(
    re.findall(
        r"^\| `(duepoint_\w+)`",
        (REPOSITORY / "docs/reference/metrics.md").read_text(),
        re.MULTILINE,
    )
)
METRIC = re.compile(r"\bduepoint_[a-z_]+(?<!_)\b(?!\.)")
PAGES = sorted((REPOSITORY / "docs" / "howto").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_metrics_of_a_page_are_on_the_page_of_metrics(page):
    named = {re.sub(r"_(bucket|sum|count)$", "", each) for each in METRIC.findall(page.read_text())}

    assert named <= SERVED
