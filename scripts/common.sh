# shellcheck shell=bash
# Shared by the scripts: the location and the owner of the checkout, and the choice of cargo.

program=scripts/$(basename "$0")
top=$(dirname "$(dirname "$(realpath "${BASH_SOURCE[0]}")")")

say() { echo "$program: $*" >&2; }
die() { say "$*"; exit 1; }

# Under root, the scripts build as the owner of the checkout, so that the owner can change and delete all files.
owner=$(stat -c %U "$top")
[ "$(id -u)" -eq 0 ] && [ "$owner" != UNKNOWN ] || owner=$(id -un)
owner_home=$(getent passwd "$owner" | cut -d: -f6)

# Directory in which scripts/deps installs programs that the distribution does not have
# shellcheck disable=SC2034 # used by the scripts that source this file
tools=$(realpath -m "${PLUMBLINE_CACHE:-/var/cache/plumbline}/tools")

as_owner() {
  if [ "$owner" = "$(id -un)" ]; then "$@"; else runuser -u "$owner" -- env "HOME=$owner_home" "$@"; fi
}

rust_minimum=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$top/Cargo.toml")

# new_enough VERSION: succeeds if VERSION, of Rust or of a Debian package, is at least the minimum.
new_enough() { [ -n "$1" ] && [ "$(printf '%s\n' "$1" "$rust_minimum" | sort -V | head -n 1)" = "$rust_minimum" ]; }

cargo_version() { as_owner cargo --version 2> /dev/null | cut -d' ' -f2; }

# find_cargo: puts a cargo that is new enough first in PATH. sudo removes home directories from PATH, so this function searches them. If
# rustup's default toolchain is missing or too old, its stable toolchain may be new enough.
find_cargo() {
  local home before=$PATH
  for home in "" "$owner_home" "$(getent passwd "${SUDO_USER:-root}" | cut -d: -f6)"; do
    PATH=${home:+$home/.cargo/bin:}$before
    unset RUSTUP_TOOLCHAIN
    [ ! -d "$home/.rustup" ] || export RUSTUP_HOME=$home/.rustup
    new_enough "$(cargo_version)" && return
    # Check first: rustup silently downloads a toolchain that is not installed.
    as_owner rustup toolchain list 2> /dev/null | grep ^stable > /dev/null || continue
    export RUSTUP_TOOLCHAIN=stable
    new_enough "$(cargo_version)" && return
  done
  PATH=$before
  unset RUSTUP_TOOLCHAIN RUSTUP_HOME
  return 1
}
