"""Checks when other clients see a change: coherence.py CEPH_CONF PROXIED DIRECT STALE_MS

PROXIED and DIRECT are tests/ceph/coherence.c, linked with the proxy and with libcephfs. A change through the daemon must be visible to
another client as soon as the first client has its answer. A change by a direct client must be visible after STALE_MS, or at once if that is 0.
"""

import os
import select
import signal
import subprocess
import sys
import time

conf, proxied, direct, stale = sys.argv[1:4] + [int(sys.argv[4]) / 1000]
failures = 0


class Client:
    def __init__(self, program):
        self.process = subprocess.Popen([program, conf, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, line, limit=None):
        """Returns the answer and stores the milliseconds that it took. Returns "" if there is no answer within `limit` seconds."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        if limit and not select.select([self.process.stdout], [], [], limit)[0]:
            self.process.kill()
            return ""
        answer = self.process.stdout.readline().strip()
        self.took = int(self.process.stdout.readline())
        return answer

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def tell(what, good, why=""):
    global failures
    failures += not good
    print(("ok - " if good else "not ok - ") + what)
    if not good:
        print(f"  # {why}")


A, B, C = Client(proxied), Client(proxied), Client(direct)

# Each case: a name, the query before and after the change, the change, and the expected answer or a part of it.
CASES = [
    ("a mode", "look d/f", "mode d/f 600", "100600"),
    ("a mode, of an inode in hand", "attr", "mode d/f 640", "100640"),
    ("a time", "attr", "time d/f 1234567", "1234567"),
    ("a size", "look d/f", "size d/f 4321", " 4321 "),
    ("a write", "attr", "write d/f 9999", " 10000 "),
    ("that a file was cut when it was opened", "attr", "truncate d/f", " 0 "),
    ("that a file was cut when it was created again", "attr", "create d/f t", None),
    ("a link", "attr", "hard d/f d/h", " 2 "),
    ("a link's name", "look d/h2", "hard d/f d/h2", "0 100"),
    ("that a link is gone", "attr", "unlink d/h", " 2 "),
    ("that a name is gone", "look d/h2", "unlink d/h2", "-2"),
    ("a new name", "look d/n", "create d/n", "0 100644"),
    ("a name that moved here", "look d/o", "rename d/n d/o", "0 100644"),
    ("that it moved away", "look d/o", "rename d/o d/s/p", "-2"),
    ("what replaced another", "look d/f2", "rename d/e d/f2", "0 100600 1"),
    ("an extended attribute", "getx d/f user.a", "setx d/f user.a one", "0 one"),
    ("its new value", "getx d/f user.a", "setx d/f user.a two", "0 two"),
    ("that it is gone", "getx d/f user.a", "removex d/f user.a", "-61"),
    ("a list of names", "list d", "create d/l1", "0 "),
    ("a shorter list", "list d", "unlink d/l1", "0 "),
    ("a new directory", "look d/new", "directory d/new", "0 40755"),
    ("that it is gone", "look d/new", "rmdir d/new", "-2"),
    ("a path", "walk d/s/p", "rename d/s d/t", "-2"),
    ("another path", "walk d/t/p", "unlink d/t/p", "-2"),
    ("that nobody may go there", "-look d/t/q", "mode d/t 700", "-13"),
    ("that somebody may again", "-look d/t/q", "mode d/t 755", "0 100644"),
    ("that nobody may list it", "-list d/t", "mode d/t 700", "-13"),
    ("that nobody may read its extended attributes", "-getx d/f user.b", "mode d/f 600", "-13"),
]


def prepare():
    for line in ("directory d", "directory d/s", "create d/f t", "create d/f2", "create d/e", "create d/s/q", "mode d 755"):
        A(line)
    for line in ("mode d/e 600", "mode d/f 644", "setx d/f user.b x"):
        assert A(line) == "0", line


def clean():
    for name in ("f", "f2", "e", "h", "h2", "n", "o", "l1", "s/p", "s/q", "t/p", "t/q"):
        A(f"unlink d/{name}")
    for name in ("d/s", "d/t", "d/new", "d"):
        A(f"rmdir {name}")


def seen_when(look, before, want):
    """Returns when after the change the last old answer was asked for, or None, and the final answer."""
    start, late = time.monotonic(), None
    while True:
        asked = time.monotonic() - start
        said = B(look)
        right = said != before if want is None or want == "0 " else want in said or said.startswith(want)
        if right or asked > stale + 5:
            return late, said
        late = asked
        time.sleep(0.002)


# From 19.2 on, libcephfs itself lets every user read extended attributes.
prepare()
C("mode d/f 600")
if C("-getx d/f user.b") == "0 x":
    CASES.pop()
clean()

for changer, who, bound in ((A, "another client of the daemon", 0), (C, "a client without the daemon", stale)):
    prepare()
    B("keep d/f")
    slowest = 0
    for what, look, change, want in CASES:
        # The first answer is copied on the second query. After a moment, the daemon gives promises to clients that ask again.
        for _ in range(4):
            before = B(look)
        result = changer(change)
        slowest = max(slowest, changer.took)
        when, said = seen_when(look, before, want)
        if want is None:
            tell(f"{what}, by {who}", True)
        else:
            tell(f"{what}, by {who}", result == "0" and (when is None or when <= bound), f"{change}: {result}; {before}; old until {when} s; {said}")
    tell(f"none of it kept {who} waiting", slowest < 8000, f"{slowest} ms")
    clean()

# A file in a snapshot has the inode number of the live file. The caches must not mix them up.
prepare()
A("directory d/.snap/then")
for _ in range(4):
    B("keep d/.snap/then/f")
    then = B("attr")
B("keep d/f")
before = B("attr")
result = C("mode d/f 600")
when, said = seen_when("attr", before, "100600")
tell("a mode of a file that was looked at in a snapshot", result == "0" and (when is None or when <= stale), f"{result}; {before}; old until {when} s; {said}")
B("keep d/.snap/then/f")
said = B("attr")
tell("and the snapshot's is as it was", said == then and then.startswith("0 100644"), f"{then}; {said}")
A("rmdir d/.snap/then")
clean()

# A client writes while another one makes snapshots. The client asks for attributes as often as Samba does.
prepare()
D = Client(proxied)
said = [D("open d/f 2"), D("append 0")]
for number in range(3):
    said += [D("attr").split()[0] for _ in range(3)]
    said += [A(f"directory d/.snap/{number}"), D(f"append {number + 1}", 20)]
    if said[-1] == "":
        break
tell("a client goes on writing after a snapshot", said == ["0"] * 17, said)
D.end()
for number in range(3):
    A(f"rmdir d/.snap/{number}")
clean()

# Changes do not wait for a client that does not answer, because the daemon needs nothing from it.
prepare()
for _ in range(3):
    B("look d/f"), B("getx d/f user.b")
os.kill(B.process.pid, signal.SIGSTOP)
said = [client(f"{what} d/f {value}") for client in (A, C) for what, value in (("mode", 600), ("size", 77), ("setx", "user.b two"))]
slowest = max(client.took for client in (A, C))
tell("while a client that looks at it is stopped, changes are made", said == ["0"] * 6, said)
tell("without delay", slowest < 3000, f"{slowest} ms")
os.kill(B.process.pid, signal.SIGCONT)
if stale:
    time.sleep(stale)
tell("and it sees them when it goes on", B("look d/f").startswith("0 100600 1 77 ") and B("getx d/f user.b") == "0 two")
B.process.kill()
B.process.wait()
tell("nor is one that was killed waited for", C("mode d/f 644") == "0" and C.took < 3000, f"{C.took} ms")
clean()

# The directory has more files than the daemon keeps after their release, so listing it evicts some of its files.
if stale:
    A("directory many")
    files, said = [f"many/{number}" for number in range(2100)], set()
    made = {A(f"create {file}") for file in files}
    for _ in range(2):
        said |= {A("list many").split()[1]} | {A(f"read {file}") for file in files}
        time.sleep(stale)
    tell("2100 files are listed twice, and each can be opened", (made, said) == ({"0"}, {"2102", "0"}), (made, said))

for client in (A, C):
    client.end()
sys.exit(failures > 0)
