"""Makes many simultaneous SMB connections: crowd.py PORT CONNECTIONS MIB PROCESSES

Each opens its own file, writes MIB MiB, reads them back, compares, and closes the file, which removes it. When all are connected and have
opened their files, it prints "all". They continue at the end of standard input. Prints the results and the errors.
"""
import hashlib, os, sys, threading, time, uuid
from multiprocessing import Barrier, Process, Queue
from smbprotocol.connection import Connection
from smbprotocol.open import (CreateDisposition, CreateOptions, FileAttributes, FilePipePrinterAccessMask,
                              ImpersonationLevel, Open, ShareAccess)
from smbprotocol.session import Session
from smbprotocol.tree import TreeConnect

PIECE = 1 << 20


def content(number, piece):
    return hashlib.sha256(f"{number} {piece}".encode()).digest() * (PIECE // 32)


def one(port, number, mib, connected, errors):
    met, doing = False, "connects"
    try:
        connection = Connection(uuid.uuid4(), "127.0.0.1", port, require_signing=False)
        connection.connect(timeout=300)
        doing = "opens a session"
        session = Session(connection, "guest", "", require_encryption=False, auth_protocol="ntlm")
        session.connect()
        doing = "connects to the share"
        tree = TreeConnect(session, r"\\127.0.0.1\share")
        tree.connect(require_secure_negotiate=False)
        doing = "opens"
        file = Open(tree, f"crowd-{number}")
        file.create(ImpersonationLevel.Impersonation, FilePipePrinterAccessMask.GENERIC_READ | FilePipePrinterAccessMask.GENERIC_WRITE
                    | FilePipePrinterAccessMask.DELETE, FileAttributes.FILE_ATTRIBUTE_NORMAL,
                    ShareAccess.FILE_SHARE_READ, CreateDisposition.FILE_OVERWRITE_IF,
                    CreateOptions.FILE_NON_DIRECTORY_FILE | CreateOptions.FILE_DELETE_ON_CLOSE)
        met = True
        connected.wait(900)
        doing = "writes"
        for piece in range(mib):
            file.write(content(number, piece), piece * PIECE)
        doing = "reads"
        for piece in range(mib):
            if file.read(piece * PIECE, PIECE) != content(number, piece):
                raise ValueError(f"piece {piece} is not what was written")
        doing = "closes"
        file.close()
        connection.disconnect(close=False) # a close message may find the connection already closed, in this module's threads
    except Exception as error:
        if not met:
            connected.abort()
        errors.append(f"{number} {doing}: {type(error).__name__}: {error}")


def some(port, numbers, mib, connected, told):
    threading.stack_size(1 << 18)
    errors = []
    threads = [threading.Thread(target=one, args=(port, number, mib, connected, errors)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told.put(errors)
    told.close()
    told.join_thread()
    os._exit(0)


def all_connected():
    print("all", flush=True)
    while os.read(standard_input, 1):
        pass


port, count, mib, processes = map(int, sys.argv[1:5])
standard_input = os.dup(0) # multiprocessing gives a child another standard input
connected, told, began = Barrier(count, all_connected), Queue(), time.monotonic()
for first in range(processes):
    Process(target=some, args=(port, range(first, count, processes), mib, connected, told)).start()
errors = [error for _ in range(processes) for error in told.get(timeout=2900)]
print(f"{count - len(errors)} of {count} wrote, read back and closed {mib} MiB each")
print(f"in {time.monotonic() - began:.1f} s", file=sys.stderr)
for error in errors[:10]:
    print(error)
