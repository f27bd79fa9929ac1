"""A Kubernetes of three zones on one Linux machine, without a container registry.

The control plane runs as processes on the host. Each zone is one node with its own network, mount,
PID, UTS and IPC namespaces (killing the node's PID 1 is a power cut), its own containerd, kubelet
and kube-proxy, and its own cgroup subtree. A bridge in a network namespace of its own joins the
nodes and the host, so that the host's firewall rules never see the lab's traffic. Volumes of the
storage class `zonal` stay in their zone, as cloud disks do. Images are imported into each
containerd, never pulled.

Everything that is slow to make (tools built from Go modules, image archives) is cached under
`$XDG_CACHE_HOME/logfleet/lab` (default `~/.cache`) by the hash of what it was made from. Everything
that a run leaves in the kernel has a name beginning with `klab`; `leftovers` lists it.
"""
