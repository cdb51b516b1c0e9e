"""A client that asks libcephfsd for the memory with a file's data: pages.py CONF. It prints "only with permission" or the error.

It makes a file as root, and asks as root and as another user.
"""

import array
import mmap
import os
import socket
import struct
import sys
import time

from abuse import Client, text
from hostile import CONTROL

DATA = CONTROL + 16 * 8192
CHUNK = 64 << 10
WORDS = b"known to root" * 1000
AGAIN, ACCESS, BADF = -11, -13, -9


def fail(what):
    sys.exit(f"wrong: {what}")


class Asker(Client):
    def __init__(self, configuration):
        super().__init__(0)
        self.mounted = self.mount(configuration)
        self.root = self.perms(0)
        self.other = self.perms(1000)

    def answer(self, number):
        return struct.unpack_from("<Q", self.memory, CONTROL + 8 * number)[0]

    def perms(self, uid):
        if self.ask("Identify", struct.pack("<III", uid, uid, 0)) < 0:
            fail("Identify")
        return struct.pack("<Q", self.answer(0))

    def find(self, name, perms):
        top = struct.pack("<Q", self.held["inode"][0])
        result = self.ask("Lookup", self.mounted + top + text(name) + struct.pack("<II", 0x7FF, 0) + perms)
        return result, struct.pack("<Q", self.answer(0))

    def open(self, inode, flags, perms):
        result = self.ask("Open", self.mounted + inode + struct.pack("<i", flags) + perms)
        return result, struct.pack("<Q", self.answer(0))

    def read(self, file, memory=0):
        """Returns the result and the number of the memory."""
        result = self.ask("Read", self.mounted + file + struct.pack("<qIQ", 0, len(WORDS), memory))
        return result, self.answer(0)

    def pages(self, file):
        """Returns the result and the descriptor, if one was passed."""
        result = self.ask("MapData", self.mounted + file)
        fds = array.array("i")
        self.socket.setblocking(False)
        try:
            _, control, _, _ = self.socket.recvmsg(8, socket.CMSG_SPACE(4))
        except BlockingIOError:
            control = []
        for _, _, data in control:
            fds.frombytes(data)
        return result, fds[0] if fds else None


def main():
    configuration = open(sys.argv[1], "rb").read()
    reader, stranger = Asker(configuration), Asker(configuration)
    top = struct.pack("<Q", reader.held["inode"][0])
    made = reader.ask(
        "CreateFile",
        reader.mounted + top + text(b"pages") + struct.pack("<IiII", 0o602, os.O_CREAT | os.O_RDWR, 0x7FF, 0) + reader.root,
    )
    if made < 0:
        fail(f"CreateFile = {made}")
    inode, file = (struct.pack("<Q", reader.answer(number)) for number in (0, 1))
    if reader.ask("Write", reader.mounted + file + struct.pack("<q", 0), WORDS) != len(WORDS):
        fail("Write")
    if reader.ask("Close", reader.mounted + file) != 0:
        fail("Close")

    _, file = reader.open(inode, os.O_RDONLY, reader.root)
    for pause in (0, 0, 1.2):
        time.sleep(pause)  # the daemon caches data that is read again after a while
        result, number = reader.read(file)
        if result != len(WORDS):
            fail(f"Read = {result}")
    result, fd = reader.pages(file)
    if result != 0 or fd is None or number == 0:
        fail(f"who may read it gets {result}, {fd}, {number}")
    size = os.fstat(fd).st_size
    if mmap.mmap(fd, size, prot=mmap.PROT_READ).find(WORDS) < 0:
        fail("the memory does not have the data")
    try:
        mmap.mmap(fd, size)
        fail("the memory can be written")
    except PermissionError:
        pass

    _, found = stranger.find(b"pages", stranger.other)
    result, nothing = stranger.open(found, os.O_RDONLY, stranger.other)
    if result != ACCESS:
        fail(f"another user opens it: {result}")
    if stranger.pages(file) != (BADF, None) or stranger.pages(nothing) != (BADF, None):
        fail("a file that is not open")
    result, blind = stranger.open(found, os.O_WRONLY, stranger.other)
    if result != 0:
        fail(f"another user opens it for writing: {result}")
    if stranger.pages(blind) != (AGAIN, None):
        fail("who may only write gets the memory")
    result, _ = stranger.read(blind, number)
    if result >= 0 or stranger.memory[DATA : DATA + len(WORDS)] == WORDS:
        fail(f"who may only write reads {result}")
    print("only with permission")


if __name__ == "__main__":
    main()
