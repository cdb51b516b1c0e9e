"""Prints the BPF objects in the kernel. bpftool prints them, too, but each call takes half a second of a guest's time, and the tests
poll.

bpf.py in-flight [PROBE]   how many operations in the maps `inflight` have not ended, of all probes or of PROBE (enum probe_id of bpf/event.h)
bpf.py unfinished PROBE    how many operations the probe has counted as started but not as finished
bpf.py entries MAP         how many entries all maps of that name have
bpf.py values MAP          each value of a map, in hexadecimal
bpf.py all                 all programs, links and maps of the kernel, by number and name
"""

import ctypes
import os
import platform
import struct
import sys

BPF = {"x86_64": 321, "aarch64": 280}[platform.machine()]  # the number of bpf(2)
# include/uapi/linux/bpf.h
LOOKUP, NEXT_KEY, INFO = 1, 4, 15
NEXT_PROGRAM, NEXT_MAP, PROGRAM, MAP, NEXT_LINK = 11, 12, 13, 14, 31
PERCPU_ARRAY, ARRAY = 6, 2
libc = ctypes.CDLL(None, use_errno=True)


def call(command, attributes):
    """Returns the result of bpf(2), or None for ENOENT, and the attributes as the kernel has left them."""
    attributes = ctypes.create_string_buffer(attributes.ljust(72, b"\0"))
    result = libc.syscall(BPF, command, attributes, len(attributes))
    if result < 0 and ctypes.get_errno() != 2:
        error = ctypes.get_errno()
        raise OSError(error, f"bpf command {command}: {os.strerror(error)}")
    return None if result < 0 else result, attributes.raw


def numbers(command):
    """Yields the ids that a *_GET_NEXT_ID command returns."""
    number = 0
    while True:
        found, after = call(command, struct.pack("=I", number))
        if found is None:
            return
        number = struct.unpack_from("=I", after, 4)[0]
        yield number


def infos(following, by_number):
    """Yields the id, descriptor and bpf_*_info of each program or map that still exists."""
    for number in numbers(following):
        descriptor, _ = call(by_number, struct.pack("=I", number))
        if descriptor is None:
            continue
        info = ctypes.create_string_buffer(88)
        call(INFO, struct.pack("=IIQ", descriptor, len(info), ctypes.addressof(info)))
        yield number, descriptor, info.raw
        os.close(descriptor)


def maps(name):
    """Yields the descriptor, type, key size, value size and maximum number of entries of each map of that name."""
    for _, descriptor, info in infos(NEXT_MAP, MAP):
        kind, _, key, value, most = struct.unpack_from("=IIIII", info)
        if text(info, 24) == name:
            yield descriptor, kind, key, value, most


def text(info, at):
    """Returns a name in a bpf_*_info: at offset 24 for a map, at offset 64 for a program."""
    return info[at : at + 16].split(b"\0")[0].decode()


def keys(descriptor, kind, size, most):
    """Yields all keys of an array, or the present keys of another map."""
    if kind in (ARRAY, PERCPU_ARRAY):
        yield from (struct.pack("=I", index) for index in range(most))
        return
    key, after = None, ctypes.create_string_buffer(size)
    while True:
        before = ctypes.create_string_buffer(key, size) if key else None
        address = ctypes.addressof(before) if before else 0
        if call(NEXT_KEY, struct.pack("=IIQQ", descriptor, 0, address, ctypes.addressof(after)))[0] is None:
            return
        key = after.raw
        yield key


def entries(name):
    for descriptor, kind, key_size, value_size, most in maps(name):
        processors = os.sysconf("SC_NPROCESSORS_CONF") if kind == PERCPU_ARRAY else 1
        value = ctypes.create_string_buffer((value_size + 7 & ~7) * processors)
        for key in keys(descriptor, kind, key_size, most):
            here = ctypes.create_string_buffer(key, key_size)
            addresses = struct.pack("=IIQQ", descriptor, 0, ctypes.addressof(here), ctypes.addressof(value))
            if call(LOOKUP, addresses)[0] is not None:
                yield key, value.raw[: value_size if kind != PERCPU_ARRAY else None]


def in_flight(probe=None):
    """Counts operations. In struct flight, `start` is at offset 0 and `probe` at 70. Entries that are still being filled in count."""
    values = (value for _, value in entries("inflight"))
    return sum(1 for value in values if value[:8] != bytes(8) and probe in (None, value[70]))


def unfinished(probe):
    """COUNT_STARTED is 0, COUNT_FINISHED 1. At offset 12 of struct maps_layout is the number of counters of a probe."""
    counters = struct.unpack_from("=I", next(value for _, value in entries("version")), 12)[0]
    sums = {struct.unpack("=I", key)[0]: sum(struct.unpack(f"={len(value) // 8}Q", value)) for key, value in entries("counters")}
    return sums[probe * counters] - sums[probe * counters + 1]


def all_objects():
    yield from (f"program {number} {text(info, 64)}" for number, _, info in infos(NEXT_PROGRAM, PROGRAM))
    yield from (f"map {number} {text(info, 24)}" for number, _, info in infos(NEXT_MAP, MAP))
    yield from (f"link {number}" for number in numbers(NEXT_LINK))


command, *rest = sys.argv[1:] or ["help"]
if command == "in-flight":
    print(in_flight(*map(int, rest)))
elif command == "unfinished":
    print(unfinished(int(rest[0])))
elif command == "entries":
    print(sum(1 for _ in entries(rest[0])))
elif command == "values":
    for _, value in entries(rest[0]):
        print(value.hex())
elif command == "all":
    print("\n".join(all_objects()))
else:
    sys.exit(__doc__)
