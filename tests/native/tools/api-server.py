#!/usr/bin/python3 -ISu
"""An API server of Kubernetes for tests: api-server.py PORT CERTIFICATE KEY TOKEN EVENTS [STATUS|lost]

It accepts Events over HTTPS and writes each as a line of the file EVENTS. Like the real server, it answers 401 to a token other than the one in the file
TOKEN, 400 to an Event without a required field or with a note that is too long, and 409 to a name that exists. With STATUS, it refuses
each request with that status. With `lost`, it accepts an Event and closes the connection without an answer."""
import http.server
import json
import ssl
import sys

PORT, CERTIFICATE, KEY, TOKEN, EVENTS, HOW = (sys.argv[1:] + [""])[:6]
PATH = "/apis/events.k8s.io/v1/namespaces/default/events"
NEEDED = ["eventTime", "reportingController", "reportingInstance", "action", "reason", "regarding", "type"]
names = set()


def answer(path, token, event):
    if token != "Bearer " + open(TOKEN).read().strip():
        return 401, "Unauthorized"
    if HOW.isdigit():
        return int(HOW), "as the test wants"
    if path != PATH or event["apiVersion"] != "events.k8s.io/v1" or event["kind"] != "Event":
        return 404, "the server could not find the requested resource"
    if not all(event.get(key) for key in NEEDED) or len(event["note"].encode()) > 1024 or event["metadata"]["namespace"] != "default":
        return 400, "Event is invalid"
    if event["metadata"]["name"] in names:
        return 409, "already exists"
    names.add(event["metadata"]["name"])
    with open(EVENTS, "a") as file:
        print(json.dumps(event), file=file, flush=True)
    return (None if HOW == "lost" else 201), "created"


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        code, message = answer(self.path, self.headers.get("authorization"), event)
        if code is None:
            self.close_connection = True
            return
        body = json.dumps({"kind": "Status", "apiVersion": "v1", "message": message, "code": code}).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class TlsServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def finish_request(self, request, client_address):
        # Do the handshake in the thread of the request. A client that aborts it then affects no other request.
        with context.wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)

    def handle_error(self, *_):
        pass


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(CERTIFICATE, KEY)
server = TlsServer(("127.0.0.1", int(PORT)), Server)
print("listens")
server.serve_forever()
