#!/usr/bin/env python3
"""ldms_sets.py PORT [SET]: prints that set, or all sets, of the ldmsd at PORT of loopback, similar to `ldms_ls -l`: a line "metric NAME VALUE"
for each metric, and a line "record LIST VALUE..." for each record of a list. Strings are quoted, the elements of arrays are joined by commas.

(The ldms_ls of LDMS 4.5.3 has 128 bytes for a printed array, and crashes on one of 114 numbers.)
"""
import json, sys

from ovis_ldms import ldms


def text(value):
    if isinstance(value, str):
        return json.dumps(value)
    return ",".join(map(str, value)) if hasattr(value, "__len__") else str(value)


def show(a_set):
    for name, value in a_set.items():
        if isinstance(value, ldms.MetricList):
            for record in value:
                print("record", name, *(text(each) for _, each in record.items()))
        elif not isinstance(value, ldms.RecordType):
            print("metric", name, text(value))


def main():
    ldms.init(64 * 1024 * 1024)
    connection = ldms.Xprt(name="sock", auth="none")
    connection.connect("127.0.0.1", int(sys.argv[1]), timeout=20)
    for name in sys.argv[2:] or [each.name for each in connection.dir()]:
        a_set = connection.lookup(name)
        a_set.update()
        while not a_set.is_consistent:  # a sample was in progress
            a_set.update()
        show(a_set)
    connection.close()


main()
