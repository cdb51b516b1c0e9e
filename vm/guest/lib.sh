# shellcheck shell=bash
# For scripts in the guest (`. vm/guest/lib.sh`): SMB and NFS servers on loopback, mounts of their shares, and faults in both.

if [ ! -e /run/vm/settings ]; then
  echo "vm/guest/lib.sh: not in a guest of vm/run; these functions would stop the host's servers" >&2
  # shellcheck disable=SC2317 # reached if the file is run and not sourced
  return 1 2> /dev/null || exit 1
fi

# lib_need TOOL:PACKAGE...: fails if a tool is missing. The guest has the host's programs.
lib_need() {
  local pair
  for pair; do
    command -v "${pair%:*}" > /dev/null || { echo "missing ${pair%:*}; on the host: apt-get install --no-install-recommends ${pair#*:}" >&2; return 1; }
  done
}

# lib_tmpfs DIR SIZE: mounts a world-writable tmpfs on DIR, unless one is mounted.
lib_tmpfs() {
  mkdir -p "$1"
  mountpoint -q "$1" || mount -t tmpfs -o "size=$2,mode=1777" tmpfs "$1"
}

smb_dir=/run/smb # directory of Samba's files
# smb_global [LINE...]: prints the global section of smb.conf, with the given lines at its end.
smb_global() {
  cat <<X
[global]
 server role = standalone server
 smb ports = 445
 disable netbios = yes
 disable spoolss = yes
 load printers = no
 printing = bsd
 printcap name = /dev/null
 log level = 0
 log file = $smb_dir/log
 lock directory = $smb_dir
 state directory = $smb_dir
 cache directory = $smb_dir
 pid directory = $smb_dir
 private dir = $smb_dir
 ncalrpc dir = $smb_dir/ncalrpc
 server min protocol = SMB2_10
 server multi channel support = no
 passdb backend = smbpasswd:$smb_dir/smbpasswd
 rpc start on demand helpers = no
 read only = no
 force user = root
X
  printf ' %s\n' "$@"
}
# smbd_start ADDRESS PRELOAD [COMMAND...]: starts smbd, through COMMAND if given, with $smb_dir/smb.conf and the PRELOAD libraries. The user is root,
# the password pw. Returns when smbd answers at ADDRESS.
smbd_start() {
  if [ ! -e "$smb_dir"/smbpasswd ]; then
    touch "$smb_dir"/smbpasswd
    printf 'pw\npw\n' | smbpasswd -c "$smb_dir"/smb.conf -s -a root > /dev/null
  fi
  slow_smbd off
  LD_PRELOAD=$2 "${@:3}" smbd -s "$smb_dir"/smb.conf -l "$smb_dir" -D || return
  for _ in {1..100}; do
    (exec 3<> "/dev/tcp/$1/445") 2> /dev/null && return
    sleep 0.1
  done
  echo "smbd does not answer on port 445 of $1:" >&2
  tail "$smb_dir"/log* >&2
  return 1
}

# smb_up [SHARE_OPTION...]: starts Samba on port 445, also again after smb_down; user root, password pw. The shares are share (512 MiB, or
# SMB_SIZE), ro (the same files, read-only) and tiny (256 KiB, for ENOSPC). SHARE_OPTIONs are smb.conf lines for share.
smb_up() {
  local preload=/run/vm/slowsmbd.so
  lib_need smbd:samba mount.cifs:cifs-utils || return
  mkdir -p "$smb_dir"
  lib_tmpfs /srv/smb "${SMB_SIZE:-512m}"
  lib_tmpfs /srv/tiny 256k
  {
    smb_global 'interfaces = lo' 'bind interfaces only = yes'
    cat <<X
[share]
 path = /srv/smb
$(printf ' %s\n' "$@")
[ro]
 path = /srv/smb
 read only = yes
[tiny]
 path = /srv/tiny
X
  } > "$smb_dir"/smb.conf
  [ -e $preload ] || preload=
  smbd_start 127.0.0.1 "$preload"
}

