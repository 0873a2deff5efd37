"""`make up`: runs the whole product on one machine, with a live view.

    __main__      options; the order of it all; what Ctrl-C does
    installation  CRDs, namespace, and from the chart the accounts with their roles
    applications  receiver, operator and worker as processes, their logins and settings; examples
    receiver      takes webhooks and notes what arrived
    watching      the live screen; the wait for the first Job and webhook
    kubectl       commands to the cluster, as its administrator

Operator and worker run as processes with the rights that the chart gives them and no others, so a
missing permission fails on a developer's machine. In the user's own cluster (CLUSTER=current)
everything is the same, but Pods are real.
"""
