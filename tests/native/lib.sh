# shellcheck shell=bash
# Shared by the native tests: a mount namespace and a scratch directory, slowfs, the daemon, and the output of
# results. A test sources this first. It then runs in its own namespace, so that it can mount over anything.
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

# A daemon watches every FUSE mount of the machine in all namespaces. Two tests at once would see each other's mounts.
exec 9> /run/lock/plumbline-native-tests
flock 9

work=$(mktemp -d /tmp/plumbline-test-XXXXXX)
chmod 755 "$work" # for the tests that run as another user
export RUNTIME_DIRECTORY=$work/${work##*-}
output=$work/output log=$work/log control=$work/control share=$work/share
# Use a private bpffs, which only this namespace sees.
mount -t bpf bpf /sys/fs/bpf || skip_all "bpffs cannot be mounted"

started=() # processes that clean() ends
clean() {
  local pid
  for pid in "${started[@]}"; do kill -CONT "$pid" 2> /dev/null; kill "$pid" 2> /dev/null; done
  # Kill a daemon that does not end, because the test waits for it.
  for pid in "${started[@]}"; do timeout 5 tail --pid="$pid" -f /dev/null || kill -KILL "$pid" 2> /dev/null; done
  wait 2> /dev/null
  remove_scratch "$work"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# within SECONDS COMMAND...: repeats COMMAND until it succeeds, and fails after SECONDS.
within() {
  local end=$((${EPOCHREALTIME/[.,]/} + $1 * 1000000))
  shift
  until "$@"; do
    [ "${EPOCHREALTIME/[.,]/}" -lt $end ] || return 1
    sleep 0.05
  done
}
# give_up WHY: ends the test, because later checks would show nothing.
give_up() {
  not_ok "$1" "$(tail -n 20 "$log" 2> /dev/null)"
  exit 1
}
milliseconds() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }
# gone PID: checks that the process has ended, even if its parent has not reaped it.
gone() { ! grep -Eq '^State:[[:space:]]+[^ZX]' "/proc/$1/status" 2> /dev/null; }

# slow WORDS: changes the behaviour of slowfs. The rename is atomic, so no operation sees a partial file.
slow() { echo "$*" > "$control.new" && mv "$control.new" "$control"; }

# mount_slowfs [MOUNTPOINT]: mounts slowfs, by default on $share.
mount_slowfs() {
  local at=${1:-$share}
  mkdir -p "$at"
  "$SLOWFS" "$at" --name a-share --control "$control" &
  started+=("$!")
  within 10 mountpoint -q "$at" || give_up "slowfs is mounted"
}

# Without mpiio and cephproxy: other processes of this host may use them and would be in each bundle.
probes='smb: false, mpiio: false, cephproxy: false'
# configure [LINE...]: writes a configuration that detects slowness within half a second, and adds each LINE.
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

# start_daemon [ARGUMENT...]: starts the daemon with that configuration. Its process id is in $daemon, its log in $log.
start_daemon() {
  : > "$log"
  "$PLUMBLINE" run --config "$work/plumbline.yaml" "$@" > "$log" 2>&1 &
  daemon=$!
  started+=("$daemon")
  within 20 daemon_is_up || give_up "the daemon starts"
}
daemon_is_up() { grep -q '^incidents go to' "$log"; }
# stop_daemon: stops the daemon and stores its exit code in $status.
stop_daemon() {
  kill "$daemon" 2> /dev/null
  wait "$daemon"
  # shellcheck disable=SC2034 # for the tests
  status=$?
}
logged() { grep -Eq -- "$1" "$log"; }
# metric NAME{LABELS}: prints the metric that the daemon serves at port $metrics, or 0 if it is missing.
metric() {
  python3 -c 'import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())' "http://127.0.0.1:${metrics:?}/metrics" \
    | NAME=$1 awk 'index($0, ENVIRON["NAME"] " ") == 1 { value = $NF } END { print value + 0 }'
}
# silent_server PORT: starts a server that accepts connections and never answers. Its process id is in $silent.
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

# make_certificate NAME: makes an authority, $work/NAME-ca.pem, and a certificate for 127.0.0.1 with its key: $work/NAME.pem, $work/NAME.key.
make_certificate() {
  local to=$work/$1
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout "$to-ca.key" -out "$to-ca.pem" 2> /dev/null
  openssl req -newkey rsa:2048 -nodes -subj /CN=server -keyout "$to.key" -out "$to.csr" 2> /dev/null
  openssl x509 -req -in "$to.csr" -CA "$to-ca.pem" -CAkey "$to-ca.key" -CAcreateserial -days 2 -out "$to.pem" \
    -extfile <(echo subjectAltName=IP:127.0.0.1) 2> /dev/null || give_up "a certificate is made"
}

# polls PID: checks that the process waits for events (poll is system call 7 of x86-64). All its programs are then attached and its filters set.
polls() { grep -q '^7 ' "/proc/$1/syscall" 2> /dev/null; }

# hold_asks ARGUMENT...: starts tools/asks, which waits for let_asks_go. Its process id is in $held. Processes started meanwhile must not
# inherit descriptor 8.
hold_asks() {
  rm -f "$work/asked" # the last run's output
  exec 8> >(exec "$tools/asks" "$@" > "$work/asked")
  within 10 test -s "$work/asked" || give_up "tools/asks $*"
  held=$(< "$work/asked")
  started+=("$held")
}
# let_asks_go: lets tools/asks work and waits until it ends.
let_asks_go() {
  exec 8>&-
  within 30 gone "$held" || give_up "tools/asks ends"
}

# bundles: prints the paths of the bundles, oldest first.
bundles() { find "$output/incidents" -name '*.tar.zst' -printf '%f\n' 2> /dev/null | sort -t- -k4n | sed "s|^|$output/incidents/|"; }
count_bundles() { bundles | wc -l; }
bundles_are() { [ "$(count_bundles)" -eq "$1" ]; }
# entry BUNDLE NAME: prints a file of the bundle.
entry() { tar --zstd -xOf "$1" "$2"; }
# incident BUNDLE [OPTION...] FILTER: applies a jq filter to the bundle's incident.json.
incident() { entry "$1" incident.json | jq -c "${@:2}"; }
is_closed() { [ "$(incident "$1" .closed)" == true ]; }
