# shellcheck shell=bash
# Shared by the tests of the libcephfs proxy: a cluster, the daemon, the library under the name that programs load, and the output of results.
# A test sources this file first. CLUSTER names the folder of a cluster that already runs.
# CEPH_ROOT is a Debian root in a folder (lib/root). The cluster, the daemon and programs with libcephfs itself then run in there.
set -uo pipefail
lib=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
tests=$(dirname "$lib")
top=$(dirname "$(dirname "$tests")")
built=$(realpath -m "${PROXY_BUILD:-$top/target/release}")

# shellcheck source=../../said.sh
. "$lib/../../said.sh"
# shellcheck source=../../ports.sh
. "$lib/../../ports.sh"
root=${CEPH_ROOT:-} there=()
[ -z "$root" ] || there=(chroot "$root")
for tool in ceph ceph-mon ceph-osd ceph-mds ceph-authtool monmaptool cc; do
  [ -x "$root/usr/bin/$tool" ] || command -v $tool > /dev/null || skip_all "there is no $tool: scripts/deps ceph installs it"
done
[ -e /usr/include/cephfs/libcephfs.h ] || skip_all "there is no libcephfs.h: scripts/deps ceph installs it"
[ -x "$built/libcephfsd" ] && [ -e "$built/libcephfs_proxy_client.so" ] || { echo "not ok - there is no $built/libcephfsd: make build"; exit 1; }

if [ -n "$root" ]; then
  [ "$(id -u)" -eq 0 ] || skip_all "another root takes root"
  [ -n "${OWN_NAMESPACE:-}" ] || OWN_NAMESPACE=1 exec unshare --mount --propagation private -- "$0" "$@"
fi
work=$(mktemp -d /tmp/plumbline-ceph-XXXXXX)
if [ -n "$root" ]; then
  # The folder has the same path inside the root.
  mkdir -p "$root$work"
  if ! { mount --bind "$work" "$root$work" && mount -t proc proc "$root/proc" && mount --bind /dev "$root/dev"; }; then
    skip_all "nothing can be mounted in $root"
  fi
fi
started=() # processes that clean() ends
own_cluster=
clean() {
  local pid at
  for pid in "${started[@]}"; do kill -CONT "$pid" 2> /dev/null; kill "$pid" 2> /dev/null; done
  for pid in "${started[@]}"; do timeout 25 tail --pid="$pid" -f /dev/null || kill -KILL "$pid" 2> /dev/null; done
  wait 2> /dev/null
  [ -z "$own_cluster" ] || "${there[@]}" "$work/cluster.sh" stop "$own_cluster"
  for at in "$root$work" "${samba:-}$work"; do
    [ "$at" == "$work" ] || ! mountpoint -q "$at" || { umount -l "$at" && rmdir "$at"; }
  done
  rm -rf --one-file-system "$work"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# shellcheck disable=SC2034 # conf is for the tests
if [ -n "${CLUSTER:-}" ]; then
  conf=$CLUSTER/ceph.conf
else
  own_cluster=$work/cluster
  mkdir "$own_cluster"
  cp "$lib/cluster" "$work/cluster.sh"
  "${there[@]}" "$work/cluster.sh" start "$own_cluster" "$(free_ports)" || { echo "not ok - a cluster starts"; exit 1; }
  conf=$own_cluster/ceph.conf
fi

export LIBCEPHFSD_SOCKET=$work/libcephfsd.sock
mkdir "$work/proxy"
cp -L "$built/libcephfs_proxy_client.so" "$work/proxy/libcephfs_proxy.so.2"
cp -L "$built/libcephfsd" "$work/libcephfsd"
ln -s libcephfs_proxy.so.2 "$work/proxy/libcephfs_proxy.so"

: > "$work/daemon.log"
# daemons: prints how many daemons have started to serve so far. The socket exists before the daemon accepts.
daemons() { grep -cF "$LIBCEPHFSD_SOCKET with" "$work/daemon.log"; }
daemons_are() { [ "$(daemons)" -ge "$1" ]; }

# daemon [OPTION...]: starts a daemon and stores its process id in $daemon.
daemon() {
  local next=$(($(daemons) + 1))
  rm -f "$LIBCEPHFSD_SOCKET" # the last daemon's socket
  "${there[@]}" "$work/libcephfsd" --socket "$LIBCEPHFSD_SOCKET" --state "$work/state" "$@" 2>> "$work/daemon.log" &
  daemon=$!
  started+=("$daemon")
  attempt 20 daemons_are $next || { not_ok "the daemon starts" "$(tail -n 5 "$work/daemon.log")"; exit 1; }
}

# processes: prints the daemon's process id and those of its children: the process in which mounts are prepared, and one for each mount.
processes() { echo "$daemon"; pgrep -P "$daemon"; }
mounts() { pgrep -P "$daemon" -f -- ' --place=[^0]'; }
# shared: prints how many clients share memory with these processes.
shared() { processes | sed 's/.*/\/proc\/&\/maps/' | xargs cat 2> /dev/null | grep -c 'memfd:libcephfsd'; }
# descriptors: prints how many descriptors these processes have together.
descriptors() { processes | while read -r pid; do find "/proc/$pid/fd" -mindepth 1 2> /dev/null; done | wc -l; }
# resident: prints how many KiB of memory these processes have together.
resident() { processes | sed 's/.*/\/proc\/&\/status/' | xargs cat 2> /dev/null | awk '/^VmRSS/ { sum += $2 } END { print sum }'; }

# compile PROGRAM direct|proxy [OPTION...]: compiles tests/ceph/PROGRAM.c with libcephfs as $work/PROGRAM-direct, or with the proxy's library as
# $work/PROGRAM-proxy.
compile() {
  local libs=(-lcephfs)
  [ "$2" == direct ] || libs=(-L"$work/proxy" -lcephfs_proxy "-Wl,-rpath,$work/proxy")
  cc -O2 -Wall -Wextra -Werror -o "$work/$1-$2" "$tests/$1.c" "${@:3}" "${libs[@]}" -lpthread || return
  if [ "$2" == direct ] && [ -n "$root" ]; then
    mv "$work/$1-$2" "$work/$1-$2.there"
    printf '%s\n' '#!/bin/sh' "exec chroot $root $work/$1-$2.there \"\$@\"" > "$work/$1-$2"
    chmod +x "$work/$1-$2"
  fi
}
