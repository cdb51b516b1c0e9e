"""A client of libcephfsd that knows the protocol and misuses it at random: abuse.py CONF SEED SECONDS FOLDER [OPERATION...].

It mounts, holds valid handles, and submits random operations in all slots at once: mostly with handles of the right kind, often with
invalid arguments, and sometimes without waiting for answers. It also releases handles at random. It works in FOLDER and ends without
unmounting. The operations are those that crates/cephfs-proxy/src/wire/operations.rs declares. With OPERATION, it uses only these, on
three names. It prints how many requests were answered.
"""

import os
import pathlib
import random
import re
import socket
import struct
import sys
import time

from hostile import CONTROL, MESSAGE, SLOTS, connect, submit, welcome

DATA = CONTROL + SLOTS * MESSAGE
OPERATIONS = pathlib.Path(__file__).parents[3] / "crates/cephfs-proxy/src/wire/operations.rs"
DECLARED = re.compile(r"^    (\d+) (?:repeatable|once) (\w+)(?:<'a>)? \{ ?(.*?) ?\} -> (.*);$", re.M)
NUMBERS = {"u32": "<I", "i32": "<i", "u64": "<Q", "i64": "<q"}
NAMES = [b"a", b"b", b"c", b"d", b"e", b".", b"..", b"", b"/", b"a/b", b"../..", b"x" * 255, b"x" * 256, b".ceph", b".snap", b"user.a", b"ceph.dir.layout"]
ODD = [0, 1, 2, 4095, 4096, 65536, 1 << 20, 1 << 22, (1 << 31) - 1, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1]
PREPARING = ["Create", "ConfReadFile", "ConfSet", "Init", "SelectFilesystem", "Mount", "Unmount", "Release"]
ANSWERED = 3
# The handles at the start of an answer.
KINDS = {"FoundInode": ["inode"], "Created": ["inode", "file"], "OpenDirectory": ["dir"]}
BRINGS = {"Create": ["mount"], "Identify": ["perms"], "LookupRoot": ["inode"], "LookupInode": ["inode"], "LookupVino": ["inode"], "Open": ["file"]}


def text(words):
    return struct.pack("<H", len(words) + 1) + words + b"\0"


class HasEnded(Exception):
    """The process of the mount has ended."""


