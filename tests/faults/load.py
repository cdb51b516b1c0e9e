#!/usr/bin/python3 -ISu
"""Generates load for the corpus of faults: reads commands from standard input, one per line, and prints `done` after each. The process stays alive, so that
no program must be loaded in the middle of a scenario.

  run NAME KIND JOBS BLOCK RATE DIR   starts JOBS processes called NAME; each does KIND RATE times a second, with BLOCK bytes
  stop [NAME]                         stops the processes called NAME, or all
  hog PRIORITY ON_MS OFF_MS           starts a real-time process that keeps the processor busy
  flood ADDRESS BITS_PER_SECOND       sends datagrams of 1472 bytes
  drop FILE...                        drops the cached pages of each FILE
  favour PRIORITY COMM...             makes processes and threads whose names begin with COMM real-time; 0: normal again
"""
import glob
import mmap
import os
import signal
import socket
import sys
import time

running = {}


def name_self(name):
    with open("/proc/self/comm", "w") as comm:
        comm.write(name)


def paced(rate):
    """Yields at most RATE times a second. Delays are not made up for."""
    due = time.monotonic()
    while True:
        yield
        due = max(due + 1 / rate, time.monotonic())
        time.sleep(max(0, due - time.monotonic()))


def direct(path, block, flags):
    return os.open(path, flags | os.O_CREAT | os.O_DIRECT, 0o644), mmap.mmap(-1, block)


def prepare(path, size):
    """Creates a file to read, on the server: /mnt/nfs/a is /srv/nfs/a there."""
    at_server = path.replace("/mnt/", "/srv/", 1)
    if not os.path.isdir(os.path.dirname(at_server)):
        at_server = path  # CephFS
    if not os.path.exists(at_server) or os.path.getsize(at_server) < size:
        with open(at_server, "wb") as file:
            file.write(os.urandom(4096) * (size // 4096))
        os.sync()


def write(path, block, rate):
    fd, data = direct(path, block, os.O_WRONLY)
    at = 0
    for _ in paced(rate):
        os.pwritev(fd, [data], at)
        at = (at + block) % max(block * 4, 1 << 18)


def read(path, block, rate):
    size = max(block, 1 << 18 if path[-2:].isdigit() else 2 << 20)  # only the first ten jobs have files large enough to read from the disk
    prepare(path, size)
    fd, data = direct(path, block, os.O_RDWR)
    at = 0
    for _ in paced(rate):
        os.preadv(fd, [data], at)
        at = (at + 37 * block) % size  # not sequential, to prevent readahead on the server


def mixed(path, block, rate):
    size = max(block, 1 << 18 if path[-2:].isdigit() else 2 << 20)  # only the first ten jobs have files large enough to read from the disk
    prepare(path, size)
    fd, data = direct(path, block, os.O_RDWR)
    at = 0
    for n, _ in enumerate(paced(rate)):
        (os.preadv if n % 2 else os.pwritev)(fd, [data], at)
        at = (at + 37 * block) % size  # not sequential, to prevent readahead on the server


def meta(path, block, rate):
    """Metadata operations like those of a build: create, look up, rename, remove."""
    for n, _ in enumerate(paced(rate)):
        fd = os.open(f"{path}.{n % 8}", os.O_CREAT | os.O_WRONLY, 0o644)
        if block:
            os.write(fd, bytes(block))
        os.close(fd)
        os.path.exists(f"{path}.h{n % 8}")
        os.rename(f"{path}.{n % 8}", f"{path}.o")
        os.stat(f"{path}.o")
        os.unlink(f"{path}.o")


def stat(path, block, rate):
    for n, _ in enumerate(paced(rate)):
        os.path.exists(f"{path}.missing{n}")


def backup(path, block, rate):
    """Buffered writes of one file after the other, each followed by fsync."""
    for n, _ in enumerate(paced(rate)):
        with open(f"{path}.{n % 4}", "wb", buffering=0) as file:
            for _ in range(4):
                file.write(bytes(block))
            os.fsync(file.fileno())


def cold(path, block, rate):
    """Buffered reads of data that this host has not cached."""
    prepare(path, 2 << 20)
    fd = os.open(path, os.O_RDWR)
    at = 0
    for _ in paced(rate):
        if at == 0:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.pread(fd, block, at)
        at = (at + block) % (2 << 20)


def bursts(path, block, rate):
    fd, data = direct(path, block, os.O_WRONLY)
    while True:
        for n in range(int(rate)):
            os.pwritev(fd, [data], n % 8 * block)
        time.sleep(2)


def dirty(path, block, rate):
    """Buffered writes without fsync."""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    for n, _ in enumerate(paced(rate)):
        os.pwrite(fd, bytes(block), n * block % (8 << 20))


def synced(path, block, rate):
    """Buffered writes to an open file with O_SYNC: each has reached the server when it returns."""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_SYNC)
    for n, _ in enumerate(paced(rate)):
        os.pwrite(fd, bytes(block), n * block % (1 << 20))


def opened(path, block, rate):
    """Each read opens the file, and finds no cached data on this host."""
    prepare(path, 2 << 20)
    for n, _ in enumerate(paced(rate)):
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(fd, block, n * block % (1 << 20))
        os.close(fd)


KINDS = {f.__name__: f for f in (write, read, mixed, meta, stat, backup, cold, bursts, dirty, synced, opened)}


def child(name, work):
    pid = os.fork()
    if pid:
        running.setdefault(name, []).append(pid)
        return
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        work()
    except OSError as error:
        print(f"load {name}: {error}", file=sys.stderr)
    os._exit(0)


def job(name, kind, number, block, rate, directory):
    name_self(name)
    with open("/sys/fs/cgroup/load/cgroup.procs", "w") as procs:
        procs.write("0")
    while True:
        try:
            KINDS[kind](f"{directory}/{kind}{number}", block, rate)
        except OSError as error:
            print(f"load {name}: {error}", file=sys.stderr)
            time.sleep(0.5)


def hog(priority, on, off):
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    name_self("hog")
    while True:
        end = time.monotonic() + on / 1000
        while time.monotonic() < end:
            pass
        time.sleep(off / 1000)


def flood(address, bits):
    name_self("flood")
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    data = bytes(1472)
    for _ in paced(bits / 8 / 1500 / 4):
        for _ in range(4):
            try:
                out.sendto(data, (address, 9))
            except OSError:
                pass


def favour(priority, names):
    policy = os.SCHED_FIFO if priority else os.SCHED_OTHER
    # Include threads, because smbd reads and writes in separate threads.
    for thread in glob.glob("/proc/[0-9]*/task/*"):
        try:
            with open(f"{thread}/comm") as comm:
                if comm.read().startswith(names):
                    os.sched_setscheduler(int(os.path.basename(thread)), policy, os.sched_param(priority))
        except OSError:
            pass  # the thread has ended, or its policy cannot be changed


def stop(name):
    pids = running.pop(name, [])
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)


def main():
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "run":
            name, kind, jobs, block, rate, directory = rest
            for n in range(int(jobs)):
                child(name, lambda n=n: job(name, kind, n, int(block), float(rate), directory))
        elif word == "stop":
            for name in rest or list(running):
                stop(name)
        elif word == "hog":
            child("hog", lambda: hog(*map(int, rest)))
        elif word == "flood":
            child("flood", lambda: flood(rest[0], int(rest[1])))
        elif word == "drop":
            for path in filter(os.path.exists, rest):
                fd = os.open(path, os.O_RDONLY)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(fd)
        elif word == "favour":
            favour(int(rest[0]), tuple(rest[1:]))
        print("done")


main()
