# shellcheck shell=bash
# For scripts in the guest (`. vm/guest/path.sh`): servers behind a router. The guest itself is the client. Router and server have network
# namespaces, so that a delay or a loss at the router is outside the queueing disciplines of client and server.
#
#   client c0 10.1.0.1 -- 10.1.0.254 r0 router r1 10.2.0.254 -- s0 server: smbd at 10.2.0.1, knfsd at 10.2.0.2
#
# The MTU is 1500, and gso_max_segs is 1, so that each segment is one packet.

# shellcheck source-path=SCRIPTDIR source=lib.sh
. vm/guest/lib.sh || return
declare -A path_at=([smb]=10.2.0.1 [nfs]=10.2.0.2)
path_group=/sys/fs/cgroup

# server COMMAND...: runs COMMAND in the server's network namespace, with the server's /proc/fs/nfsd and /var/lib/nfs.
server() { nsenter -t "$path_pid" -m -n -- "$@"; }

# path_up: creates the networks, the disk, and the server's cgroup. The router delays packets by at least 0.1 ms in each direction.
path_up() {
  local name module
  for module in veth sch_netem sch_prio sch_fq_codel; do modprobe $module || return; done
  ip netns add router && ip netns add server || return
  ip link add c0 mtu 1500 type veth peer name r0 mtu 1500 netns router || return
  ip -n router link add r1 mtu 1500 type veth peer name s0 mtu 1500 netns server || return
  ip address add 10.1.0.1/24 dev c0 && ip -n router address add 10.1.0.254/24 dev r0 || return
  ip -n router address add 10.2.0.254/24 dev r1 && ip -n server address add "${path_at[smb]}/24" dev s0 && ip -n server address add "${path_at[nfs]}/24" dev s0 || return
  for name in 'c0' '-n router r0' '-n router r1' '-n server s0' '-n router lo' '-n server lo'; do
    # shellcheck disable=SC2086 # words
    set -- $name
    if [ $# -eq 1 ]; then ip link set "$1" up gso_max_segs 1; else ip -n "$2" link set "$3" up gso_max_segs 1; fi || return
  done
  path_interface_up && ip -n server route add default via 10.2.0.254 || return
  ip netns exec router sysctl -qw net.ipv4.ip_forward=1 || return
  tc qdisc add dev c0 root handle 1: prio && tc qdisc add dev c0 parent 1:2 handle 20: fq_codel || return
  tc -n router qdisc add dev r0 root netem delay 0.1ms limit 1000 && tc -n router qdisc add dev r1 root netem delay 0.1ms limit 1000 || return
  # Without these names, mountd queries name servers that do not exist.
  printf '%s\n' '10.1.0.1 client' '10.2.0.1 smb-server' '10.2.0.2 nfs-server' >> /etc/hosts
  # This must precede the creation of the server's mount namespace.
  disk_up 256 || return
  echo +cpu +memory > $path_group/cgroup.subtree_control
  mkdir -p $path_group/server $path_group/load $path_group/receiver
  ip netns exec server sleep infinity &
  path_pid=$!
  until [ "$(readlink /proc/$path_pid/ns/net)" = "$(ip netns exec server readlink /proc/self/ns/net)" ]; do sleep 0.1; done
}

# path_interface_up: sets the client's interface up, with its route.
path_interface_up() { ip link set c0 up && ip route replace 10.2.0.0/24 via 10.1.0.254; }

# path_net up|down|both NETEM...: sets the router's netem options towards the server, the client, or both. Without NETEM, the router only delays by
# $path_delay (default: 0.1 ms).
path_net() {
  local dev netem=("${@:2}")
  [[ " ${netem[*]} " == *' delay '* ]] || netem=(delay "${path_delay:-0.1ms}" "${netem[@]}")
  [[ " ${netem[*]} " == *' limit '* ]] || netem+=(limit 1000)
  [[ " ${netem[*]} " == *' rate '* ]] || netem+=(rate 0bit) # otherwise the previous rate stays
  for dev in r0 r1; do
    case $1:$dev in up:r0 | down:r1) continue ;; esac
    tc -n router qdisc change dev $dev root netem "${netem[@]}" || return
  done
}

# path_smb_up: starts smbd in the server's network, in the cgroup `server`. Call it after path_up.
path_smb_up() {
  local preload=/run/vm/slowsmbd.so
  mkdir -p "$smb_dir"
  {
    smb_global "smb2 max credits = ${SMB_CREDITS:-8192}"
    printf '%s\n' '[share]' ' path = /srv/smb' ' sync always = yes'
  } > "$smb_dir"/smb.conf
  [ -e /run/path/slowmeta.so ] && preload+=:/run/path/slowmeta.so
  smbd_start "${path_at[smb]}" $preload path_smbd
}
path_smbd() (
  echo $BASHPID > "$path_group/server/cgroup.procs"
  server "$@"
)

# path_nfs_up [THREADS]: starts knfsd in the server's network, with versions 3, 4.0 and 4.2.
path_nfs_up() {
  # shellcheck disable=SC2016 # expanded by the inner shell
  server env NFS_CLIENT=10.1.0.1 NFS_VERSIONS='3 4 4.0 4.2' bash -euc 'cd "$1" && . vm/guest/lib.sh && nfs_up "$2"' nfs_up "$PWD" "${1:-8}"
}
path_nfs_threads() { server sh -c "echo $1 > /proc/fs/nfsd/threads"; }

# path_mount smb|nfs [OPTIONS]: mounts on /mnt/smb or /mnt/nfs. The defaults are SMB 3.1.1 with cache=none, and NFS 4.2, hard.
path_mount() {
  local options=${2:-}
  mkdir -p "/mnt/$1"
  case $1 in
    smb)
      [[ ,$options, == *,vers=* ]] || options+=,vers=3.1.1
      [[ ,$options, == *,cache=* ]] || options+=,cache=none
      mount.cifs "//${path_at[smb]}/share" /mnt/smb -o "username=root,password=pw,$options"
      ;;
    nfs)
      [[ ,$options, == *,vers=* ]] || options+=,vers=4.2
      local root=/
      [[ ,$options, != *,vers=3,* ]] || { root=/srv/nfs; options+=,nolock; }
      mount -t nfs -o "proto=tcp,hard,${options#,}" "${path_at[nfs]}:$root" /mnt/nfs
      ;;
  esac
}

# path_sender NETEM...: applies netem to packets from the client to the servers, in the client's queueing discipline.
path_sender() {
  local netem=("$@")
  [[ " $* " == *' rate '* ]] || netem+=(rate 0bit)
  tc qdisc replace dev c0 parent 1:3 handle 30: netem "${netem[@]}" limit 1000 || return
  tc filter add dev c0 parent 1: protocol ip prio 1 u32 match ip dst 10.2.0.0/24 flowid 1:3
}
path_sender_clear() { tc filter del dev c0 parent 1: 2> /dev/null || true; }
