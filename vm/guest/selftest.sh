# shellcheck shell=bash disable=SC2119 # all arguments of the helpers are optional
# The guest's part of vm/selftest: checks that SMB and NFS mounts work, and that each fault has its effect. Stops at the first failure.
set -eE
trap 'echo "failed: $BASH_COMMAND"' ERR
# shellcheck source-path=SCRIPTDIR source=lib.sh
. vm/guest/lib.sh

# took COMMAND...: prints the elapsed time of COMMAND in ms.
took() {
  local from=$EPOCHREALTIME
  "$@"
  echo $(((${EPOCHREALTIME/./} - ${from/./}) / 1000))
}
write() { dd if=/dev/zero of=/mnt/smb/file bs=4k count=1 oflag=direct conv=notrunc status=none; }
read_back() { dd if=/mnt/smb/file of=/dev/null bs=4k count=1 iflag=direct status=none; }

smb_up
smb_mount
echo over SMB > /mnt/smb/text
[ "$(< /srv/smb/text)" = "over SMB" ]
[ -s /sys/kernel/btf/cifs ]
write

slow_smbd write 500
[ "$(took write)" -ge 500 ]
slow_smbd write 0
slow_smbd read 500
[ "$(took read_back)" -ge 500 ]
slow_smbd write 0 28
if write 2> /dev/null; then false; fi
slow_smbd off
write

net_delay 100
[ "$(took write)" -ge 200 ]
net_clear

smbd_stop
(sleep 2; smbd_cont) &
[ "$(took write)" -ge 1000 ]

smb_down
(exec 3<> /dev/tcp/127.0.0.1/445) 2> /dev/null && false
smb_up
until write 2> /dev/null; do sleep 0.5; done # 7.2 answers EAGAIN while it reconnects
umount /mnt/smb

nfs_up
nfs_mount
echo over NFS > /mnt/nfs/text
[ "$(< /srv/nfs/text)" = "over NFS" ]
[ -s /sys/kernel/btf/nfsv4 ]
nfsd_stop
(sleep 2; nfsd_cont) &
stat_file() { touch /mnt/nfs/text; }
[ "$(took stat_file)" -ge 1000 ]
echo servers and faults work
