#!/usr/bin/env bash
# PID 1 of one node: lays the node's own folders over the standard paths, then runs its daemons.
# usage: node-init.sh ZONE NODE_FOLDER TOOLS NODE_IP KUBECONFIG
set -eu
zone=$1 disk=$2 tools=$3 ip=$4 kubeconfig=$5
export PATH="$tools:/usr/sbin:/usr/bin:/sbin:/bin"
hostname "node-$zone"
mount --make-rshared /                     # the kubelet's mounts must reach its containers
mkdir -p "$disk/log"
while read -r source target; do
  mkdir -p "$disk/$source"; mount --bind "$disk/$source" "$target"
done < "$disk/mounts"
mkdir -p /run/netns /run/lock
cp "$disk/resolv.conf" /run/lab-resolv.conf
sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0
keep() { # NAME COMMAND...: a daemon that ends is started again, as systemd would
  local name=$1; shift
  while :; do
    "$@" >> "$disk/log/$name.log" 2>&1 || true
    echo "lab: $name ended, again in 1 s" >> "$disk/log/$name.log"; sleep 1
  done
}
keep containerd containerd --config "$disk/containerd.toml" &
until [ -S /run/containerd/containerd.sock ]; do sleep 0.1; done
keep kubelet kubelet --config="$disk/kubelet.yaml" --kubeconfig="$kubeconfig" \
  --hostname-override="node-$zone" --node-ip="$ip" \
  --node-labels="topology.kubernetes.io/zone=$zone,topology.kubernetes.io/region=lab" --v=2 &
keep kube-proxy kube-proxy --config="$disk/proxy.yaml" --v=2 &
trap : TERM INT
while :; do wait || true; sleep 1; done
