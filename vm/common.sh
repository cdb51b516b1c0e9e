# shellcheck shell=bash
# shellcheck disable=SC2034 # used by the scripts that source this file
# Shared by the scripts in vm/: the kernels and their directory, and the check for missing tools.

export PATH=$PATH:/usr/sbin:/sbin # for depmod, which may not be in a user's PATH
program=vm/$(basename "$0")
kernels=$(realpath -m "${PLUMBLINE_CACHE:-/var/cache/plumbline}/kernels")

# Debian suites of the kernels. vm/fetch reads their package indexes to find the kernels.
suites=(bookworm trixie trixie-backports)
# Kernels for the tests: the oldest of these suites, a stable one, and the newest.
matrix=(oldest 6.12 newest)

# Default memory of a guest in MiB. in_memory is for guests that copy their disks into memory.
template_memory=2048 in_memory=3072

# Debian suite for the root of an arm64 guest (vm/root)
root_suite=${suites[0]}

# architecture KERNEL: prints Debian's name of the kernel's architecture. `6.12-arm64` is for arm64; a name without a suffix is for amd64.
architecture() { case ${1%/} in *-arm64) echo arm64 ;; *) echo amd64 ;; esac; }
# emulator ARCHITECTURE: prints the name of the QEMU program for that architecture.
emulator() { case $1 in arm64) echo qemu-system-aarch64 ;; *) echo qemu-system-x86_64 ;; esac; }

say() { echo "$program: $*" >&2; }
die() { say "$2"; exit "$1"; }

# copy_modules KERNEL DIR FIRST MODULE...: copies the modules and their dependencies to DIR, without those built into the kernel. The file names
# begin with numbers from FIRST on, in the order of loading.
copy_modules() {
  local module release n=$3
  release=$(< "$1/release")
  for module in "${@:4}"; do
    modprobe -d "$1" -S "$release" --show-depends "$module" 2> /dev/null || true # fails for a built-in module
  done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r module; do
    cp "$module" "$2/$n-${module##*/}"; n=$((n + 1))
  done
}

# squash FILE DIR SIZE [OPTION...]: writes DIR to FILE as an uncompressed squashfs. SIZE (truncate's syntax) sets the file size, since NVDIMMs need
# certain sizes. With `-` as DIR and -tar as OPTION, the content is a tar archive on standard input.
squash() {
  local file=$1 said
  said=$(mksquashfs "$2" "$file.new" -noI -noD -noF -noX -no-xattrs -no-progress -quiet -one-file-system -noappend "${@:4}" 2>&1) ||
    die 74 "cannot make $file: $(tail -n 1 <<< "$said")"
  truncate -s "$3" "$file.new"
  mv "$file.new" "$file"
}

# need_tools ARCHITECTURE: exits if a tool for guests of ARCHITECTURE is missing, and names the packages to install.
need_tools() {
  local pair missing=() packages=() emulator=qemu-system-x86_64:qemu-system-x86
  [ "$1" != arm64 ] || emulator=qemu-system-aarch64:qemu-system-arm
  for pair in $emulator busybox:busybox-static cpio:cpio depmod:kmod xz:xz-utils zstd:zstd; do
    command -v "${pair%:*}" > /dev/null || { missing+=("${pair%:*}"); packages+=("${pair#*:}"); }
  done
  [ ${#missing[@]} -eq 0 ] || die 69 "missing ${missing[*]}; on Debian or Ubuntu: apt-get install --no-install-recommends ${packages[*]}"
}
