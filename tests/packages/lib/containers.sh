# shellcheck shell=bash
# For tests of container images, after common.sh: podman with separate storage on a tmpfs.
# shellcheck disable=SC2154 # work is common.sh's
mkdir "$work/storage"
mount -t tmpfs tmpfs "$work/storage"
printf '[storage]\ndriver = "overlay"\ngraphroot = "%s/graph"\nrunroot = "%s/run"\n' "$work/storage" "$work/storage" > "$work/storage.conf"
export CONTAINERS_STORAGE_CONF=$work/storage.conf TMPDIR=$work
# Use runc, because crun does not work if cgroups of version 1 are in use too. podman raises limits by default, which root without
# CAP_SYS_RESOURCE cannot do, so set them.
limits=()
[ $((0x$(awk '$1 == "CapEff:" { print $2 }' /proc/self/status) >> 24 & 1)) -eq 1 ] || limits=(--ulimit nofile=1024:4096 --ulimit nproc=4096:4096)
# container COMMAND...: runs podman without the lock that the test holds as descriptor 9.
container() {
  local command=("$1")
  [ "$1" != run ] || command+=("${limits[@]}")
  podman --cgroup-manager=cgroupfs --events-backend=none --runtime runc "${command[@]}" "${@:2}" 9>&-
}
# containers_end: removes all containers and waits for their cleanup processes. conmon starts these, and they would create the storage again.
containers_end() {
  container rm --all --force --time 5 > /dev/null 2>&1
  attempt 30 no_podman
}
no_podman() { ! pgrep -f -- "$work/storage/graph" > /dev/null; }
