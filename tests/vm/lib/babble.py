"""A server that sends random bytes: usage: python3 babble.py PORT...

Some answers have the framing of the protocol (an SMB2 header, or an RPC header with the call's xid), so that the client parses
further. The sequence of answers is the same in each run.
"""
import random
import socket
import sys
import threading

chance = random.Random(1)


def nonsense(asked):
    body = chance.randbytes(chance.randint(1, 300))
    kind = chance.randint(0, 3)
    if kind == 0:
        return body
    if kind == 1:  # NetBIOS length, SMB2's magic
        body = b"\xfeSMB" + body
        return len(body).to_bytes(4, "big") + body
    if kind == 2:  # the request's SMB2 header, marked as a response
        body = asked[4:68].ljust(64, b"\0") + body
        return len(body).to_bytes(4, "big") + body
    body = asked[4:8] + (1).to_bytes(4, "big") + body  # record mark, xid, REPLY
    return (len(body) | 1 << 31).to_bytes(4, "big") + body


def babble(connection):
    try:
        while asked := connection.recv(1 << 16):
            connection.sendall(nonsense(asked))
    except OSError:
        pass
    connection.close()


def serve(port):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    while True:
        threading.Thread(target=babble, args=(listener.accept()[0],), daemon=True).start()


for port in sys.argv[2:]:
    threading.Thread(target=serve, args=(int(port),), daemon=True).start()
serve(int(sys.argv[1]))
