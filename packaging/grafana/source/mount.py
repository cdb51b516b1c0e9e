"""One mount, or some: which operation is slow, since when, how slow."""
from parts import BYTES, BYTES_A_SECOND, COUNT, PER_SECOND, SECONDS, SHARE, dashboard, filled, graph, heat, number, operations, over, quantile, rate, rows, series, share, variable

OF = ('protocol=~"$protocol"', 'mount=~"$mount"')
BY = "protocol, operation"
LEGEND = "{{protocol}} {{operation}}"


def build():
    which = [
        variable("protocol", "Protocol", 'label_values(plumbline_operation_duration_seconds_count{job=~"$job", instance=~"$instance"}, protocol)'),
        variable("mount", "Mount", 'label_values(plumbline_mount_info{job=~"$job", instance=~"$instance"}, mount)'),
    ]
    board = dashboard("mount", "Mount", "One mount or some: rates, latency, failures and incidents by operation.", more=which)
    moved = (rate("plumbline_operation_bytes_sum", *OF), rate("plumbline_operation_bytes_count", *OF))
    failed = rate("plumbline_operation_errors_total", *OF)
    return filled(
        board,
        rows("Mounts", "What is mounted there.", f"max by (instance, mount, source, server, fstype) ({series('plumbline_mount_info', OF[1])})",
             ["instance", "mount", "source", "server", "fstype"], value=None, width=16, height=5),
        number("Open incidents", "Open incidents in which these mounts lost the most time.", COUNT, f"sum({series('plumbline_incident_open', OF[1])}) or vector(0)", warn=1, width=4, height=5),
        number("Over 134 ms", "Share of all operations chosen that took longer than 134 ms.", SHARE, over("0.134217728", "job", *OF), warn=0.01, bad=0.1, width=4, height=5),
        heat("Latency", "How many operations took how long. Bands that part show two kinds of operation, or some that waited.", *OF),
        graph("99th percentile by operation", "One in a hundred took longer.", SECONDS, (quantile(0.99, BY, *OF), LEGEND)),
        graph("Median by operation", "Half of the operations took longer.", SECONDS, (quantile(0.5, BY, *OF), LEGEND)),
        graph("Operations over a threshold", "Shares of all operations chosen. The thresholds are bounds of the histogram, so the shares are exact.", SHARE,
              *((over(bound, "protocol", *OF), f"{{{{protocol}}}} over {name}") for name, bound in (("17 ms", "0.016777216"), ("134 ms", "0.134217728"), ("1.07 s", "1.073741824")))),
        graph("Operations", "Operations a second.", PER_SECOND, (f"sum by ({BY}) ({operations(*OF)})", LEGEND)),
        graph("Bytes", "Payload that operations moved.", BYTES_A_SECOND, (f"sum by ({BY}) ({moved[0]}) > 0", LEGEND)),
        graph("Bytes of an operation", "The mean payload: small ones cost a round trip each.", BYTES, (share(f"sum by ({BY}) ({moved[0]})", f"sum by ({BY}) ({moved[1]})"), LEGEND)),
        graph("Failed operations", "Share that failed, ordinary failures included, such as a name that does not exist.", SHARE,
              (share(f"sum by ({BY}) ({failed})", f"sum by ({BY}) ({operations(*OF)})"), LEGEND)),
        graph("Open incidents", "By rule and layer.", COUNT, (f"sum by (rule, layer) ({series('plumbline_incident_open', OF[1])})", "{{rule}}: {{layer}}"), stacked=True),
    )
