"""An installation of the chart on a node that runs containers, and what happens to it meanwhile."""
