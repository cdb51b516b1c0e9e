#!/usr/bin/python3
"""mpiio_run.py FILE: MPI-IO like that of checkpoints: writes and reads blocks of 1 MiB, collectively and by each rank alone.

For each line on standard input, rank 0 prints MiB per second of its processor time, of the fastest of several rounds. With processor
time, the load of other processes does not count.
"""

import sys
import time

from mpi4py import MPI

BLOCK, BLOCKS, ROUNDS = 1 << 20, 16, 60


def round_of(file, world, buffer):
    world.Barrier()
    start = time.process_time()
    for call in (file.Write_at_all, file.Read_at_all, file.Write_at, file.Read_at):
        for block in range(BLOCKS):
            call((block * world.size + world.rank) * BLOCK, buffer)
    return time.process_time() - start


def main():
    world = MPI.COMM_WORLD
    buffer = bytearray(BLOCK)
    file = MPI.File.Open(world, sys.argv[1], MPI.MODE_CREATE | MPI.MODE_RDWR)
    while world.bcast(sys.stdin.readline() if world.rank == 0 else None):
        best = min(round_of(file, world, buffer) for _ in range(ROUNDS))
        if world.rank == 0:
            print(f"{4 * BLOCKS * BLOCK / best / 2**20:.1f}", flush=True)
    file.Close()


main()