class Client:
    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.enter(0)
        self.operations = {}
        for code, name, fields, answer in DECLARED.findall(OPERATIONS.read_text()):
            fields = [field.split(": ") for field in fields.split(", ") if field]
            self.operations[name] = (int(code), fields, BRINGS.get(name, KINDS.get(answer, [])))
        self.answered = 0
        self.released = 0

    def enter(self, place):
        """Connects to a place without any handles, and abandons the place before."""
        self.socket = connect()
        self.place = place
        status, self.memory, self.wakeup = welcome(self.socket, place=place)
        assert status == 0, status
        self.held = {kind: [] for kind in ("mount", "inode", "file", "dir", "perms")}
        self.under_way = {}

    def handle(self, field):
        kind = {"parent": "inode", "new_parent": "inode"}.get(field, field)
        if self.chance.random() < 0.02:
            kind = self.chance.choice(list(self.held))
        held = self.held[kind]
        if not held or self.chance.random() < 0.01:
            return self.chance.choice([0, 1 << 32, self.chance.randrange(1 << 40)])
        # Prefer the first handles, so that the tree below them grows.
        return held[0] if self.chance.random() < 0.3 else self.chance.choice(held[-200:])

    def value(self, field, kind):
        chance = self.chance
        if kind == "Handle":
            return struct.pack("<Q", self.handle(field))
        if kind == "bool":
            return struct.pack("<B", chance.randrange(2))
        if kind.startswith("Option"):
            return b"\0" if chance.random() < 0.5 else b"\1" + text(chance.choice(NAMES))
        if "CStr" in kind:
            return text(b"/".join(chance.choices(NAMES[:9], k=chance.randrange(1, 5))) if field == "path" else chance.choice(NAMES))
        if kind == "Statx":
            return struct.pack("<IIIIIHQQQQQqqqqqqqqQ", *(chance.choice(ODD[:5]) for _ in range(20)))
        size = 64 if "64" in kind else 32
        if field in ("flags", "oflags") and chance.random() < 0.7:
            number = chance.choice([0, 1, 2, os.O_TRUNC | 2, os.O_APPEND | 1, os.O_EXCL | os.O_CREAT | 2, os.O_CREAT | 2, 0o200000, 0o2000000])
        elif field == "mode" and chance.random() < 0.7:
            number = chance.choice([0o100644, 0o755, 0, 0o40755, 0o120777])
        elif field in ("length", "room", "names", "xattrs", "groups", "uid", "gid") and chance.random() < 0.7:
            number = chance.choice([0, 0, 1, 4096, 65536, 1 << 20])
        elif field == "offset" and chance.random() < 0.5:
            number = chance.randrange(1 << 22)
        else:
            number = chance.choice([*ODD, chance.randrange(1 << size)])
        number &= (1 << size) - 1
        return number.to_bytes(size // 8, "little")

    def send(self, slot, name, body=None, data=None):
        code, fields, brings = self.operations[name]
        body = body if body is not None else b"".join(self.value(*field) for field in fields)
        if data is None:
            length = self.chance.choice([0, *ODD[:7]])
        else:
            length = len(data)
            self.memory[DATA + (slot << 20) : DATA + (slot << 20) + length] = data
        submit(self.memory, self.wakeup, slot, struct.pack("<H", code) + body, length)
        self.under_way[slot] = brings

    def take(self, slot):
        """Returns whether the slot is answered, and stores the handles of the answer."""
        line = 384 + 64 * slot
        if struct.unpack_from("<I", self.memory, line)[0] != ANSWERED:
            return False
        result = struct.unpack_from("<q", self.memory, line + 16)[0]
        for index, kind in enumerate(self.under_way.pop(slot)):
            if result >= 0:
                handle = struct.unpack_from("<Q", self.memory, CONTROL + slot * MESSAGE + 8 * index)[0]
                if handle not in self.held[kind]:
                    self.held[kind].append(handle)
        self.answered += 1
        return True

    def ask(self, name, body, data=b""):
        """Makes one request and returns its result. No other request may be in flight."""
        self.send(0, name, body, data)
        until = time.monotonic() + 10
        while not self.take(0):
            if self.is_left():
                raise HasEnded
            if time.monotonic() > until:
                sys.exit(f"no answer to {name}")
            time.sleep(0.0005)
        return struct.unpack_from("<q", self.memory, 384 + 16)[0]

    def is_left(self):
        """Whether the other end has closed the connection."""
        try:
            return self.socket.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

    def mount(self, configuration):
        """Mounts. The process of a mount that nobody has used for a while may end when a client has just come: the client comes again."""
        for _ in range(5):
            try:
                return self.mount_once(configuration)
            except HasEnded:
                self.enter(0)
        sys.exit("five processes ended before they had mounted")

    def mount_once(self, configuration):
        """The first connection prepares the mount and returns its place, the second one uses the mount there."""
        for _ in range(2):
            self.ask("Create", b"\0")
            mount = struct.pack("<Q", self.held["mount"][-1])
            self.ask("ConfReadFile", mount + b"\1", configuration)
            result = self.ask("Mount", mount + b"\0")
            assert result == 0, result
            place = struct.unpack_from("<Q", self.memory, CONTROL)[0]
            if place != self.place:
                self.enter(place)
        for name, body in (("Identify", struct.pack("<III", 0, 0, 0)), ("LookupRoot", mount)):
            result = self.ask(name, body)
            assert result == 0, (name, result)
        return mount

    def release(self):
        """Adds an entry to the ring of releases without checking that the ring has room."""
        held = self.chance.choice([self.held["inode"], self.held["file"], self.held["dir"]])
        if not held:
            return
        count = self.chance.choice([1, 1, 1, 1 << 63 | 1, 1 << 62, 0, (1 << 64) - 1])
        struct.pack_into("<QQ", self.memory, 1408 + 16 * (self.released % 256), self.chance.choice(held), count)
        self.released += 1
        struct.pack_into("<I", self.memory, 256, self.released & 0xFFFFFFFF)

    def abuse(self, seconds, only):
        until = time.monotonic() + seconds
        common = [name for name in self.operations if name not in PREPARING]
        names = only or common * 8 + list(self.operations)
        while time.monotonic() < until:
            for slot in range(SLOTS):
                if slot in self.under_way and not self.take(slot):
                    # Sometimes do not wait.
                    if self.chance.random() < 0.999:
                        continue
                self.send(slot, self.chance.choice(names))
            if self.chance.random() < 0.1:
                self.release()


def main():
    configuration = open(sys.argv[1], "rb").read()
    client = Client(sys.argv[2])
    mount = client.mount(configuration)
    root, perms = (struct.pack("<Q", client.held[kind][0]) for kind in ("inode", "perms"))
    client.held["inode"].clear()
    folder = mount + root + text(sys.argv[4].encode())
    client.ask("Mkdir", folder + struct.pack("<III", 0o755, 0x7FF, 0) + perms)
    client.ask("Lookup", folder + struct.pack("<II", 0x7FF, 0) + perms)
    if sys.argv[5:]:
        del NAMES[3:]
    client.abuse(float(sys.argv[3]), sys.argv[5:])
    print(client.answered)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
