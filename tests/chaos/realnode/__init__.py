"""Chaos tests of the chart's installation on a node that really runs containers."""
