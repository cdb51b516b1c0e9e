# shellcheck shell=bash
# How the tests of tests/native, tests/ceph and tests/packages tell what they show: a line for each thing, as tests/run reads them; how they wait;
# and how their scratch directory goes.

# skip_all WHY: for a test that cannot run here at all
skip_all() { echo "ok - ${0##*/} # SKIP $*"; exit 0; }
ok() { echo "ok - $*"; }
# not_ok WHAT [WHY...]: each WHY on a line of its own
not_ok() {
  echo "not ok - $1"
  shift
  [ $# -eq 0 ] || printf '%s\n' "$@" | sed 's/^/  # /'
}
# is WHAT GOT WANT
is() { if [ "$2" == "$3" ]; then ok "$1"; else not_ok "$1" "got:  $2" "want: $3"; fi; }
# check WHAT COMMAND...
check() {
  local what=$1 said
  shift
  if said=$("$@" 2>&1); then ok "$what"; else not_ok "$what" "failed: $*" "$said"; fi
}
# attempt SECONDS COMMAND...: until it succeeds
attempt() {
  local until=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $until ] || return 1
    sleep 0.1
  done
}
# remove_scratch FOLDER: all that is mounted below goes first
remove_scratch() {
  local at
  findmnt -rno TARGET | tac | while IFS= read -r at; do
    at=$(printf %b "$at")
    case $at in "$1"/*) umount -l "$at" ;; esac
  done
  rm -rf --one-file-system "$1"
}
