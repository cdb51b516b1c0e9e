# shellcheck shell=bash disable=SC2154 # common.sh sets $work
# What `crash load` (crash.c) says of its threads.

# of FILE NAME COLUMN: the sum over the threads of this name
of() { awk -v name="$2" -v column="$3" '$1 == name && $2 == "done" { sum += $column } END { print sum + 0 }' "$work/$1"; }

# untroubled FILE WHAT: nothing that they did was refused, wrong or failed
untroubled() {
  local name
  for name in reads lists stats names writes async; do
    is "$2, $name: $(of "$1" $name 3) times, and none refused, wrong or failed" "$(of "$1" $name 5) $(of "$1" $name 7) $(of "$1" $name 9)" "0 0 0"
  done
}
