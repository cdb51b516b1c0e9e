# shellcheck shell=bash
# An sshfs server with private keys and files, for tests on the host and in guests. The host's ssh configuration is not used.

# sshd_files FOLDER ADDRESS PORT: writes keys and sshd_config to FOLDER. The sftp-server (tests/native/tools/sftp-server) delays replies by FOLDER/late.
sshd_files() {
  local key tools
  tools=$(realpath "$(dirname "${BASH_SOURCE[0]}")/native/tools")
  mkdir -p "$1/served"
  for key in host user; do ssh-keygen -q -t ed25519 -N '' -f "$1/$key" || return; done
  echo 0 > "$1/late"
  printf '%s\n' "Port $3" "ListenAddress $2" "HostKey $1/host" "AuthorizedKeysFile $1/user.pub" 'PidFile none' 'StrictModes no' 'UsePAM no' \
    'PermitRootLogin prohibit-password' "Subsystem sftp $tools/sftp-server $1/late" > "$1/sshd_config"
}
# late FOLDER MILLISECONDS: sets the delay of the sftp-server's replies.
late() { echo "$2" > "$1/late.new" && mv "$1/late.new" "$1/late"; }
# sshfs_of FOLDER ADDRESS PORT MOUNTPOINT: mounts FOLDER/served, in the foreground. Caches are off, so that each call is a request.
sshfs_of() {
  exec sshfs -f "root@$2:$1/served" "$4" -F /dev/null -p "$3" -o "IdentityFile=$1/user,IdentitiesOnly=yes,UserKnownHostsFile=/dev/null,StrictHostKeyChecking=no" \
    -o sshfs_sync,direct_io,dir_cache=no
}
# has_sshfs: succeeds if all required programs are installed.
has_sshfs() { command -v sshfs && command -v ssh-keygen && [ -x /usr/sbin/sshd ]; } > /dev/null
