# shellcheck shell=bash
# What the tests of the packages share: the packages of two versions, a release to install them in, and how results are told.
# A test sources this first; it then runs in a mount namespace of its own.
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

# give_up WHY...: what comes after would show nothing
give_up() { not_ok "$@"; exit 1; }

# build_packages VERSION: the packages of the programs under test, for ARCH if that is set, in $made/VERSION. The tests share those of one day's programs.
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

# with_release SUITE: a fresh release that may be changed, at $root
with_release() {
  local lower
  lower=$("$lib/root" "$1" 2> "$work/said") || return
  root=$work/$1
  mkdir -p "$root" "$work/upper"
  mountpoint -q "$work/upper" || mount -t tmpfs tmpfs "$work/upper"
  mkdir "$work/upper/$1" "$work/upper/$1-work"
  mount -t overlay -o "lowerdir=$lower,upperdir=$work/upper/$1,workdir=$work/upper/$1-work" overlay "$root" && mount -t proc proc "$root/proc" && mount -t tmpfs tmpfs "$root/run"
}
# there COMMAND...: in the release
there() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"; }

# files_there: all files of the release, but for the package managers' own books and what ldconfig writes
files_there() {
  find "$root" \( -path "$root/proc" -o -path "$root/run" -o -path "$root/dev" -o -path "$root/var/lib/dpkg" -o -path "$root/var/lib/rpm" -o -path "$root/usr/lib/sysimage" \
    -o -path "$root/var/log/dpkg.log" -o -path "$root/var/cache/ldconfig" -o -path "$root/etc/ld.so.cache" \) -prune -o -printf '/%P %y %m %l\n' | sort
}
# left BEFORE: the paths that are there now and were not then, or that are gone or others, in one line
left() { comm -3 "$1" <(files_there) | awk '{ print $1 }' | sort -u | tr '\n' ' ' | sed 's/ $//'; }
