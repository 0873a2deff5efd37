"""``duepoint run``: operator and worker without a cluster, on manifests of this machine."""
