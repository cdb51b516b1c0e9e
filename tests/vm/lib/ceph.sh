# shellcheck shell=bash disable=SC2154,SC2034 # $work and others are from the script that has this
# Starts a Ceph cluster in the guest and mounts it with the kernel's client. Scripts source this file in the top folder.
cluster=/run/cluster
port=33000

# ceph_up [COMMAND...]: starts the cluster, by COMMAND if it is given, and stores the clients' secret in $key.
ceph_up() {
  "$@" "$PWD/tests/ceph/lib/cluster" start $cluster $port && key=$(ceph-authtool $cluster/keyring -n client.admin -p)
}
# mount_ceph MOUNTPOINT [OPTIONS]: mounts with mount -i, because mount.ceph itself contacts the monitors.
mount_ceph() {
  mkdir -p "$1"
  mount -i -t ceph "${ADDRESS:-127.0.0.1}:$((port + 1)):/" "$1" -o "name=admin,secret=$key,noshare${2:+,$2}"
}
# daemon_late needs a cluster that was started with MORE=$may_be_late.
may_be_late=$'[mds]\nms_inject_delay_type = client\n[osd]\nms_inject_delay_type = client'
# process_of DAEMON: prints the process id of ceph-mds, ceph-osd or ceph-mon.
process_of() { pgrep -x "$1"; }
# daemon_late DAEMON SECONDS: makes mds.a or osd.0 delay clients' requests by up to SECONDS. 0 ends the delay.
daemon_late() {
  local kind=${1%%.*} socket
  socket=$(compgen -G "$cluster/run/$1.$(process_of "ceph-$kind").asok")
  python3 -I -S tests/vm/lib/ceph-ask.py "$socket" 'config set' var=ms_inject_delay_max "val=$2" > /dev/null &&
    python3 -I -S tests/vm/lib/ceph-ask.py "$socket" 'config set' var=ms_inject_delay_probability "val=$([ "$2" = 0 ] && echo 0 || echo 1)" > /dev/null
}
