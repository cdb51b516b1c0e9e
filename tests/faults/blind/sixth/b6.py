#!/usr/bin/python3 -ISu
"""Agents for the scenarios: b6.py KIND ...  Each reads its settings from a file in /dev/shm: "MS SERIAL HOLD", 7 columns each.

  nfq CONTROL        accepts the packets of NFQUEUE 0 of this network namespace, each after MS (SERIAL: one behind the other), none while HOLD
  tun CONTROL IF     the same with packets that are routed into the tun device IF: they go on with mark 7
  tdblock CONTROL F  while HOLD: keeps the chains of the TDB file F locked for MS, and free for SERIAL ms
  cachefiles DIR     binds /dev/cachefiles to DIR
"""
import collections
import fcntl
import mmap
import os
import select
import socket
import struct
import sys
import time


class Control:
    def __init__(self, name):
        path = f"/dev/shm/{name}"
        with open(path, "w") as file:
            file.write("%7d %7d %7d\n" % (0, 0, 0))
        self.map = mmap.mmap(os.open(path, os.O_RDWR), 24)

    def __call__(self):
        return [int(word) for word in self.map[:].split()]


def serve(control, fd, receive, release):
    """receive() gives items, release(item) sends one on."""
    waiting, last = collections.deque(), 0.0
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while True:
        ms, serial, hold = control()
        now = time.monotonic()
        while waiting and not hold and waiting[0][0] <= now:
            release(waiting.popleft()[1])
        timeout = 10 if hold else max(0, waiting[0][0] - now) * 1000 + 0.05 if waiting else 1000
        if not poll.poll(timeout):
            continue
        ms, serial, hold = control()
        now = time.monotonic()
        for item in receive():
            due = (max(now, last) if serial else now) + ms / 1000
            # what came before is not overtaken
            last = due = max(due, waiting[-1][0] if waiting else 0)
            if due <= now and not hold and not waiting:
                release(item)
            else:
                waiting.append((due, item))


def attribute(kind, data):
    return struct.pack("<HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def nfq(name):
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
    link.bind((0, 0))
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    link.setsockopt(270, 5, 1)  # NETLINK_NO_ENOBUFS

    def send(kind, flags, family, body):
        payload = struct.pack("<BBH", family, 0, 0) + body
        link.send(struct.pack("<IHHII", 16 + len(payload), 3 << 8 | kind, flags, 0, 0) + payload)

    def ask(body):
        send(2, 5, socket.AF_INET, body)
        answer = link.recv(65536)
        kind, = struct.unpack_from("<H", answer, 4)
        error, = struct.unpack_from("<i", answer, 16)
        if kind != 2 or error:
            sys.exit(f"b6.py nfq: {kind} {error}")

    ask(attribute(1, struct.pack(">BBH", 1, 0, socket.AF_INET)))  # bind
    ask(attribute(2, struct.pack(">IB", 0, 1)))  # no payload
    ask(attribute(3, struct.pack(">I", 4096)))

    def receive():
        data = link.recv(65536)
        at = 0
        while at + 16 <= len(data):
            length, kind = struct.unpack_from("<IH", data, at)
            if kind == 3 << 8:
                inner = at + 20
                while inner < at + length:
                    size, what = struct.unpack_from("<HH", data, inner)
                    if what & 0x3FFF == 1:
                        yield data[inner + 4 : inner + 8]
                        break
                    inner += size + 3 & ~3
            at += length + 3 & ~3

    def release(item):
        send(1, 1, socket.AF_UNSPEC, attribute(2, struct.pack(">I", 1) + item))

    serve(Control(name), link.fileno(), lambda: list(receive()), release)


def tun(name, interface):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH14x", interface.encode(), 0x1001))
    out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    out.setsockopt(socket.SOL_SOCKET, 36, 7)  # SO_MARK

    def receive():
        items = []
        try:
            while len(items) < 64:
                items.append(os.read(fd, 2048))
        except BlockingIOError:
            pass
        except OSError:  # the device is down
            time.sleep(0.01)
        return [item for item in items if item[0] >> 4 == 4]

    def release(item):
        try:
            out.sendto(item, (socket.inet_ntoa(item[16:20]), 0))
        except OSError as error:
            print(f"b6.py tun: {error}", file=sys.stderr)

    serve(Control(name), fd, receive, release)


def tdblock(name, path):
    control = Control(name)
    fd = os.open(path, os.O_RDWR)
    while True:
        ms, free, hold = control()
        if hold:
            fcntl.lockf(fd, fcntl.LOCK_EX, 0, 168)
            time.sleep(ms / 1000)
            fcntl.lockf(fd, fcntl.LOCK_UN, 0, 168)
            time.sleep(free / 1000)
        else:
            time.sleep(0.05)


def cachefiles(folder):
    fd = os.open("/dev/cachefiles", os.O_RDWR)
    for word in (f"dir {folder}", "tag b6", "bind"):
        os.write(fd, word.encode())
    while True:
        time.sleep(1000)


def main():
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5))
    except OSError:
        pass
    globals()[sys.argv[1]](*sys.argv[2:])


if __name__ == "__main__":
    main()
