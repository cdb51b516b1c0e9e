"""A 9P2000.L server with one file: nine.py SOCKET SIZE MS. It listens on a Unix socket and answers each read after MS milliseconds. A
client mounts it with -o trans=unix,version=9p2000.L,cache=none."""
import socket
import struct
import sys
import time

VERSION, ATTACH, WALK, GETATTR, LOPEN, READ, CLUNK, ERROR = 100, 104, 110, 24, 12, 116, 120, 6
FOLDER, FILE = bytes([0x80]) + struct.pack("<IQ", 0, 1), bytes([0]) + struct.pack("<IQ", 0, 2)


def text(raw):
    length = struct.unpack_from("<H", raw)[0]
    return raw[2:2 + length], raw[2 + length:]


def attributes(qid, size):
    mode, links = (0o40755, 2) if qid == FOLDER else (0o100644, 1)
    return struct.pack("<Q", 0x7FF) + qid + struct.pack("<III15Q", mode, 0, 0, links, 0, size, 4096, size // 512, *[0] * 10)


def answer(fids, kind, body, size, ms):
    """Returns the body of the answer, or an error number."""
    if kind == VERSION:
        return body
    fid = struct.unpack_from("<I", body)[0]
    if kind == ATTACH:
        fids[fid] = FOLDER
        return FOLDER
    if kind == WALK:
        new, count = struct.unpack_from("<IH", body, 4)
        if count > 1 or (count and text(body[10:])[0] != b"file"):
            return 2
        fids[new] = FILE if count else fids[fid]
        return struct.pack("<H", count) + FILE * count
    if kind == GETATTR:
        return attributes(fids[fid], size)
    if kind == LOPEN:
        return fids[fid] + struct.pack("<I", 0)
    if kind == READ:
        offset, count = struct.unpack_from("<QI", body, 4)
        time.sleep(ms / 1000)
        count = max(min(count, size - offset), 0)
        return struct.pack("<I", count) + bytes(count)
    if kind == CLUNK:
        fids.pop(fid, None)
        return b""
    return 95


def serve(connection, size, ms):
    fids, stream = {}, connection.makefile("rwb")
    while head := stream.read(7):
        length, kind, tag = struct.unpack("<IBH", head)
        said = answer(fids, kind, stream.read(length - 7), size, ms)
        kind, said = (ERROR, struct.pack("<I", said)) if isinstance(said, int) else (kind, said)
        stream.write(struct.pack("<IBH", 7 + len(said), kind + 1, tag) + said)
        stream.flush()


listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(1)
print("listens", flush=True)
serve(listener.accept()[0], int(sys.argv[2]), float(sys.argv[3]))
