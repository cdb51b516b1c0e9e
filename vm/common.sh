# shellcheck shell=bash
# shellcheck disable=SC2034 # used by those that source this
# What the scripts here share: which kernels there are, where they are kept, and how a missing tool is reported.

export PATH=$PATH:/usr/sbin:/sbin # depmod, which a user's PATH may lack
program=vm/$(basename "$0")
kernels=$(realpath -m "${PLUMBLINE_CACHE:-/var/cache/plumbline}/kernels")

# The Debian suites that kernels come from. Which kernels they have is read in their indexes (vm/fetch).
suites=(bookworm trixie trixie-backports)
# What the tests run on: the oldest kernel of these suites, a stable one, and the newest.
matrix=(oldest 6.12 newest)

# Memory of a guest, MiB, where nothing else is asked for; where its disks are in memory too
template_memory=2048 in_memory=3072

# The Debian suite that the root of an arm64 guest is made of (vm/root)
root_suite=${suites[0]}

# architecture KERNEL: Debian's name of it, by the kernel's name here: `6.12-arm64` says so, amd64's say nothing
architecture() { case ${1%/} in *-arm64) echo arm64 ;; *) echo amd64 ;; esac; }
# emulator ARCHITECTURE: the QEMU that runs its kernels
emulator() { case $1 in arm64) echo qemu-system-aarch64 ;; *) echo qemu-system-x86_64 ;; esac; }

say() { echo "$program: $*" >&2; }
die() { say "$2"; exit "$1"; }

# copy_modules KERNEL DIR FIRST MODULE...: these and what they need, as far as they are not built in, into DIR, with numbers from FIRST on before
# their names, in the order of loading
copy_modules() {
  local module release n=$3
  release=$(< "$1/release")
  for module in "${@:4}"; do
    modprobe -d "$1" -S "$release" --show-depends "$module" 2> /dev/null || true # built in
  done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r module; do
    cp "$module" "$2/$n-${module##*/}"; n=$((n + 1))
  done
}

# squash FILE DIR SIZE [OPTION...]: DIR as a squashfs file that is not compressed, as large as SIZE (truncate's), as NVDIMMs want it. `-` as DIR
# and -tar as OPTION: what tar writes on standard input
squash() {
  local file=$1 said
  said=$(mksquashfs "$2" "$file.new" -noI -noD -noF -noX -no-xattrs -no-progress -quiet -one-file-system -noappend "${@:4}" 2>&1) ||
    die 74 "cannot make $file: $(tail -n 1 <<< "$said")"
  truncate -s "$3" "$file.new"
  mv "$file.new" "$file"
}

# need_tools ARCHITECTURE: stop unless every tool that guests of it need is there, naming the packages that bring the missing ones
need_tools() {
  local pair missing=() packages=() emulator=qemu-system-x86_64:qemu-system-x86
  [ "$1" != arm64 ] || emulator=qemu-system-aarch64:qemu-system-arm
  for pair in $emulator busybox:busybox-static cpio:cpio depmod:kmod xz:xz-utils zstd:zstd; do
    command -v "${pair%:*}" > /dev/null || { missing+=("${pair%:*}"); packages+=("${pair#*:}"); }
  done
  [ ${#missing[@]} -eq 0 ] || die 69 "missing ${missing[*]}; on Debian or Ubuntu: apt-get install --no-install-recommends ${packages[*]}"
}
