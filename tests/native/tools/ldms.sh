# shellcheck shell=bash
# Shared by the tests of the LDMS plugin: the plugin, built with LDMS_PREFIX, and ldmsd. No distribution has LDMS (docs/ldms.md).
# shellcheck disable=SC2154 # $tools, $work and $output are lib.sh's

[ -n "${LDMS_PREFIX:-}" ] || skip_all "LDMS_PREFIX is not set: it says where LDMS 4.5 is installed, which is in no distribution (docs/ldms.md)"
plugin=$(realpath "$tools/../../../ldms")
said=$(make -s -C "$plugin" OUT="$work/plugin" LDMS_PREFIX="$LDMS_PREFIX" 2>&1)
is "the plugin is built, without a warning" "$? $said" "0 "
PYTHONPATH=$(echo "$LDMS_PREFIX"/lib/python3*/site-packages)
export PYTHONPATH LD_LIBRARY_PATH=$LDMS_PREFIX/lib ZAP_LIBPATH=$LDMS_PREFIX/lib/ovis-ldms
export LDMSD_PLUGIN_LIBPATH=$work/plugin:$LDMS_PREFIX/lib/ovis-ldms
python3 -c 'from ovis_ldms import ldms' || skip_all "LDMS in $LDMS_PREFIX was built without its Python module"
# shellcheck disable=SC2034 # for the tests
pins=/sys/fs/bpf/${RUNTIME_DIRECTORY##*/}

ldmsds=() # processes that must outlive the test
# start_ldmsd NAME PORT MEMORY CONFIGURATION...: starts an ldmsd with its log in $work/NAME.log and its process id in $ldmsd.
start_ldmsd() {
  local name=$1 port=$2 memory=$3 file configuration=()
  for file in "${@:4}"; do configuration+=(-c "$file"); done
  "$LDMS_PREFIX/sbin/ldmsd" -F -x "sock:$port:127.0.0.1" -a none -m "$memory" "${configuration[@]}" -r "$work/$name.pid" > "$work/$name.log" 2>&1 &
  ldmsd=$!
  started+=("$ldmsd") ldmsds+=("$ldmsd")
  within 30 listens "$port" || give_up "ldmsd $name listens: $(tail -n 3 "$work/$name.log")"
}
listens() { [ -n "$(ss -Htln "sport = :$1")" ]; }
# look PORT [SET]: prints one set or all sets of the ldmsd at PORT.
look() { timeout 20 "$tools/ldms_sets.py" "$@" 2> /dev/null; }
# values METRIC PORT [SET]: prints the metric of each set.
values() { look "${@:2}" | awk -v name="$1" '$1 == "metric" && $2 == name { print $3 }'; }
# all_records PORT SET: prints probe, operation, mount, mount point, source, type, calls, nanoseconds, bytes, errors, buckets and sizes of each
# record of system calls on all mounts. Empty names are "".
all_records() { look "$@" | awk '$1 == "record" && $2 == "operations" && $3 == "\"syscalls\"" { sub(/^record operations /, ""); print }'; }
# records PORT SET: prints operation, mount point, source, type, calls, errors and bytes of each record of the test's mounts.
records() { all_records "$@" | tr -d '"' | WORK=$work/ awk 'index($4, ENVIRON["WORK"]) == 1 { print $2, $4, $5, $6, $7, $10, $9 }' | sort; }
# expected MADE: prints the same for the calls that tools/calls made.
# shellcheck disable=SC2154
expected() { jq -r --arg share "$share" '.[] | "\(.operation) \($share) a-share fuse.slowfs \(.count) \(.errors) \(.bytes)"' "$1" | sort; }
# mount_foreign: makes a FUSE mount in another mount namespace, as any host may have, with a record for each of its operations.
mount_foreign() {
  mkdir "$work/foreign"
  unshare --mount --propagation private "$SLOWFS" "$work/foreign" --name foreign --control "$control" &
  foreign=$!
  started+=("$foreign")
  within 10 nsenter --mount --target "$foreign" mountpoint -q "$work/foreign" || give_up "a foreign FUSE mount is there"
}
# use_foreign: uses this mount while the daemon runs.
use_foreign() { nsenter --mount --target "$foreign" "$tools/calls" every_call "$work/foreign" > /dev/null; }
# announced BUNDLE PRODUCER: prints the expected message of that bundle.
announced() {
  incident "$1" --arg producer "$2" --arg path "$1" '{id, host: .host.name, detected, name: .anomaly.name, type: .anomaly.type, probe: .anomaly.probe,
    observed: .anomaly.observed, layer: .verdict.layer, confidence: .verdict.confidence, because: .verdict.because, operations,
    mountpoint: .top.mounts[0].mountpoint, server: .top.mounts[0].server, closed, producer: $producer, path: $path}'
}
