#!/usr/bin/env python3
"""ldms_rows.py FOLDER last|dark|whole: reads the rows that LDMS's store_csv has written for the sets of Plumbline's samplers.

last: producer, component, mount point, operation, calls, errors and bytes of each producer's newest sample that is followed by another one and thus complete.
dark: the producers that have a row without a probe.
whole: 'whole', or the errors in the rows.
"""
import csv, glob, sys

TIME = ["Time", "Time_usec", "producer", "component_id"]
COLUMNS = {
    "operations": TIME
    + "job_id app_id generation probe operation mount count errors bytes sum_ns fstype mountpoint source".split(),
    "histograms": TIME
    + "generation probe operation mount".split()
    + [f"buckets{i}" for i in range(114)]
    + [f"sizes{i}" for i in range(32)],
    "probes": TIME + "generation left_out probe started finished inflight_full histograms_full".split(),
}


def read(folder, schema):
    """Returns rows as dictionaries. Each file has a heading. The last line may be half-written."""
    rows = []
    for path in sorted(glob.glob(f"{folder}/plumbline_{schema}.*")):
        with open(path, encoding="utf-8", newline="") as file:
            lines = [line.removeprefix("#") for line in file if line.endswith("\n")]
        heading, *fields = csv.reader(lines)
        if heading != COLUMNS[schema]:
            sys.exit(f"{path}: its columns are {heading}")
        for row in fields:
            if len(row) != len(heading):
                sys.exit(f"{path}: {len(row)} fields below a heading of {len(heading)}: {row}")
            rows.append(dict(zip(heading, row)))
    return rows


def samples(rows):
    """Returns {producer: {time: [row...]}} without the rows of empty lists, which have no probe."""
    of = {}
    for row in rows:
        if row["probe"]:
            of.setdefault(row["producer"], {}).setdefault(float(row["Time"]), []).append(row)
    return of


def last(folder):
    for producer, of in samples(read(folder, "operations")).items():
        for row in of[sorted(of)[-2]] if len(of) > 1 else []:
            yield " ".join([producer, *(row[name] for name in ("component_id", "mountpoint", "operation", "count", "errors", "bytes"))])


def dark(folder):
    for schema in COLUMNS:
        yield {row["producer"] for row in read(folder, schema) if row["generation"] == "0" and row["probe"] == ""}


def key(row):
    return row["probe"], row.get("operation"), row.get("mount")


def wrong(folder):
    """Yields the errors in the rows. Samples must be complete, in order, and without duplicates."""
    if any(row["generation"] != "0" and not row["probe"] for row in read(folder, "probes")):
        yield "there is a row of an empty list of probes, though a daemon runs"
    operations, histograms, probes = (samples(read(folder, schema)) for schema in COLUMNS)
    if not operations.keys() == histograms.keys() == probes.keys():
        yield f"producers differ: {list(operations)}, {list(histograms)}, {list(probes)}"
        return
    for producer, of in operations.items():
        if not of.keys() == histograms[producer].keys():
            yield f"{producer}: operations and histograms are of different samples"
            continue
        before = {}
        for time in sorted(of):
            at = f"{producer} at {time}"
            now = {key(row): row for row in of[time]}
            bars = {key(row): row for row in histograms[producer][time]}
            if len(now) != len(of[time]) or len(bars) != len(histograms[producer][time]):
                yield f"{at}: a row is there twice"
            if now.keys() != bars.keys() or not before.keys() <= now.keys():
                yield f"{at}: rows are missing: of the sample before {before.keys() - now.keys()}, of histograms {now.keys() - bars.keys()}, of operations {bars.keys() - now.keys()}"
            for name, row in now.items():
                if any(int(row[c]) < int(before.get(name, row)[c]) for c in ("count", "errors", "bytes", "sum_ns")):
                    yield f"{at}: counts of {name} fall"
                if sum(int(bars[name][f"buckets{i}"]) for i in range(114)) != int(row["count"]):
                    yield f"{at}: the buckets of {name} are not its count"
                if row["component_id"] != producer.removeprefix("node"):
                    yield f"{at}: component {row['component_id']}"
            before = now
        names = None
        for time, rows in probes[producer].items():
            now = sorted(row["probe"] for row in rows)
            if now != (names or now) or len(set(now)) != len(now) or "syscalls" not in now:
                yield f"{producer} at {time}: probes {now}"
            names = now
            if any(row[c] != "0" for row in rows for c in ("left_out", "inflight_full", "histograms_full")):
                yield f"{producer} at {time}: something is lost"
        # Before the first operation, a set has probes and no operations, so there are rows of probes alone.
        if not of.keys() <= probes[producer].keys():
            yield f"{producer}: samples without rows of probes"


def main():
    folder, what = sys.argv[1:]
    if what == "last":
        print("\n".join(sorted(last(folder))))
    elif what == "dark":
        print("\n".join(sorted(set.intersection(*dark(folder)))))
    else:
        print("\n".join(list(wrong(folder))[:10]) or "whole")


main()
