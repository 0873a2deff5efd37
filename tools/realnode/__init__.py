"""A real node on this machine: containers run, policies hold, and nothing of the host changes.

`python -m tools.realnode up` starts the control plane of `tools.devcluster` beside a kubelet,
kube-proxy, containerd and kube-router, in namespaces and a cgroup of their own; CoreDNS and the
chart with the image of the Dockerfile run on it. For a cluster of the user's it installs only the
chart. In the order of use:

- `requirements`: programs of this machine, installed by apt where that is allowed
- `images`: the archives of all images, from the cache or built by buildah
- `machine`: the namespaces and cgroups, entered and taken away
- `inside`: the first process in them: mounts, network, and the way in for kubectl
- `servers`: what it starts, in order
- `installation`: CoreDNS, the chart, the examples
"""
