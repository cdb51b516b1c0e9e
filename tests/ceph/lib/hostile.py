"""Clients of libcephfsd that violate the protocol: hostile.py WHAT [COUNT], with the socket in LIBCEPHFSD_SOCKET.

connects   connects and disconnects COUNT times: after the welcome, before it, in the middle of a hello, or after random bytes
version    sends a hello with another version; prints the daemon's answer
scribble   fills the memory that it shares with the daemon with random bytes and rings, COUNT times
flood      submits all slots continuously for COUNT seconds and never reads an answer
crowd      connects COUNT times at once; prints how many were accepted
places     connects at once to COUNT places without a mount; prints how many accepted
options    sets four options of Ceph; prints the results
"""

import array
import mmap
import os
import random
import socket
import struct
import sys
import time

MAGIC = b"libcephP"
CONTROL, SLOTS, MESSAGE = 8192, 16, 8192
SIZE = CONTROL + SLOTS * (MESSAGE + (1 << 20))


def connect():
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.connect(os.environ["LIBCEPHFSD_SOCKET"])
    return client


def welcome(client, version=6, place=0):
    """Returns the status, the memory and the wakeup descriptor. Place 0 is the process in which mounts are prepared."""
    client.send(MAGIC + struct.pack("<IQ", version, place))
    packet, control, _, _ = client.recvmsg(256, socket.CMSG_SPACE(12))
    fds = array.array("i")
    for _, _, data in control:
        fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    status = struct.unpack_from("<i", packet, 12)[0]
    if status:
        return -status, None, None
    memory = mmap.mmap(fds[0], SIZE)
    os.close(fds[0])
    os.close(fds[2])
    return 0, memory, fds[1]


def connects(count):
    for number in range(count):
        client = connect()
        if number % 4 == 0:
            _, memory, wakeup = welcome(client)
            memory.close()
            os.close(wakeup)
        elif number % 4 == 1:
            client.send(MAGIC)
        elif number % 4 == 2:
            client.send(os.urandom(200))
        client.close()


def version(_):
    print(welcome(connect(), 999)[0])


def submit(memory, wakeup, slot, message, data=0, answer=False):
    """Submits a request as the library does, but without a look at the state of the slot, which may be random."""
    line = 384 + 64 * slot
    struct.pack_into("<IIII", memory, line, 1, len(message), data, int(answer))
    memory[CONTROL + slot * MESSAGE : CONTROL + slot * MESSAGE + len(message)] = message
    struct.pack_into("<Q", memory, 0, 1 << slot)
    os.write(wakeup, struct.pack("<Q", 1))


def scribble(count):
    noise = random.Random(count)
    _, memory, wakeup = welcome(connect())
    for number in range(count):
        if number % 10 == 0:
            memory[0:CONTROL] = noise.randbytes(CONTROL)
            struct.pack_into("<Q", memory, 0, 2**64 - 1)
            os.write(wakeup, struct.pack("<Q", 1))
        operation = noise.choice([*range(1, 13), *range(20, 28), *range(30, 37), *range(40, 48), *range(50, 53), *range(60, 64), 70, 71])
        body = noise.choice([noise.randbytes(noise.randrange(64)), bytes(noise.randrange(64)), struct.pack("<QQ", 1 << 32, 1 << 32) * 4])
        submit(memory, wakeup, noise.randrange(SLOTS), struct.pack("<H", operation) + body, noise.randrange(2**32), number % 2)


def flood(seconds):
    _, memory, wakeup = welcome(connect())
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for slot in range(SLOTS):
            submit(memory, wakeup, slot, struct.pack("<H", 1))
        struct.pack_into("<Q", memory, 0, 2**64 - 1)
        os.write(wakeup, struct.pack("<Q", 1))


def crowd(count):
    clients = [connect() for _ in range(count)]
    print(sum(welcome(client)[0] == 0 for client in clients))


def places(count):
    clients = [connect() for _ in range(count)]
    print(sum(welcome(client, place=number + 1)[0] == 0 for number, client in enumerate(clients)))


def ask(memory, wakeup, message):
    """Returns the result and the first number of the answer."""
    struct.pack_into("<q", memory, 384 + 16, -(2**62))
    submit(memory, wakeup, 0, message)
    while struct.unpack_from("<I", memory, 384)[0] != 3:
        time.sleep(0.001)
    return struct.unpack_from("<q", memory, 384 + 16)[0], struct.unpack_from("<Q", memory, CONTROL)[0]


def options(_):
    client = connect()
    _, memory, wakeup = welcome(client)
    text = lambda words: struct.pack("<H", len(words) + 1) + words + b"\0"
    _, mount = ask(memory, wakeup, struct.pack("<HB", 2, 0))
    pairs = [(b"client_acl_type", b"posix_acl"), (b"log_file", b"/dev/null"), (b"keyring", b"/none"), (b"client_permissions", b"false")]
    print(*(ask(memory, wakeup, struct.pack("<HQ", 4, mount) + text(option) + text(value))[0] for option, value in pairs))


if __name__ == "__main__":
    {f.__name__: f for f in (connects, version, scribble, flood, crowd, places, options)}[sys.argv[1]](int(sys.argv[2]) if len(sys.argv) > 2 else 0)
