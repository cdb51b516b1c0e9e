# shellcheck shell=bash
# Functions for the tests of tests/native, tests/ceph and tests/packages: they print each check as a line that tests/run reads, wait for a
# condition, and remove the scratch directory.

# skip_all WHY: ends a test that cannot run here.
skip_all() { echo "ok - ${0##*/} # SKIP $*"; exit 0; }
ok() { echo "ok - $*"; }
# not_ok WHAT [WHY...]: reports a failed check, with each WHY on a line.
not_ok() {
  echo "not ok - $1"
  shift
  [ $# -eq 0 ] || printf '%s\n' "$@" | sed 's/^/  # /'
}
# is WHAT GOT WANT: checks that GOT equals WANT.
is() { if [ "$2" == "$3" ]; then ok "$1"; else not_ok "$1" "got:  $2" "want: $3"; fi; }
# check WHAT COMMAND...: checks that COMMAND succeeds.
check() {
  local what=$1 said
  shift
  if said=$("$@" 2>&1); then ok "$what"; else not_ok "$what" "failed: $*" "$said"; fi
}
# attempt SECONDS COMMAND...: repeats COMMAND until it succeeds, for at most SECONDS.
attempt() {
  local until=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $until ] || return 1
    sleep 0.1
  done
}
# remove_scratch FOLDER: unmounts everything below FOLDER, and removes FOLDER.
remove_scratch() {
  local at
  findmnt -rno TARGET | tac | while IFS= read -r at; do
    at=$(printf %b "$at")
    case $at in "$1"/*) umount -l "$at" ;; esac
  done
  rm -rf --one-file-system "$1"
}
