# shellcheck shell=bash
# Shared by the benchmarks: a private daemon, alternating runs with and without the daemon, and the kernel's statistics of BPF programs.
set -euo pipefail
# shellcheck source=../scripts/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"

program=bench/$(basename "$0")
plumbline=${PLUMBLINE:-$top/target/release/plumbline}
slowfs=${SLOWFS:-$top/target/release/slowfs}
[ "$(id -u)" -eq 0 ] || die "benchmarks load BPF programs: run this as root"
[ -x "$plumbline" ] || die "$plumbline is missing: run make build"

work=$(mktemp -d /tmp/plumbline-bench-XXXXXX)
# The private runtime directory gives the daemon its own lock, socket and pinned maps, beside an installed daemon. bpffs allows no dot in names.
export RUNTIME_DIRECTORY=/run/${work#/tmp/}
stats_knob=/proc/sys/kernel/bpf_stats_enabled
stats_before=$(< $stats_knob)
mount -t tmpfs -o mode=0700,size=1g tmpfs "$work"
mkdir "$work/disk"

daemon='' others=()
clean() {
  local pid
  trap '' INT TERM
  echo "$stats_before" > $stats_knob
  for pid in $daemon "${others[@]}"; do kill "$pid" 2> /dev/null || true; done
  wait 2> /dev/null || true
  [ ! -d "$work/share" ] || umount -l "$work/share" 2> /dev/null || true
  umount -l "$work"
  rmdir "$work"
  rm -rf "$RUNTIME_DIRECTORY"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

need() { command -v "$1" > /dev/null || die "missing $1: apt-get install --no-install-recommends $2"; }
in_guest() { [ -e /run/vm/settings ]; }
guest_only() { in_guest || die "this needs an SMB or NFS server in a guest: bench/vm $(basename "$0")"; }

# default_config [SED_EXPRESSION...]: writes the default configuration, with its output on a tmpfs and the changes of SED_EXPRESSIONs.
default_config() {
  local expressions=(-e "s|^output_dir:.*|output_dir: $work/disk|") expression
  for expression; do expressions+=(-e "$expression"); done
  sed "${expressions[@]}" "$top/config/plumbline.yaml" > "$work/plumbline.yaml"
}
default_config

# healthy_config SED_EXPRESSION...: sets thresholds that no operation reaches, because emulation makes normal operations slow.
healthy_config() {
  default_config "$@" 's/_threshold_ms: .*/_threshold_ms: 60000/' 's/ceiling_ms: .*/ceiling_ms: 60000/' 's/threshold: [0-9]*/threshold: 60000/'
}

# vfs_config: enables only the vfs probe, so that its cost is the difference.
vfs_config() { default_config 's/^  smb: true/  smb: false/' 's/^  syscalls: true/  syscalls: false/' 's/^  vfs: [a-z]*/  vfs: true/'; }

# daemon_on [ARGUMENT...]: starts the daemon, and returns when it watches.
daemon_on() {
  local line=''
  [ -p "$work/said" ] || mkfifo "$work/said"
  "$plumbline" run --config "$work/plumbline.yaml" "$@" > "$work/said" 2> "$work/log" &
  daemon=$!
  exec 3< "$work/said"
  while [[ $line != "incidents go to"* ]]; do
    read -r -u 3 line || { cat "$work/log" >&2; die "the daemon ended; its output is above"; }
  done
}
daemon_off() { kill "$daemon"; wait "$daemon" || true; daemon=''; exec 3<&-; }
incidents() { find "$work/disk" -name '*.tar.zst' | wc -l; }

# share_on: mounts a FUSE file system on $work/share. $work/delays sets its delays.
share_on() {
  [ -x "$slowfs" ] || die "$slowfs is missing: run make build"
  mkdir -p "$work/share"
  "$slowfs" "$work/share" --name plumbline-bench --control "$work/delays" &
  others+=($!)
  until mountpoint -q "$work/share"; do kill -0 "${others[-1]}" || die "slowfs ended; its output is above"; sleep 0.1; done
}

# smb_on: starts a Samba server and mounts its share, without cache, so that each read and write is an SMB command.
smb_on() {
  guest_only
  need fio fio
  # shellcheck source=../vm/guest/lib.sh
  . "$top/vm/guest/lib.sh"
  smb_up && smb_mount share /mnt/smb cache=none
}

# smb_load SECONDS: runs the mix on the SMB mount.
smb_load() { mix /mnt/smb "$1"; }

# mix DIRECTORY SECONDS [FIO_OPTION...]: runs a random mix of 4k reads and writes, and prints its operations per second.
mix() {
  fio --name=mix --directory="$1" --size=8m --rw=randrw --bs=4k --numjobs=2 --ioengine=psync --time_based \
    --runtime="$2" --group_reporting --output-format=json "${@:3}" | sed -n '/^{/,$p' | jq '.jobs[0] | .read.iops + .write.iops'
}

# spread: prints median, minimum and maximum of the numbers on standard input.
spread() {
  sort -g | awk '{ v[NR] = $1 } END { printf "%.4g (%.4g to %.4g, %d runs)\n", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2, v[1], v[NR], NR }'
}

# pairs N 'DAEMON ARGUMENTS' COMMAND...: runs COMMAND, which prints a figure, N times without the daemon and N times with it. The
# order alternates, so that other load affects both. Writes lines of both figures, without and with, to $work/pairs.
pairs() {
  local n without with arguments
  read -r -a arguments <<< "$2"
  : > "$work/pairs"
  for ((n = 0; n < $1; n++)); do
    if ((n % 2)); then daemon_on "${arguments[@]}"; with=$("${@:3}"); daemon_off; without=$("${@:3}")
    else without=$("${@:3}"); daemon_on "${arguments[@]}"; with=$("${@:3}"); daemon_off
    fi
    echo "$without $with" | tee -a "$work/pairs" | awk '{ printf "  without %.5g  with %.5g\n", $1, $2 }'
  done
}
ratios() { awk '{ print $2 / $1 }' "$work/pairs" | spread; }
differences() { awk '{ print $2 - $1 }' "$work/pairs" | spread; }

# stats_on: enables the kernel's run-time statistics of BPF programs, for programs_of.
stats_on() {
  need bpftool bpftool
  need jq jq
  bpftool -j prog show | jq -r '.[] | "\(.id) \(.name)"' > "$work/names"
  echo 1 > $stats_knob
}
stats_off() { echo 0 > $stats_knob; }

# descriptors_of PID: prints the kernel's information on each file descriptor. A descriptor may be closed meanwhile.
descriptors_of() { cat "/proc/$1"/fdinfo/* 2> /dev/null || true; }

# programs_of PID: prints a line for each BPF program of PID: name, nanoseconds, runs. It starts few processes, so that it costs little.
programs_of() {
  descriptors_of "$1" | awk '
    NR == FNR { name[$1] = $2; next }
    $1 == "prog_id:" { id = $2 } $1 == "run_time_ns:" { ns[id] = $2 } $1 == "run_cnt:" { runs[id] = $2 }
    END { for (id in runs) print name[id], ns[id], runs[id] }' "$work/names" -
}

# per_request WHAT PROGRAM COMMAND...: prints the time of each of the daemon's programs while COMMAND runs, and their sum per WHAT. PROGRAM runs once for each WHAT.
per_request() {
  programs_of "$daemon" > "$work/before"
  "${@:3}" > /dev/null
  programs_of "$daemon" > "$work/after"
  awk -v what="$1" -v last="$2" '{ way = NR == FNR ? -1 : 1; ns[$1] += way * $2; runs[$1] += way * $3 }
    END {
      requests = runs[last]
      if (requests < 50) exit 1
      for (name in ns) if (runs[name]) { printf "  %-16s %5.0f ns a run, %.2f runs a request\n", name, ns[name] / runs[name], runs[name] / requests; all += ns[name] }
      printf "ns per %s: %.0f (%d requests)\n", what, all / requests, requests
    }' "$work/before" "$work/after" || die "fewer than 50 events of: $1"
}

# map_bytes PID: prints the kernel memory of all BPF maps of PID.
map_bytes() {
  descriptors_of "$1" | awk '$1 == "memlock:" { bytes = $2 } $1 == "map_id:" { maps[$2] = bytes } END { for (m in maps) sum += maps[m]; print sum }'
}

# cpu_of PID: prints the CPU time in nanoseconds, the clock ticks in user space, and the voluntary switches of all threads.
cpu_of() {
  local task
  for task in "/proc/$1"/task/*; do
    { read -r on_cpu _ < "$task/schedstat" && read -r stat < "$task/stat"; } 2> /dev/null || continue
    read -r -a fields <<< "${stat##*) }"
    echo "$on_cpu ${fields[11]} $(awk '$1 == "voluntary_ctxt_switches:" { print $2 }' "$task/status")"
  done | awk '{ ns += $1; ticks += $2; switches += $3 } END { printf "%.0f %d %d\n", ns, ticks, switches }'
}
