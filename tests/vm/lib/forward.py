"""forward PORT TO: connects each client of PORT on loopback with port TO and forwards the bytes in both directions. Prints `listening`."""

import socket
import sys
import threading


def pass_on(source, to):
    while data := source.recv(1 << 16):
        to.sendall(data)
    to.shutdown(socket.SHUT_WR)


with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    print("listening", flush=True)
    while True:
        client, _ = listener.accept()
        server = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
        for ends in (client, server), (server, client):
            threading.Thread(target=pass_on, args=ends, daemon=True).start()
