# shellcheck shell=bash
# Shared by the tests of the packages: the packages of two versions, a release to install them in, and the output of results.
# A test sources this first. It then runs in its own mount namespace.
set -uo pipefail
: "${PLUMBLINE:?the program under test}"
lib=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
# shellcheck source=../../../scripts/common.sh
. "$lib/../../../scripts/common.sh"
# shellcheck source=../../said.sh
. "$lib/../../said.sh"
export PATH=$PATH:/usr/sbin:/sbin:$tools/bin
[ "$(id -u)" -eq 0 ] || skip_all "it takes root"
for tool in nfpm cargo-cyclonedx dpkg-shlibdeps rpm lintian rpmlint debootstrap jq; do
  command -v $tool > /dev/null || skip_all "there is no $tool: scripts/deps packages"
done
[ -n "${OWN_NAMESPACE:-}" ] || OWN_NAMESPACE=1 exec unshare --mount --propagation private -- "$0" "$@"

work=$(mktemp -d /tmp/plumbline-packages-test-XXXXXX)
clean() { remove_scratch "$work"; }
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# give_up WHY...: ends the test, because later checks would show nothing.
give_up() { not_ok "$@"; exit 1; }

# build_packages VERSION: builds packages of the programs under test, for ARCH if set, in $made/VERSION. All tests on a day's programs share them.
made=$top/target/packages-under-test${ARCH:+-$ARCH}
build_packages() {
  local newer=''
  as_owner mkdir -p "$made"
  exec 8> "$made/.lock"
  flock 8
  [ ! -e "$made/$1.done" ] || newer=$(find "$top/packaging" "$top/config" "$top/Makefile" "$top/Cargo.lock" "$PLUMBLINE" "${PLUMBLINE%/*}/libcephfsd" -newer "$made/$1.done" -print -quit)
  if [ ! -e "$made/$1.done" ] || [ -n "$newer" ]; then
    rm -rf "${made:?}/$1"
    VERSION=$1 BUILT=${PLUMBLINE%/*} "$top/packaging/build" "$made/$1" > "$work/said" 2>&1 || give_up "the packages are built" "$(tail -n 5 "$work/said")"
    touch "$made/$1.done"
  fi
  exec 8>&-
}

# with_release SUITE: mounts a fresh, writable release at $root.
with_release() {
  local lower
  lower=$("$lib/root" "$1" 2> "$work/said") || return
  root=$work/$1
  mkdir -p "$root" "$work/upper"
  mountpoint -q "$work/upper" || mount -t tmpfs tmpfs "$work/upper"
  mkdir "$work/upper/$1" "$work/upper/$1-work"
  mount -t overlay -o "lowerdir=$lower,upperdir=$work/upper/$1,workdir=$work/upper/$1-work" overlay "$root" && mount -t proc proc "$root/proc" && mount -t tmpfs tmpfs "$root/run"
}
# there COMMAND...: runs COMMAND in the release.
there() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"; }

# files_there: prints all files of the release, without the package managers' databases and ldconfig's output.
files_there() {
  find "$root" \( -path "$root/proc" -o -path "$root/run" -o -path "$root/dev" -o -path "$root/var/lib/dpkg" -o -path "$root/var/lib/rpm" -o -path "$root/usr/lib/sysimage" \
    -o -path "$root/var/log/dpkg.log" -o -path "$root/var/cache/ldconfig" -o -path "$root/etc/ld.so.cache" \) -prune -o -printf '/%P %y %m %l\n' | sort
}
# left BEFORE: prints in one line the paths that were added, removed or changed since BEFORE.
left() { comm -3 "$1" <(files_there) | awk '{ print $1 }' | sort -u | tr '\n' ' ' | sed 's/ $//'; }