# smb_mount [SHARE [MOUNTPOINT [OPTIONS]]]: mounts a share; by default share on /mnt/smb with cache=strict.
smb_mount() {
  mkdir -p "${2:-/mnt/smb}"
  mount.cifs "//127.0.0.1/${1:-share}" "${2:-/mnt/smb}" -o "username=root,password=pw,vers=3.1.1,${3:-cache=strict}"
}

# smb_down: kills the server at once, even a stopped one. Its mounts stay.
smb_down() {
  pkill -KILL '^smbd'
  while pgrep '^smbd' > /dev/null; do sleep 0.1; done
}

# smbd_stop, smbd_cont: suspends the server, and resumes it.
smbd_stop() { pkill -STOP '^smbd'; }
smbd_cont() { pkill -CONT '^smbd'; }

# slow_smbd read|write|fsync MS [ERRNO]: delays each such call in the server by MS, and makes it fail with ERRNO if given.
# slow_smbd off: removes all delays and errors.
slow_smbd() {
  local knobs=/dev/shm/slowsmbd lines n
  local -A line=([read]=0 [write]=1 [fsync]=2)
  if [ "$1" = off ]; then
    printf '%7d %7d\n' 0 0 0 0 0 0 1<> $knobs
    return
  fi
  [ -e /run/vm/slowsmbd.so ] || { echo "slow_smbd: the host cannot compile slowsmbd.c (there: apt-get install gcc libc6-dev): $(< /run/vm/slowsmbd.log)" >&2; return 1; }
  n=${line[$1]:-}
  [ -n "$n" ] || { echo "usage: slow_smbd read|write|fsync MS [ERRNO] | off" >&2; return 64; }
  mapfile -t lines < $knobs
  lines[n]=$(printf '%7d %7d' "$2" "${3:-0}")
  printf '%s\n' "${lines[@]}" 1<> $knobs # in place, because smbd has mapped the file
}

# nfs_up [THREADS]: starts the kernel's NFS server with one export (512 MiB, or NFS_SIZE) at its root, for this guest's loopback or NFS_CLIENT. The
# version is 4.2, or NFS_VERSIONS.
nfs_up() {
  local state=/var/lib/nfs version versions=()
  lib_need rpc.nfsd:nfs-kernel-server mount.nfs4:nfs-common || return
  lib_tmpfs /srv/nfs "${NFS_SIZE:-512m}"
  modprobe nfsd
  if ! mountpoint -q $state; then
    mount -t tmpfs tmpfs $state
    mkdir -p $state/{nfsdcld,v4recovery,rpc_pipefs,sm,sm.bak}
    touch $state/{etab,rmtab,xtab,state}
    mount -t rpc_pipefs rpc_pipefs $state/rpc_pipefs
    mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
    mkdir -p /run/rpc_pipefs
    mount --bind $state/rpc_pipefs /run/rpc_pipefs # the path in Debian's nfs.conf
  fi
  # Without nfsdcld, 7.2 waits 13 s for clients of a previous server instance.
  pgrep nfsdcld > /dev/null || nfsdcld
  echo 10 > /proc/fs/nfsd/nfsv4leasetime
  echo 10 > /proc/fs/nfsd/nfsv4gracetime
  exportfs -o rw,no_root_squash,insecure,fsid=0,no_subtree_check "${NFS_CLIENT:-127.0.0.1}:/srv/nfs"
  for version in ${NFS_VERSIONS:-4.2}; do versions+=(-V "$version"); done
  if [[ " ${NFS_VERSIONS:-} " == *' 3 '* ]]; then
    # Clients of NFS version 3 find the server through the port mapper, and mount through rpc.mountd.
    lib_need rpcbind:rpcbind || return
    pgrep rpcbind > /dev/null || rpcbind
    pgrep rpc.mountd > /dev/null || rpc.mountd
  else
    versions=(-N 3 "${versions[@]}")
    pgrep rpc.mountd > /dev/null || rpc.mountd -N 2 -N 3
  fi
  rpc.nfsd "${versions[@]}" -U "${1:-4}"
  echo Y 2> /dev/null > /proc/fs/nfsd/v4_end_grace || true # refused if the grace period has ended
}

