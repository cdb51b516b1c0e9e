#!/usr/bin/python3 -ISu
"""A webhook for tests: hook.py PORT FILE [STATUS [WORDS]]. It writes each posted message as a line of FILE, with the headers that matter."""
import http.server
import json
import sys

PORT, FILE, STATUS, WORDS = (sys.argv[1:] + ["200", ""])[:4]


class Hook(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        names = ["content-type", "user-agent", "x-token"]
        about = {"path": self.path, "headers": {name: self.headers.get(name) for name in names}}
        with open(FILE, "a") as file:
            print(json.dumps({**about, "body": body}), file=file, flush=True)
        self.send_response(int(STATUS))
        self.send_header("Content-Length", str(len(WORDS.encode())))
        self.end_headers()
        self.wfile.write(WORDS.encode())

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(PORT)), Hook)
print("listens")
server.serve_forever()
