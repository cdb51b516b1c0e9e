# shellcheck shell=bash disable=SC2154,SC2034 # $work and others are from the script that has this
# A Ceph cluster of a guest's own, and mounts of it by the kernel's client, for scripts to source in the top folder.
cluster=/run/cluster
port=33000

# ceph_up [COMMAND...]: starts the cluster, by COMMAND if it is given; $key is what clients prove themselves by
ceph_up() {
  "$@" "$PWD/tests/ceph/lib/cluster" start $cluster $port && key=$(ceph-authtool $cluster/keyring -n client.admin -p)
}
# mount_ceph MOUNTPOINT [OPTIONS]: by the kernel's own means, since mount.ceph asks the monitors itself
mount_ceph() {
  mkdir -p "$1"
  mount -i -t ceph "${ADDRESS:-127.0.0.1}:$((port + 1)):/" "$1" -o "name=admin,secret=$key,noshare${2:+,$2}"
}
# To be able to make daemons late, the cluster is started with this in MORE.
may_be_late=$'[mds]\nms_inject_delay_type = client\n[osd]\nms_inject_delay_type = client'
# process_of DAEMON: ceph-mds, ceph-osd, ceph-mon
process_of() { pgrep -x "$1"; }
# daemon_late DAEMON SECONDS: mds.a or osd.0 takes what clients ask later, by up to so much; 0: at once
daemon_late() {
  local kind=${1%%.*} socket
  socket=$(compgen -G "$cluster/run/$1.$(process_of "ceph-$kind").asok")
  python3 -I -S tests/vm/lib/ceph-ask.py "$socket" 'config set' var=ms_inject_delay_max "val=$2" > /dev/null &&
    python3 -I -S tests/vm/lib/ceph-ask.py "$socket" 'config set' var=ms_inject_delay_probability "val=$([ "$2" = 0 ] && echo 0 || echo 1)" > /dev/null
}
