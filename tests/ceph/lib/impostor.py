"""Listens in place of libcephfsd: impostor.py WHAT SECONDS, with the socket in LIBCEPHFSD_SOCKET. Prints how many clients have connected.

version    speaks another version of the protocol
drop       closes each connection at once, like a daemon that fails to start
"""

import os
import socket
import struct
import sys
import time

what, seconds = sys.argv[1], float(sys.argv[2])
path = os.environ["LIBCEPHFSD_SOCKET"]
if os.path.exists(path):
    os.unlink(path)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(path)
listener.listen(100)
until = time.monotonic() + seconds
came = 0
while time.monotonic() < until:
    listener.settimeout(max(until - time.monotonic(), 0.001))
    try:
        client, _ = listener.accept()
    except TimeoutError:
        break
    came += 1
    if what == "version":
        client.recv(256)
        client.send(b"libcephP" + struct.pack("<IiiiiB", 999, -93, 99, 0, 0, 1) + b"\0")
    client.close()
print(came)
