#!/usr/bin/python3 -IS
"""Makes the output directories of a fleet's hosts from a bundle of one host (of `plumbline replay --bundles`, say).

  fleet.py outage TEMPLATE DIR            19 clients of nfs1: 17 were slow from 10:02 to 10:05, the other two are in another network
  fleet.py day TEMPLATE DIR HOSTS BUNDLES a day of HOSTS hosts with BUNDLES bundles each: an outage of ten minutes at each of ten servers,
                                          and the other bundles at times that differ from host to host

Each host has a folder below DIR with the content of its output directory: incidents/ and summaries/."""
import ctypes
import datetime
import io
import json
import os
import subprocess
import sys
import tarfile

DAY = datetime.datetime(2026, 11, 24)
zstd = ctypes.CDLL("libzstd.so.1")
zstd.ZSTD_compressBound.restype = zstd.ZSTD_compress2.restype = ctypes.c_size_t
zstd.ZSTD_compressBound.argtypes = [ctypes.c_size_t]
zstd.ZSTD_createCCtx.restype = ctypes.c_void_p
zstd.ZSTD_CCtx_setParameter.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
zstd.ZSTD_compress2.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
context = zstd.ZSTD_createCCtx()
zstd.ZSTD_CCtx_setParameter(context, 101, 20)  # ZSTD_c_windowLog: readers refuse larger windows


def compress(data):
    bound = zstd.ZSTD_compressBound(len(data))
    out = ctypes.create_string_buffer(bound)
    packed = zstd.ZSTD_compress2(context, out, bound, data, len(data))
    return out.raw[:packed]


def read(template):
    """Returns the files of a bundle as name and content."""
    data = subprocess.run(["zstd", "-dcq", template], stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return [(member.name, tar.extractfile(member).read()) for member in tar]


def iso(at):
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def host(name, address):
    return {"name": name, "kernel": "6.12.94", "plumbline": "0.1.0", "addresses": [address]}


class Maker:
    def __init__(self, template):
        files = read(template)
        self.incident = json.loads(dict(files)["incident.json"])
        self.others = [(name, data) for name, data in files if name not in ("incident.json", "summary.json")]
        self.number = 0

    def bundle(self, folder, about, server, begin, seconds):
        self.number += 1
        one = self.incident
        identity = f'{(begin + datetime.timedelta(seconds=2)).strftime("%Y%m%dT%H%M%SZ")}-{one["anomaly"]["probe"]}-{one["anomaly"]["type"]}-{self.number}'
        end = iso(begin + datetime.timedelta(seconds=seconds))
        one = {**one, "id": identity, "host": about, "first_seen": iso(begin), "last_seen": end, "detected": end, "state": "closed", "closed": True}
        one["top"] = {**one["top"], "mounts": [{**mount, "server": server, "source": f"{server}:/data"} for mount in one["top"]["mounts"][:1]]}
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for name, data in [("incident.json", json.dumps(one, indent=2).encode())] + self.others:
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
        os.makedirs(f"{folder}/incidents", exist_ok=True)
        with open(f"{folder}/incidents/{identity}.tar.zst", "wb") as file:
            file.write(compress(packed.getvalue()))


def summary(folder, about, servers):
    operations = [{"probe": "nfs", "operation": name, "count": count, "errors": 0, "bytes": count * 16384, "mean_ms": 12.4, "p50_ms": 12.0, "p90_ms": 14.0, "p99_ms": 20.0}
                  for name, count in (("READ", 81420), ("READ_PLUS", 81420), ("WRITE", 40213), ("OPEN", 900))]
    mounts = [{"mountpoint": "/data", "source": f"{server}:/data", "server": server, "fstype": "nfs4", "operations": operations} for server in servers]
    os.makedirs(f"{folder}/summaries", exist_ok=True)
    with open(f'{folder}/summaries/{DAY.strftime("%Y-%m-%d")}.json', "w") as file:
        json.dump({"from": iso(DAY), "to": iso(DAY + datetime.timedelta(hours=24)), "host": about, "mounts": mounts}, file)


def outage(maker, folder):
    for number in range(1, 20):
        about = host(f"c{number:02}", f"10.{1 if number <= 17 else 2}.0.{number}/24")
        mine = f"{folder}/{about['name']}"
        summary(mine, about, ["nfs1"])
        if number <= 17:
            begin = DAY + datetime.timedelta(hours=10, minutes=2, seconds=number % 7, microseconds=number * 31000)
            maker.bundle(mine, about, "nfs1", begin, 180 + number % 5)


def day(maker, folder, hosts, bundles):
    for number in range(hosts):
        about = host(f"c{number:04}", f"10.{number // 200}.{number % 200}.7/16")
        mine, server = f"{folder}/{about['name']}", f"nfs{number % 10}"
        summary(mine, about, [server, f"nfs{(number + 3) % 10}"])
        for one in range(bundles):
            # One bundle is of the server's outage. The others are at the host's own times.
            minutes = 600 + 3 * (number % 10) if one == 0 else (number * 7919 + one * 104729) % 1430
            maker.bundle(mine, about, server, DAY + datetime.timedelta(minutes=minutes, seconds=number % 20), 60)


if __name__ == "__main__":
    made = Maker(sys.argv[2])
    if sys.argv[1] == "outage":
        outage(made, sys.argv[3])
    else:
        day(made, sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
