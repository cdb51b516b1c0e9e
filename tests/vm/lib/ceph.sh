# shellcheck shell=bash disable=SC2154,SC2034 # $work and others are from the script that has this
# A Ceph cluster of a guest's own, and mounts of it by the kernel's client, for scripts to source in the top folder.
cluster=/run/cluster
port=33000

# ceph_up: starts the cluster; $key is what clients prove themselves by
ceph_up() {
  tests/ceph/lib/cluster start $cluster $port && key=$(ceph-authtool $cluster/keyring -n client.admin -p)
}
# mount_ceph MOUNTPOINT [OPTIONS]: by the kernel's own means, since mount.ceph asks the monitors itself
mount_ceph() {
  mkdir -p "$1"
  mount -i -t ceph "127.0.0.1:$((port + 1)):/" "$1" -o "name=admin,secret=$key,noshare${2:+,$2}"
}
