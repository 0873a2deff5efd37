"""What `make up` installs without Helm is what Helm makes of the chart."""

from __future__ import annotations

from tools.up import installation


def test_the_rendered_file_is_the_chart_of_today():
    today = installation.accounts_and_roles(installation.rendered())
    text = installation.RENDERED.read_text()

    assert installation.accounts_and_roles(text) == today, "make generate"
    assert installation.chart_objects() == today
