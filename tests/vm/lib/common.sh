# shellcheck shell=bash
# Helpers for the scripts in tests/vm (`. tests/vm/lib/common.sh`), which run in a guest of vm/run: checks that print the observed values,
# the daemon, load on a mount, and bundles. A script ends with `finish`.

# shellcheck source=/dev/null
. vm/guest/lib.sh || exit
PLUMBLINE=${PLUMBLINE:-$PWD/target/release/plumbline}
work=/run/e2e
mkdir -p $work

# Use gojq for jq. At each start, jq compiles its own library, which takes 180 ms in the guest; gojq takes 9.
lib_need gojq:gojq || exit
jq() { gojq "$@"; }

### Checks. A script that cannot continue calls `die`, and the checks after it are not printed as passed.

scenario='' # the prefix of the checks that follow
failed=0
ok() { echo "ok - ${scenario:+$scenario: }$1"; }
# Print the reason on one line, because the summary prints one line for each failure.
not_ok() { local why=${*:2}; failed=$((failed + 1)); echo "not ok - ${scenario:+$scenario: }$1: ${why//$'\n'/ | }"; }
skip() { echo "ok - ${scenario:+$scenario: }$1 # SKIP $2"; }
die() { not_ok "$@"; finish; }
finish() {
  [ $failed -eq 0 ] && exit
  [ ! -s "${log:-}" ] || { echo "the end of the daemon's log:"; tail -n 40 "$log"; }
  exit 1
}

