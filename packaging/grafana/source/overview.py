"""All hosts at a glance: is anything wrong, where, and since when."""
from parts import BYTES_A_SECOND, CONNECTIONS, COUNT, LOST, PER_SECOND, SECONDS, SHARE, WAITED_FOR, dashboard, filled, graph, number, operations, over, quantile, rate, rows, series, share, top

WHERE = "instance, mount, protocol"


def build():
    board = dashboard("overview", "Overview", "All hosts: open incidents, the slowest mounts, who moves most data, and whether Plumbline itself is well.")
    open_now = series("plumbline_incident_open")
    failed, all_of = (f"sum by ({WHERE}) ({rate(name, WAITED_FOR)})" for name in ("plumbline_operation_errors_total", "plumbline_operation_duration_seconds_count"))
    return filled(
        board,
        number("Hosts", "Hosts whose daemon was scraped.", COUNT, f"count({series('plumbline_build_info')})"),
        number("Mounts", "Mounts that are watched, of all hosts.", COUNT, f"count({series('plumbline_mount_info')})"),
        number("Open incidents", "Incidents that are open now.", COUNT, f"sum({open_now}) or vector(0)", warn=1, bad=5),
        number("Incidents begun", "Incidents that began in the time shown. What began before the first scrape is missing.", COUNT,
               f"sum(increase({series('plumbline_incidents_total')}[$__range]))", warn=1),
        number("Slow operations", "Share of operations that took longer than 134 ms.", SHARE, over("0.134217728", "protocol", 'protocol="syscalls"'), warn=0.01, bad=0.1),
        number("Events lost", "Events that Plumbline lost in the time shown: what it says is incomplete then.", COUNT,
               f"sum(increase({series('plumbline_events_lost_total', LOST)}[$__range]))", warn=1),
        rows("Open incidents", "One line for each open incident. `plumbline incidents` on that host has the reasons and the bundle.",
             f"sum by (instance, rule, layer, cause, mount, server) ({open_now})", ["instance", "rule", "layer", "cause", "mount", "server"], value="Incidents"),
        graph("Open incidents by layer", "The layer is the verdict as it stood then: client is the host itself.", COUNT,
              (f"sum by (layer) ({open_now})", "{{layer}}"), stacked=True),
        graph("Incidents over, by layer", "Incidents that ended, by the layer of their last verdict.", COUNT,
              (f"sum by (layer) (increase({series('plumbline_incidents_closed_total')}[$__rate_interval]))", "{{layer}}"), stacked=True),
        graph("Slowest mounts: 99th percentile", "The ten mounts whose operations were slowest. One in a hundred took longer.", SECONDS,
              (top(10, quantile(0.99, WHERE, WAITED_FOR)), "{{mount}} {{protocol}} {{instance}}")),
        graph("Share of operations over 134 ms", "The ten mounts with the largest share.", SHARE,
              (top(10, over("0.134217728", WHERE, WAITED_FOR)), "{{mount}} {{protocol}} {{instance}}")),
        graph("Operations", "Operations a second. One system call on an SMB mount counts in syscalls and, for its requests, in smb.", PER_SECOND,
              (f"sum by (protocol) ({operations(WAITED_FOR)})", "{{protocol}}")),
        graph("Busiest mounts: bytes", "Payload of the ten busiest mounts.", BYTES_A_SECOND,
              (top(10, f"sum by ({WHERE}) ({rate('plumbline_operation_bytes_sum', WAITED_FOR)})"), "{{mount}} {{protocol}} {{instance}}")),
        graph("Failed operations", "The ten mounts with the largest share. Ordinary failures count, such as a name that does not exist.", SHARE,
              (top(10, share(failed, all_of)), "{{mount}} {{protocol}} {{instance}}")),
        graph("Connections", "What happened to connections with servers, a second: lost, reset, sent again.", PER_SECOND,
              (f"sum by (operation) ({operations(CONNECTIONS)})", "{{operation}}")),
    )