# nfs_mount [MOUNTPOINT [VERSION [OPTIONS]]]: mounts the export; by default version 4.2 on /mnt/nfs, soft.
nfs_mount() {
  local root=/ options=${3:-soft,timeo=50}
  mkdir -p "${1:-/mnt/nfs}"
  [ "${2:-}" != 3 ] || { root=/srv/nfs; options+=,nolock; }
  mount -t nfs -o "vers=${2:-4.2},proto=tcp,$options" "127.0.0.1:$root" "${1:-/mnt/nfs}"
}

# nfsd_stop, nfsd_cont: stops the server from taking calls, and starts it again.
nfsd_stop() { rpc.nfsd 0; }
nfsd_cont() { nfs_up "$@"; }

# disk_up [MIB]: creates a disk with adjustable delays (64 MiB, or MIB) at /srv/disk for the files of the servers. Call it before smb_up and nfs_up.
disk_up() {
  local served
  lib_need dmsetup:dmsetup mkfs.ext4:e2fsprogs || return
  { modprobe brd rd_nr=1 rd_size=$((${1:-64} * 1024)) && modprobe dm-delay && modprobe ext4; } || return
  dmsetup create slowdisk --noudevsync --table "$(disk_table 0 0)" || return
  dmsetup mknodes slowdisk
  { mkfs.ext4 -q -m 0 -O ^has_journal /dev/mapper/slowdisk && mkdir -p /srv/disk && mount /dev/mapper/slowdisk /srv/disk; } || return
  for served in smb nfs; do
    mkdir -p /srv/$served /srv/disk/$served
    chmod 1777 /srv/disk/$served
    mount --bind /srv/disk/$served /srv/$served || return
  done
}
disk_table() { echo "0 $(< /sys/block/ram0/size) delay /dev/ram0 0 $1 /dev/ram0 0 $2"; }
# disk_delay WRITE_MS [READ_MS]: delays each write to the disk by WRITE_MS, and each read by READ_MS (default: 0).
disk_delay() { dmsetup load slowdisk --table "$(disk_table "${2:-0}" "$1")" && dmsetup resume --noudevsync slowdisk; }
# disk_freeze, disk_thaw: blocks all writes to the disk, and unblocks them. Reads are not blocked.
disk_freeze() { fsfreeze -f /srv/disk; }
disk_thaw() { fsfreeze -u /srv/disk; }

# net_path: redirects the packets that loopback delivers through ifb0. Delays and losses there act like those of a network path: they come after the
# sender's queueing discipline. The qdisc is only changed, never replaced: the kernel drops packets that are sent during a replacement.
net_path() {
  [ ! -e /sys/class/net/ifb0 ] || return 0
  { modprobe ifb numifbs=1 && ip link set ifb0 up && tc qdisc replace dev ifb0 root netem limit 100000; } || return
  tc qdisc add dev lo ingress && tc filter add dev lo ingress matchall action mirred egress redirect dev ifb0
}
# net_delay MS: delays each packet on loopback by MS, so that a round trip takes 2 * MS longer.
net_delay() { net_path && tc qdisc change dev ifb0 root netem delay "$1ms" limit 100000; }
# net_loss PERCENT: drops packets on loopback. 100 is an outage.
net_loss() { net_path && tc qdisc change dev ifb0 root netem loss "$1%" limit 100000; }
net_clear() { tc qdisc change dev ifb0 root netem limit 100000; }
# sender_path: adds a prio qdisc to loopback's sending side. Call it before any traffic that must not be lost, since adding a qdisc drops packets.
sender_path() { tc qdisc show dev lo | grep '^qdisc prio 1:' > /dev/null || tc qdisc replace dev lo root handle 1: prio; }
# sender_delay MS PORT...: delays packets to the ports by MS in the sender's queueing discipline.
sender_delay() {
  local port
  sender_path && tc qdisc replace dev lo parent 1:3 netem delay "$1ms" limit 100000 || return
  for port in "${@:2}"; do tc filter add dev lo parent 1: protocol ip prio 1 u32 match ip dport "$port" 0xffff flowid 1:3 || return; done
}
sender_clear() { tc filter del dev lo parent 1:; }
