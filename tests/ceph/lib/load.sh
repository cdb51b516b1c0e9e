# shellcheck shell=bash disable=SC2154 # common.sh sets $work
# Reads the results of `crash load` (crash.c).

# of FILE NAME COLUMN: prints the sum of a column over the threads of this name.
of() { awk -v name="$2" -v column="$3" '$1 == name && $2 == "done" { sum += $column } END { print sum + 0 }' "$work/$1"; }

# untroubled FILE WHAT: checks that no operation was refused, wrong or failed.
untroubled() {
  local name
  for name in reads lists stats names writes async; do
    is "$2, $name: $(of "$1" $name 3) times, and none refused, wrong or failed" "$(of "$1" $name 5) $(of "$1" $name 7) $(of "$1" $name 9)" "0 0 0"
  done
}
