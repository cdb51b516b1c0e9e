"""Makes one request twenty times a second, endlessly: ceph-load.py create DIR makes empty files, write FILE writes 4 KiB without the page cache."""
import mmap
import os
import sys
import time

kind, path = sys.argv[1:]
with open("/proc/self/comm", "w") as name:
    name.write("ceph-" + kind)
if kind == "create":
    for number in range(1 << 30):
        os.close(os.open(f"{path}/{os.getpid()}-{number}", os.O_CREAT | os.O_WRONLY))
        time.sleep(0.05)
block = mmap.mmap(-1, 4096)  # O_DIRECT needs an aligned buffer
file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
while True:
    os.pwritev(file, [block], 0)
    time.sleep(0.05)
