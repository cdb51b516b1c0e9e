# shellcheck shell=bash
# A daemon that is started anew whenever it ends. A test sources this after common.sh.
# shellcheck disable=SC2154 # work, there, lib and started are common.sh's
# supervise [OPTION...]: as systemd does, one daemon after the other, until $work/enough is there. Its options are libcephfsd's.
supervise() {
  while [ ! -e "$work/enough" ]; do
    "${there[@]}" "$work/libcephfsd" --socket "$LIBCEPHFSD_SOCKET" --state "$work/state" "$@" 2>> "$work/daemon.log" &
    echo $! > "$work/pid.new"
    mv "$work/pid.new" "$work/pid"
    wait $!
    sleep 0.1
  done 2> /dev/null
}
# end SIGNAL: to the daemon that there is
end() { kill -"$1" "$(cat "$work/pid")"; }
trap 'touch "$work/enough"; end TERM; clean' EXIT
