# shellcheck shell=bash
# Restarts the daemon whenever it ends. A test sources this after common.sh.
# shellcheck disable=SC2154 # work, there, lib and started are common.sh's
# supervise [OPTION...]: starts one daemon after the other, like systemd, until $work/enough exists. OPTIONs are libcephfsd's.
supervise() {
  while [ ! -e "$work/enough" ]; do
    "${there[@]}" "$work/libcephfsd" --socket "$LIBCEPHFSD_SOCKET" --state "$work/state" "$@" 2>> "$work/daemon.log" &
    echo $! > "$work/pid.new"
    mv "$work/pid.new" "$work/pid"
    wait $!
    sleep 0.1
  done 2> /dev/null
}
# end SIGNAL: sends SIGNAL to the current daemon. The children of a killed daemon end a moment later; end waits for them.
end() {
  local pid below
  pid=$(< "$work/pid")
  mapfile -t below < <(pgrep -P "$pid")
  kill -"$1" "$pid"
  [ "$1" != KILL ] || timeout 10 tail "${below[@]/#/--pid=}" -f /dev/null
}
trap 'touch "$work/enough"; end TERM; clean' EXIT
