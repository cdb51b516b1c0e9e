#!/usr/bin/env python3
"""follow.py WHAT FILE...: checks the output of `plumbline follow` and prints each error. No output means no error.

nests TREES       each operation was answered within the time of its parent, and its own time is the time that no child covers
perfetto TRACE    the file is a Chrome trace, and the slices of each row nest
same TRACE TREES  both have the same operations the same number of times
traces SPANS TREES  the spans that a collector got are those operations, each below its parent
"""
import collections, json, sys

ROUNDING = 0.005  # ms: each figure is rounded to a microsecond, so a comparison may be off by three


def trees(path):
    return [json.loads(line) for line in open(path)]


def nodes(tree):
    yield tree
    for child in tree["children"]:
        yield from nodes(child)


def covered(tree):
    """Returns how long at least one direct child was in progress during the operation."""
    covered, reached = 0, tree["after_ms"]
    end = reached + tree["duration_ms"]
    for child in sorted(tree["children"], key=lambda child: child["after_ms"]):
        child_end = min(child["after_ms"] + child["duration_ms"], end)
        covered += max(0, child_end - max(child["after_ms"], reached))
        reached = max(reached, child_end)
    return covered


def nests(path):
    for tree in trees(path):
        for above in nodes(tree):
            begin, end = above["after_ms"], above["after_ms"] + above["duration_ms"]
            for child in above["children"]:
                # A request may be released later, so count only its phases.
                phases = (child["queue_ms"] or 0) + (child["wire_ms"] or 0)
                if child["after_ms"] < begin - ROUNDING or child["after_ms"] + (phases or child["duration_ms"]) > end + ROUNDING:
                    yield f"{child['operation']} of {child['after_ms']}+{child['duration_ms']} is not in {above['operation']} of {begin} to {end}"
            if above["children_count"] != len(above["children"]):
                yield f"{above['operation']} has {above['children_count']} below it, of which {len(above['children'])} are there"
            if abs(above["own_ms"] + covered(above) - above["duration_ms"]) > ROUNDING * (1 + len(above["children"])):
                yield f"{above['operation']} of {above['duration_ms']} has {above['own_ms']} of its own, and {covered(above)} is below it"


def slices(path):
    trace = json.load(open(path))
    assert trace["otherData"]["plumbline"] and trace["displayTimeUnit"] == "ms"
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def perfetto(path):
    rows = collections.defaultdict(list)
    for one in slices(path):
        if not {"name", "cat", "ts", "dur", "pid", "tid", "args"} <= set(one):
            yield f"a slice has {sorted(one)}"
        rows[one["pid"], one["tid"]].append(one)
    if not rows:
        yield "there is no slice"
    for row in rows.values():
        row.sort(key=lambda one: (one["ts"], -one["dur"]))
        above = []
        for one in row:
            while above and above[-1]["ts"] + above[-1]["dur"] <= one["ts"] + 0.0005:
                above.pop()
            if above and one["ts"] + one["dur"] > above[-1]["ts"] + above[-1]["dur"] + 0.0005:
                yield f"{one['name']} at {one['ts']} for {one['dur']} ends after {above[-1]['name']} at {above[-1]['ts']} for {above[-1]['dur']}"
            above.append(one)


def operations(path):
    of_trees = [node for tree in trees(path) for above in nodes(tree) for node in [above, *above.get("meanwhile", [])]]
    return collections.Counter(f"{node['probe']} {node['operation']}" for node in of_trees)


def differences(one, other):
    for name in sorted(set(one) | set(other)):
        if one[name] != other[name]:
            yield f"{name}: {one[name]}, and {other[name]}"


def same(trace, path):
    of_trace = collections.Counter(f"{one['cat']} {one['name']}" for one in slices(trace) if one["cat"] != "phase")
    yield from differences(of_trace, operations(path))


def value(attribute):
    return next(iter(attribute["value"].values()))


def traces(received, path):
    spans = []
    for line in open(received):
        if line.startswith('{"resourceSpans'):
            for resource in json.loads(line)["resourceSpans"]:
                named = {one["key"]: value(one) for one in resource["resource"]["attributes"]}
                if named["service.name"] != "plumbline" or not named["host.name"]:
                    yield f"the resource is {named}"
                spans += [span for scope in resource["scopeSpans"] for span in scope["spans"]]
    by_id = {(span["traceId"], span["spanId"]): span for span in spans}
    if len(by_id) != len(spans):
        yield f"{len(spans)} spans have {len(by_id)} ids"
    found = collections.Counter()
    for span in spans:
        named = {one["key"]: value(one) for one in span.get("attributes", [])}
        if "plumbline.protocol" in named:
            found[f"{named['plumbline.protocol']} {span['name']}"] += 1
        parent = span.get("parentSpanId")
        if parent:
            above = by_id.get((span["traceId"], parent))
            if not above:
                yield f"{span['name']} is below a span that is not there"
            elif "plumbline.meanwhile" not in named and (int(span["startTimeUnixNano"]) < int(above["startTimeUnixNano"]) or int(span["endTimeUnixNano"]) > int(above["endTimeUnixNano"])):
                yield f"{span['name']} is not within {above['name']}"
    tops = sum(1 for span in spans if not span.get("parentSpanId"))
    if tops != len({span["traceId"] for span in spans}) or tops != len(trees(path)):
        yield f"{tops} first spans, {len({span['traceId'] for span in spans})} traces, {len(trees(path))} trees"
    yield from differences(found, operations(path))


wrong = list(globals()[sys.argv[1]](*sys.argv[2:]))
print("; ".join(wrong[:5]))
