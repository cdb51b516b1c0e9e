# shellcheck shell=bash
# For tests of container images, after common.sh: podman with a storage of its own, on a tmpfs.
# shellcheck disable=SC2154 # work is common.sh's
mkdir "$work/storage"
mount -t tmpfs tmpfs "$work/storage"
printf '[storage]\ndriver = "overlay"\ngraphroot = "%s/graph"\nrunroot = "%s/run"\n' "$work/storage" "$work/storage" > "$work/storage.conf"
export CONTAINERS_STORAGE_CONF=$work/storage.conf TMPDIR=$work
# runc, and not crun: it works where cgroups of version 1 are in use too. As podman has limits by default; without CAP_SYS_RESOURCE, root may raise none.
limits=()
[ $((0x$(awk '$1 == "CapEff:" { print $2 }' /proc/self/status) >> 24 & 1)) -eq 1 ] || limits=(--ulimit nofile=1024:4096 --ulimit nproc=4096:4096)
# container COMMAND...: podman's, without a lock that the test holds as descriptor 9
container() {
  local command=("$1")
  [ "$1" != run ] || command+=("${limits[@]}")
  podman --cgroup-manager=cgroupfs --events-backend=none --runtime runc "${command[@]}" "${@:2}" 9>&-
}
# containers_end: no container is left, nor what it leaves behind for a moment: conmon starts a cleanup, which would make the storage anew
containers_end() {
  container rm --all --force --time 5 > /dev/null 2>&1
  attempt 30 no_podman
}
no_podman() { ! pgrep -f -- "$work/storage/graph" > /dev/null; }
