"""The panels of the Grafana dashboard, drawn from a real Prometheus: ``make panels``.

    __main__      options, the order of it all, the verdict
    minutes       an installation under load and faults, on real processes
    prometheus    a server that scrapes it, and answers the queries of the panels
    dashboard     the dashboard that the chart ships, as panels and queries
    answers       what the panels show for a time, by the answers to their queries
    drawing       panels as SVG

A query that gives nothing is a failure: so a metric that no process fills, a label that no series
has, or an expression that Prometheus refuses is found, and the pages never show an empty panel.
"""
