# shellcheck shell=bash
# What the native tests share: a mount namespace and a scratch directory of their own, slowfs, the daemon, and how
# results are told. A test sources this first; it then runs in its own namespace, so that it can mount over anything.
set -uo pipefail
: "${PLUMBLINE:?the program under test}" "${SLOWFS:?crates/slowfs}"
# shellcheck disable=SC2034 # for the tests
tools=$(dirname "$(realpath "${BASH_SOURCE[0]}")")/tools

# shellcheck source=../said.sh
. "$tools/../../said.sh"
# shellcheck source=../ports.sh
. "$tools/../../ports.sh"
[ "$(id -u)" -eq 0 ] || skip_all "it takes root"
[ -e /dev/fuse ] || skip_all "this kernel has no FUSE"
for tool in flock jq python3 setpriv unshare zstd; do command -v $tool > /dev/null || skip_all "there is no $tool"; done

[ -n "${OWN_NAMESPACE:-}" ] || OWN_NAMESPACE=1 exec unshare --mount --propagation private -- "$0" "$@"

# A daemon watches every FUSE mount of the machine, whatever its namespace: two tests at once would see each other's.
exec 9> /run/lock/plumbline-native-tests
flock 9

work=$(mktemp -d /tmp/plumbline-test-XXXXXX)
chmod 755 "$work" # for those tests that are not root
export RUNTIME_DIRECTORY=$work/${work##*-}
output=$work/output log=$work/log control=$work/control share=$work/share
# Pins of its own, too: this namespace is the only one that sees them.
mount -t bpf bpf /sys/fs/bpf || skip_all "bpffs cannot be mounted"

started=() # ids of what is to end with the test
clean() {
  local pid
  for pid in "${started[@]}"; do kill -CONT "$pid" 2> /dev/null; kill "$pid" 2> /dev/null; done
  # A daemon that does not end would keep the test from ending, too.
  for pid in "${started[@]}"; do timeout 5 tail --pid="$pid" -f /dev/null || kill -KILL "$pid" 2> /dev/null; done
  wait 2> /dev/null
  remove_scratch "$work"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# within SECONDS COMMAND...: whether it succeeds within that time
within() {
  local end=$((${EPOCHREALTIME/[.,]/} + $1 * 1000000))
  shift
  until "$@"; do
    [ "${EPOCHREALTIME/[.,]/}" -lt $end ] || return 1
    sleep 0.05
  done
}
# give_up WHY: what comes after would show nothing
give_up() {
  not_ok "$1" "$(tail -n 20 "$log" 2> /dev/null)"
  exit 1
}
milliseconds() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }
# gone PID: it has ended, whether or not its new parent has noticed
gone() { ! grep -Eq '^State:[[:space:]]+[^ZX]' "/proc/$1/status" 2> /dev/null; }

# slow WORDS: what slowfs does from now on; at once, so that no operation sees half of it
slow() { echo "$*" > "$control.new" && mv "$control.new" "$control"; }

# mount_slowfs [MOUNTPOINT]: by default $share
mount_slowfs() {
  local at=${1:-$share}
  mkdir -p "$at"
  "$SLOWFS" "$at" --name a-share --control "$control" &
  started+=("$!")
  within 10 mountpoint -q "$at" || give_up "slowfs is mounted"
}

# What other processes of this host ask of MPI or of the libcephfs proxy would be in each bundle.
probes='smb: false, mpiio: false, cephproxy: false'
# configure [LINE...]: a configuration that finds slowness within half a second; each LINE is added to it
configure() {
  cat > "$work/plumbline.yaml" << X
watch_interval_sec: 0.5
output_dir: $output
probes: {$probes}
anomalies:
  slow_share:
    {type: latency, probe: syscalls, only: {mount: '$work/*'}, acceptable_count: 5, default_threshold_ms: 100, ceiling_ms: 1000, actions: [mounts]}
X
  [ $# -eq 0 ] || printf '%s\n' "$@" >> "$work/plumbline.yaml"
}

# start_daemon [ARGUMENT...]: on that configuration; its id is $daemon, its words are in $log
start_daemon() {
  : > "$log"
  "$PLUMBLINE" run --config "$work/plumbline.yaml" "$@" > "$log" 2>&1 &
  daemon=$!
  started+=("$daemon")
  within 20 daemon_is_up || give_up "the daemon starts"
}
daemon_is_up() { grep -q '^incidents go to' "$log"; }
# stop_daemon: its exit code is $status
stop_daemon() {
  kill "$daemon" 2> /dev/null
  wait "$daemon"
  # shellcheck disable=SC2034 # for the tests
  status=$?
}
logged() { grep -Eq -- "$1" "$log"; }
# metric NAME{LABELS}: its value on the page that the daemon serves at port $metrics; 0 if there is none
metric() {
  python3 -c 'import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())' "http://127.0.0.1:${metrics:?}/metrics" \
    | NAME=$1 awk 'index($0, ENVIRON["NAME"] " ") == 1 { value = $NF } END { print value + 0 }'
}
# silent_server PORT: it accepts there, and never answers; its id is $silent
silent_server() {
  : > "$work/silent"
  python3 -c 'import socket, sys, time
s = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=100)
print("listens", flush=True)
time.sleep(600)' "$1" > "$work/silent" &
  silent=$!
  started+=("$silent")
  within 20 test -s "$work/silent" || give_up "a server that is silent starts"
}

# make_certificate NAME: by an authority, $work/NAME-ca.pem, a certificate for 127.0.0.1 and its key: $work/NAME.pem, $work/NAME.key
make_certificate() {
  local to=$work/$1
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout "$to-ca.key" -out "$to-ca.pem" 2> /dev/null
  openssl req -newkey rsa:2048 -nodes -subj /CN=server -keyout "$to.key" -out "$to.csr" 2> /dev/null
  openssl x509 -req -in "$to.csr" -CA "$to-ca.pem" -CAkey "$to-ca.key" -CAcreateserial -days 2 -out "$to.pem" \
    -extfile <(echo subjectAltName=IP:127.0.0.1) 2> /dev/null || give_up "a certificate is made"
}

# polls PID: it waits for events (poll is system call 7 of x86-64), so that all it attaches is attached, and what it looks for is set
polls() { grep -q '^7 ' "/proc/$1/syscall" 2> /dev/null; }

# hold_asks ARGUMENT...: tools/asks, which waits for let_asks_go; its id is $held. What is started meanwhile must not keep descriptor 8.
hold_asks() {
  rm -f "$work/asked" # of the one before
  exec 8> >(exec "$tools/asks" "$@" > "$work/asked")
  within 10 test -s "$work/asked" || give_up "tools/asks $*"
  held=$(< "$work/asked")
  started+=("$held")
}
# let_asks_go: and waits until it has done all
let_asks_go() {
  exec 8>&-
  within 30 gone "$held" || give_up "tools/asks ends"
}

# bundles: their paths, oldest first
bundles() { find "$output/incidents" -name '*.tar.zst' -printf '%f\n' 2> /dev/null | sort -t- -k4n | sed "s|^|$output/incidents/|"; }
count_bundles() { bundles | wc -l; }
bundles_are() { [ "$(count_bundles)" -eq "$1" ]; }
# entry BUNDLE NAME
entry() { tar --zstd -xOf "$1" "$2"; }
# incident BUNDLE [OPTION...] FILTER: what jq says about its incident.json
incident() { entry "$1" incident.json | jq -c "${@:2}"; }
is_closed() { [ "$(incident "$1" .closed)" == true ]; }
