"""python3 keep_messages.py HOST PORT FILE [AUTH]: appends each incident that the ldmsd at HOST and PORT hears of to FILE, one JSON object a line.

It uses LDMS's own Python module, which an LDMS that was built with Python has. AUTH is LDMS's authentication, such as munge; default none.
It ends with an error when the connection is lost: let a service manager start it again.
"""
import json, queue, sys

from ovis_ldms import ldms

CHANNEL = "plumbline"


def main():
    if not 4 <= len(sys.argv) <= 5:
        sys.exit(__doc__)
    host, port, path = sys.argv[1:4]
    ldms.init(16 * 1024 * 1024)
    heard = queue.SimpleQueue()  # of messages and of what happens to the connection
    client = ldms.MsgClient(CHANNEL, False, cb=lambda _client, message, _argument: heard.put(message))
    connection = ldms.Xprt(name="sock", auth=(sys.argv[4:] or ["none"])[0])
    connection.connect(host, int(port), cb=lambda _connection, event, _argument: heard.put(event))
    with open(path, "a", encoding="utf-8") as file:
        while True:
            what = heard.get()
            if isinstance(what, ldms.MsgData):
                print(json.dumps(what.data), file=file, flush=True)
            elif what.type == ldms.EVENT_CONNECTED:
                connection.msg_subscribe(CHANNEL, False)
                print("subscribed", flush=True)
            elif what.type in (ldms.EVENT_REJECTED, ldms.EVENT_ERROR, ldms.EVENT_DISCONNECTED):
                client.close()
                sys.exit(f"no connection to {host}:{port}: {what.type}")


if __name__ == "__main__":
    main()
