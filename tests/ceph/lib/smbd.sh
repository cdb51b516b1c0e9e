# shellcheck shell=bash
# A real smbd with vfs_ceph_new, from another Debian in a folder (lib/root), because Debian 12's Samba is older than ceph_new's proxy option
# (4.22). A test in its own mount namespace sources this after common.sh, and calls `smbd` once a daemon runs.
# shellcheck disable=SC2154 # work, conf, lib, root and started are common.sh's
command -v smbclient > /dev/null || skip_all "there is no smbclient: scripts/deps ceph installs it"
samba=${root:-$("$lib/root" trixie 2> "$work/said")} || skip_all "$(< "$work/said")"
[ -e "$samba/usr/lib/$(uname -m)-linux-gnu/samba/vfs/ceph_new.so" ] || skip_all "there is no vfs_ceph_new in $samba"
if [ -z "$root" ]; then
  mkdir -p "$samba$work"
  if ! { mount --bind "$work" "$samba$work" && mount -t proc proc "$samba/proc"; }; then skip_all "nothing can be mounted in $samba"; fi
fi

# smbd [NAME [VALUE_OF_PROXY]]: starts smbd with its state in $work/NAME and checks that it serves. With VALUE_OF_PROXY no, each smbd uses
# libcephfs itself. The port is in $port and the process id in $smbd. Clients act as root in `share`, and as nobody in `user`.
# shellcheck disable=SC2120 # mostly without arguments
smbd() {
  local own=$work/${1:-samba} proxy=${2:-yes}
  port=$(free_ports)
  mkdir -p "$own"
  cp -L "$work/proxy/libcephfs_proxy.so.2" "$own"
  cat > "$own/smb.conf" << X
[global]
server role = standalone server
map to guest = Bad User
guest account = root
interfaces = lo
bind interfaces only = yes
smb ports = $port
disable netbios = yes
load printers = no
private dir = $own
lock directory = $own
state directory = $own
cache directory = $own
pid directory = $own
ncalrpc dir = $own/ncalrpc
log file = $own/log
log level = 1
[share]
path = /
read only = no
guest ok = yes
vfs objects = ceph_new
ceph_new:config_file = $conf
ceph_new:user_id = admin
ceph_new:proxy = $proxy
kernel share modes = no
kernel oplocks = no
force directory mode = 0777
[user]
copy = share
force user = nobody
X
  # Use a separate session: smbd ends its whole process group.
  LD_LIBRARY_PATH=$own setsid chroot "$samba" smbd --foreground --no-process-group -s "$own/smb.conf" > "$own/said" 2>&1 &
  smbd=$!
  started+=("$smbd")
  attempt 20 smb 'pwd' > /dev/null || { not_ok "smbd serves the share" "$(smb pwd)" "$(tail -n 20 "$own/log")"; exit 1; }
  ok "smbd $(chroot "$samba" smbd -V | sed 's/Version //') serves the share"
}
smb() { timeout 60 smbclient -p "$port" -N //127.0.0.1/share -c "$1" 2>&1; }
