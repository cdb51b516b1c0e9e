"""inspect MS: accepts each packet of NFQUEUE 0 after MS milliseconds, as a program that inspects packets would. The delays overlap. Prints `inspecting`."""

import collections
import select
import socket
import struct
import sys
import time

NETFILTER, QUEUE = 12, 3 << 8  # NETLINK_NETFILTER; messages of the queue: packet 0, verdict 1, configuration 2
held = float(sys.argv[1]) / 1000
link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETFILTER)
link.bind((0, 0))


def attribute(kind, data):
    return struct.pack("<HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def send(kind, flags, family, body):
    link.send(struct.pack("<IHHIIBBH", 20 + len(body), QUEUE | kind, flags, 0, 0, family, 0, 0) + body)


def configure(kind, data):
    send(2, 5, socket.AF_INET, attribute(kind, data))
    error = struct.unpack_from("<i", link.recv(65536), 16)[0]
    if error:
        sys.exit(f"the queue is refused: {error}")


configure(1, struct.pack(">BBH", 1, 0, socket.AF_INET))  # bind
configure(2, struct.pack(">IB", 0, 1))  # do not copy the packets' content
configure(3, struct.pack(">I", 4096))  # maximum queue length
print("inspecting", flush=True)


def numbers(data):
    """Yields the packet ids in these netlink messages."""
    at = 0
    while at + 16 <= len(data):
        length, kind = struct.unpack_from("<IH", data, at)
        inner = at + 20
        while kind == QUEUE and inner < at + length:
            size, what = struct.unpack_from("<HH", data, inner)
            if what & 0x3FFF == 1:
                yield data[inner + 4 : inner + 8]
                break
            inner += size + 3 & ~3
        at += length + 3 & ~3


waiting = collections.deque()
poll = select.poll()
poll.register(link, select.POLLIN)
while True:
    while waiting and waiting[0][0] <= time.monotonic():
        send(1, 1, socket.AF_UNSPEC, attribute(2, struct.pack(">I", 1) + waiting.popleft()[1]))  # NF_ACCEPT
    if poll.poll(max(0, waiting[0][0] - time.monotonic()) * 1000 + 0.1 if waiting else None):
        due = time.monotonic() + held
        waiting.extend((due, number) for number in numbers(link.recv(65536)))
