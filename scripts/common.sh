# shellcheck shell=bash
# What the scripts share: where the project is, whose it is, and which cargo builds it.

program=scripts/$(basename "$0")
top=$(dirname "$(dirname "$(realpath "${BASH_SOURCE[0]}")")")

say() { echo "$program: $*" >&2; }
die() { say "$*"; exit 1; }

# Root builds as the user whose checkout this is, so that nothing is left behind which they cannot change or delete.
owner=$(stat -c %U "$top")
[ "$(id -u)" -eq 0 ] && [ "$owner" != UNKNOWN ] || owner=$(id -un)
owner_home=$(getent passwd "$owner" | cut -d: -f6)

# Where scripts/deps puts programs that the distribution does not have
# shellcheck disable=SC2034 # for those that source this
tools=$(realpath -m "${PLUMBLINE_CACHE:-/var/cache/plumbline}/tools")

as_owner() {
  if [ "$owner" = "$(id -un)" ]; then "$@"; else runuser -u "$owner" -- env "HOME=$owner_home" "$@"; fi
}

rust_minimum=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$top/Cargo.toml")

# new_enough VERSION: whether Rust's VERSION (or that of a Debian package) will do
new_enough() { [ -n "$1" ] && [ "$(printf '%s\n' "$1" "$rust_minimum" | sort -V | head -n 1)" = "$rust_minimum" ]; }

cargo_version() { as_owner cargo --version 2> /dev/null | cut -d' ' -f2; }

# find_cargo: put a cargo that is new enough first in PATH. sudo hides the one in a home directory: look there too. A
# rustup whose default toolchain is old, or missing, may have a newer stable one.
find_cargo() {
  local home before=$PATH
  for home in "" "$owner_home" "$(getent passwd "${SUDO_USER:-root}" | cut -d: -f6)"; do
    PATH=${home:+$home/.cargo/bin:}$before
    unset RUSTUP_TOOLCHAIN
    [ ! -d "$home/.rustup" ] || export RUSTUP_HOME=$home/.rustup
    new_enough "$(cargo_version)" && return
    # Asked for a toolchain that is not there, rustup would download it, without a word.
    as_owner rustup toolchain list 2> /dev/null | grep ^stable > /dev/null || continue
    export RUSTUP_TOOLCHAIN=stable
    new_enough "$(cargo_version)" && return
  done
  PATH=$before
  unset RUSTUP_TOOLCHAIN RUSTUP_HOME
  return 1
}
