#!/usr/bin/python3 -ISu
"""A virus scanner of the server: b7.py CONTROL FOLDER. Each open below FOLDER's file system waits until it was scanned (fanotify), one behind
the other; a scan takes as many ms as the file CONTROL says."""
import ctypes
import os
import struct
import sys
import time


def main(control, folder):
    libc = ctypes.CDLL(None, use_errno=True)
    group = libc.fanotify_init(0x4 | 0x1, os.O_RDONLY)  # FAN_CLASS_CONTENT, FAN_CLOEXEC
    mark = libc.fanotify_mark
    mark.argtypes = [ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p]
    # FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_OPEN_PERM, AT_FDCWD
    if group < 0 or mark(group, 0x101, 0x10000, -100, folder.encode()):
        sys.exit(f"b7.py: fanotify: {os.strerror(ctypes.get_errno())}")
    knob = os.open(control, os.O_RDONLY)
    while True:
        data = os.read(group, 4096)
        at = 0
        while at + 24 <= len(data):
            length, _, _, _, _, fd, _ = struct.unpack_from("=IBBHQii", data, at)
            at += length
            ms = int(os.pread(knob, 16, 0))
            if ms:
                time.sleep(ms / 1000)
            os.write(group, struct.pack("=iI", fd, 1))
            os.close(fd)


main(*sys.argv[1:])