# attempt NAME FUNCTION: runs a scenario in a subshell, once, and cleans up after it.
attempt() {
  (
    failed=0 scenario=$1
    trap settle EXIT
    "$2"
    finish
  ) || failed=$((failed + 1))
}
# settle: ends every injected fault and every background job of this shell.
settle() {
  local left
  slow_smbd off
  net_clear 2> /dev/null
  sender_clear 2> /dev/null
  smbd_cont
  [ ! -e /dev/mapper/slowdisk ] || { disk_thaw; disk_delay 0; } 2> /dev/null
  mapfile -t left < <(jobs -p)
  [ ${#left[@]} -eq 0 ] || { kill "${left[@]}"; wait "${left[@]}"; } 2> /dev/null
}

# is WHAT ACTUAL EXPECTED: checks that both texts are equal.
is() { if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "it is '$2', not '$3'"; fi; }
# The losses that trace and follow may print without having lost an event of a probe. The kernel does not run a BPF program for a task that
# preempts another task within the same program (bpf_prog_enter, recursion). Programs that take long, as in emulated guests, make this likely.
# The kernel counts these skipped runs for all tasks together.
# shellcheck disable=SC2034 # scripts read it
nothing_lost='@(none lost|lost: +(+([0-9])?( of +([a-z])) because the kernel did not run the probe?s program?(, )))'
# matches WHAT TEXT PATTERN: checks that TEXT matches the glob.
# shellcheck disable=SC2053 # a glob is meant
matches() { if [[ $2 == $3 ]]; then ok "$1"; else not_ok "$1" "'$2' is not like '$3'"; fi; }
# between WHAT NUMBER LEAST MOST: checks that a whole number is in the range.
between() { if [ "$2" -ge "$3" ] && [ "$2" -le "$4" ]; then ok "$1"; else not_ok "$1" "$2 is not between $3 and $4"; fi; }
# holds WHAT FILE FILTER [JQ_OPTION...]: checks that the jq filter is true of the JSON in FILE.
holds() {
  local said
  if said=$(jq -e "$3" "$2" "${@:4}" 2>&1); then ok "$1"; else not_ok "$1" "$3 is ${said:-empty} of $(jq -c . "$2" 2> /dev/null | head -c 3000)"; fi
}
# holds_all WHAT FILE FILTER [JQ_OPTION...]: checks that the filter is true of every line of FILE, and that FILE is not empty.
holds_all() {
  local wrong
  if ! wrong=$(jq -c "select(($3) | not)" "$2" "${@:4}" 2>&1); then not_ok "$1" "${wrong##*$'\n'}"
  elif [ -n "$wrong" ]; then not_ok "$1" "$(wc -l <<< "$wrong") of $(wc -l < "$2") lines are not, such as $(head -n 2 <<< "$wrong")"
  elif [ ! -s "$2" ]; then not_ok "$1" "$2 is empty"
  else ok "$1"; fi
}

### Time

exec {nothing}<> <(:)
# pause SECONDS: sleeps without starting a process.
pause() { read -rt "$1" -u "$nothing" _ || true; }
now_ms() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }
# wait_for SECONDS COMMAND...: repeats COMMAND until it succeeds, and fails after SECONDS.
wait_for() {
  local end=$((SECONDS + $1))
  until "${@:2}"; do
    [ $SECONDS -lt $end ] || return
    pause 0.1
  done
}
# has FILE TEXT: checks that FILE contains TEXT.
has() { [ -e "$1" ] && [[ $(< "$1") == *"$2"* ]]; }
# count FILE TEXT: prints how many lines of FILE contain TEXT.
count() { grep -cF -- "$2" "$1" || true; }
gone() { ! kill -0 "$1" 2> /dev/null; }
# asleep PID SYSTEM_CALL: checks that the process waits in that system call (x86-64's number). It must not open /dev/null, which would wake a
# process that watches it.
asleep() { local call; [ -e "/proc/$1/syscall" ] && read -r call _ < "/proc/$1/syscall" && [ "$call" = "$2" ]; }

### The daemon

# For a configuration's `probes`: turns off the probes that few scripts use. Loading them takes a second of virtual time at each start.
# shellcheck disable=SC2034 # for the scripts
spare='mpiio: false, cephproxy: false, fuse: false, connections: false, server: false'

daemon=''
# start_daemon CONFIG [ARGUMENT...]: starts the daemon, waits until it watches, and writes its log to $log.
# A script that sets recorded=1, config and out makes each daemon on $config record all its events for replay_agrees.
start_daemon() {
  log=$work/log
  : > $log
  if [ -n "${recorded:-}" ] && [ "$1" = "${config:-}" ] && ! has "$1" 'recorder:'; then echo 'recorder: {keep_minutes: 600, keep_mb: 64}' >> "$1"; fi
  "$PLUMBLINE" run --config "$@" > $log 2>&1 &
  daemon=$!
  wait_for 240 watching_or_gone
  watching || die "the daemon starts" "it does not watch: $(tail -n 3 $log)"
}
watching() { has $log 'incidents go to'; }
watching_or_gone() { watching || gone $daemon; }
# shellcheck disable=SC2034 # for the scripts
# stop_daemon: sends SIGTERM and stores the exit status in $status and the time in $took (ms).
stop_daemon() {
  local from
  from=$(now_ms)
  kill "$daemon"
  status=0
  wait "$daemon" || status=$?
  took=$(($(now_ms) - from))
  daemon=''
  [ ! -d "${out:-/nothing}/recorder" ] || replay_agrees
}
# replay_agrees: checks that `plumbline replay` of the recording gives the incidents that have bundles in $out, with all fields equal but
# `waited`: recordings hold no stacks.
replay_agrees() {
  local bundle
  if ! "$PLUMBLINE" replay "$out/recorder" --config "${config:?}" --json > $work/replayed 2> $work/replay.log; then
    not_ok "the recording can be judged" "$(< $work/replay.log)"
    return
  fi
  for bundle in "$out"/incidents/*.tar.zst; do
    [ -e "$bundle" ] || continue
    tar --zstd -xOf "$bundle" incident.json
  done | jq 'del(.waited)' > $work/live # gojq sorts the keys
  jq --slurpfile live $work/live '.[] | select(.id | IN($live[].id))' $work/replayed > $work/again
  is "replay agrees with the daemon in every field of its $(jq -s length $work/live) incidents" "$(diff $work/live $work/again | head -n 40)" ''
  rm -rf "$out/recorder"
}
# all_ended: checks in the last log line of a daemon, stopped after all load, that the probes saw an end for each operation that began. Runs
# that the kernel refused are tolerated.
all_ended() {
  local said
  said=$(grep 'INFO stopped: .*unfinished: ' "$log")
  if [[ $said == *runs_missed* || $said == *' of '* && ! ${said#*unfinished:} =~ \ (smb|nfs)\ [1-9] ]]; then ok "everything that began has ended"; else not_ok "everything that began has ended" "$said"; fi
}

# runs_missed: prints how many runs of BPF programs the kernel has refused, from the summary of a trace in $said.
runs_missed() { sed -nE '/ shown/s/^.*[ :]([0-9]+) because the kernel did not run.*/\1/p' "${said:?}" | grep . || echo 0; }
# in_bpf WHAT...: runs bpf.py.
in_bpf() { python3 -ISu tests/vm/lib/bpf.py "$@"; }
# used_slot MAP_ID: prints the first slot that an operation has used.
used_slot() { bpftool map dump id "$1" 2> /dev/null | awk '$1 == "\"key\":" { key = $2 + 0 } $1 == "\"probe\":" && $2 + 0 { print key; exit }'; }

### Load: processes with a chosen name that start no other processes

loads=()
# load COMM COUNT write|read DIR: starts COUNT processes. Each makes at most twenty requests a second on its own file in DIR. Returns when all
# files exist.
load() {
  local n
  : > "$work/begun"
  for ((n = 0; n < $2; n++)); do
    (
      name_self "$1"
      "load_$3" "$4/$1-$n"
    ) 2> /dev/null &
    loads+=($!)
  done
  wait_for 60 have_begun "$2" || die "the load begins" "of $2 processes of $1, $(wc -l < "$work/begun") have"
}
# begun: a load process calls this when its file exists.
begun() { echo >> "$work/begun"; }
have_begun() {
  local all
  mapfile -t all < "$work/begun"
  [ ${#all[@]} -eq "$1" ]
}
# name_self COMM: sets the name of the calling process to any bytes but NUL.
name_self() { printf %s "$1" > "/proc/$BASHPID/comm"; }
# load_write FILE: writes 4 KiB at a time. On a mount with cache=none, the writer itself sends the request.
load_write() {
  exec > "$1"
  begun
  while printf %4096s ''; do pause 0.05; done
}
# load_read FILE: reads 4 KiB at a time, and starts again after two megabytes.
load_read() {
  local _
  printf %2097152s '' > "$1"
  begun
  while :; do
    while read -rN 4096 _; do pause 0.05; done < "$1"
  done
}
# stop_load: stops all load. It does not return while the server hangs.
stop_load() {
  [ ${#loads[@]} -eq 0 ] || kill "${loads[@]}" 2> /dev/null
  wait "${loads[@]}" 2> /dev/null
  loads=()
}

### Bundles

# bundles DIR: prints the paths of the bundles, oldest first.
bundles() { local at; for at in "$1"/incidents/*.tar.zst; do [ ! -e "$at" ] || echo "$at"; done; }
# has_bundles DIR COUNT [PART_OF_NAME]: checks that there are at least COUNT bundles.
has_bundles() {
  local found=("$1"/incidents/*"${3:-}"*.tar.zst)
  [ -e "${found[0]}" ] && [ ${#found[@]} -ge "$2" ]
}
# unpack BUNDLE DIR: unpacks the bundle into DIR. It writes the bundle's modification time (seconds since the epoch) to DIR/written and its
# path to DIR/from.
unpack() {
  local from
  # Callers poll for new content, so do not unpack an unchanged bundle again.
  { read -r from < "$2/from"; } 2> /dev/null
  if [ -n "$1" ] && [ "${from:-}" = "$1" ] && ! [ "$1" -nt "$2/from" ]; then return; fi
  rm -rf "$2"
  mkdir -p "$2"
  # Read the bundle through one descriptor: the daemon replaces the file when it updates the incident.
  {
    stat -L -c %.3Y /dev/stdin > "$2/written"
    tar --zstd -xC "$2" && echo "$1" > "$2/from" && touch -r /dev/stdin "$2/from"
  } < "$1"
}
# wait_bundle DIR UNPACKED [PART_OF_NAME [SECONDS]]: waits for the first bundle and unpacks it at once.
wait_bundle() {
  wait_for "${4:-60}" has_bundles "$1" 1 "${3:-}" || die "an incident is written" "there is none after ${4:-60} s"
  unpack "$(compgen -G "$1/incidents/*${3:-}*.tar.zst" | head -n 1)" "$2"
}

# check_bundle UNPACKED MOUNTPOINT ACTION...: checks that the bundle has all that the contract promises, and that it is about the mount.
check_bundle() {
  local dir=$1 mount=$2
  shift 2
  holds "incident.json has every field of the contract" "$dir/incident.json" '
    def text: type == "string" and . != "";
    def keys_are_there($names): . as $it | all($names[]; . as $name | $it | has($name));
    all(.id, .detected, .window.from, .window.to, .anomaly.name, .anomaly.type, .anomaly.probe, .anomaly.rule,
      .anomaly.observed, .anomaly.limit, .verdict.layer, .verdict.because[], .top.operations[].operation,
      (.top.mounts[] | .mountpoint, .source, .server, .fstype), .top.processes[].comm, .top.processes[].cgroup; text)
    and all(.verdict.because, .top.operations, .top.mounts, .top.processes; length > 0)
    and all(.verdict.confidence, .top.processes[].pid; type == "number")
    and all(.top.processes[]; keys_are_there(["cgroup", "container"]))
    and (.verdict | keys_are_there(["cause", "alternatives"])) and (.verdict.layer == "unknown") == (.verdict.cause == null)
    and (.verdict.phases_ms | keys_are_there(["queue", "send", "network", "server", "deliver"]))
    and (.top.files | type == "array") and (.losses | type == "object")'
  holds "the manifest has a record of each action, and nothing else" "$dir/manifest.json" \
    '[.[].action] | sort == ($ARGS.positional | sort)' --args "$@"
  holds "each record says what was run, how it ended, how long it took and what it left" "$dir/manifest.json" '
    all(.[]; (.command | type == "string" and . != "") and (.status | IN("ok", "failed", "timeout", "truncated"))
      and (.seconds, .bytes | type == "number") and (.truncated | type == "boolean")
      and (.status == "ok" or .error != null or .exit_code != null or .truncated))'
  is "every file that the manifest names is there, of that size" \
    "$(jq -r '.[] | select(.file) | "\(.file) \(.bytes)"' "$dir/manifest.json" | sort)" \
    "$(cd "$dir" && stat -c '%n %s' -- *.txt | sort)"
  holds_all "events.jsonl has slow operations of the mount alone" "$dir/events.jsonl" \
    '.mountpoint == $mount and .duration_ms >= 150' --arg mount "$mount"
  holds_all "recorder.jsonl is one operation a line" "$dir/recorder.jsonl" \
    'all(.time, .operation, .mountpoint; type == "string") and (.duration_ms | type == "number")'
  is "recorder.jsonl has fast operations from before" \
    "$(jq -n --slurpfile incident "$dir/incident.json" 'first(inputs | select(.time < $incident[0].window.from and .duration_ms < 150)) | true' "$dir/recorder.jsonl")" true
  matches "report.html is a page" "$(< "$dir/report.html")" '<!doctype html>*</style>*'
}

# check_output_dir DIR: checks that only root can read the directory and that it holds no partial file.
check_output_dir() {
  is "the directories are ours alone" "$(stat -c '%a %u' "$1" "$1/incidents")" $'700 0\n700 0'
  is "so are the bundles, and nothing else is there" \
    "$(find "$1/incidents" -mindepth 1 ! \( -name '*.tar.zst' -perm 600 -type f \))" ''
}
