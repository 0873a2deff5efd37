"""`make up`: the whole product on one machine, with something to look at.

    __main__      options; the order of it all; what Ctrl-C does
    kubectl       commands to the cluster, as its administrator
    installation  CRDs, namespace, and from the chart the accounts with their roles
    accounts      tokens and kubeconfigs of operator and worker, renewed while they run
    receiver      takes webhooks and writes down what arrived
    applications  the processes and their settings
    examples      the manifests of examples/
    observation   what the API server and the receiver say, as values
    view          those values as a screen
    watching      the live screen; the wait for the first Job and webhook

Operator and worker run as processes here, with the rights the chart gives them and no others: a
missing permission fails on a developer's machine. In the user's own cluster (CLUSTER=current)
everything is the same but for Pods, which are real.
"""
