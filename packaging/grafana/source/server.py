"""One server, seen by all its clients: is it slow for everybody?"""
from parts import BYTES_A_SECOND, COUNT, PER_SECOND, SECONDS, SHARE, WAITED_FOR, dashboard, filled, graph, number, operations, rate, rows, series, share, variable

THERE = series("plumbline_mount_info", 'server="$server"')


def of_server(rates):
    """Of rates by mount, those of the server's mounts."""
    return f"({rates} and on (job, instance, mount) {THERE})"


def build():
    which = variable("server", "Server", 'label_values(plumbline_mount_info{job=~"$job", instance=~"$instance", server!=""}, server)', multi=False)
    board = dashboard("server", "Server", "One server as its clients see it: for how many it is slow, and what they say.", more=[which])
    opened = series("plumbline_incident_open", 'server="$server"')
    buckets = of_server(rate("plumbline_operation_duration_seconds_bucket", WAITED_FOR))
    fast = of_server(rate("plumbline_operation_duration_seconds_bucket", 'le="0.134217728"', WAITED_FOR))
    made, failed, moved = (of_server(rates) for rates in (operations(WAITED_FOR), rate("plumbline_operation_errors_total", WAITED_FOR), rate("plumbline_operation_bytes_sum", WAITED_FOR)))
    return filled(
        board,
        number("Clients", "Hosts that have mounted something of the server.", COUNT, f"count(count by (instance) ({THERE}))", width=6),
        number("Clients affected", "Of these, hosts with an open incident of the server.", COUNT, f"count(count by (instance) ({opened})) or vector(0)", warn=1, bad=3, width=6),
        number("Share affected", "From 60 % on, it is the server or what is in front of it.", SHARE,
               f"(count(count by (instance) ({opened})) or vector(0)) / count(count by (instance) ({THERE}))", warn=0.01, bad=0.6, width=6),
        number("Slow operations", "Share of the clients' operations that took longer than 134 ms.", SHARE, f"1 - sum({fast}) / (sum({made}) > 0)", warn=0.01, bad=0.1, width=6),
        rows("Open incidents", "What each client says itself. `plumbline fleet` makes one verdict of them.", f"sum by (instance, rule, layer, cause, mount) ({opened})",
             ["instance", "rule", "layer", "cause", "mount"], value="Incidents"),
        graph("Clients affected, by layer", "Hosts with an open incident of the server, by the layer that their verdict names.", COUNT,
              (f"count by (layer) (count by (layer, instance) ({opened}))", "{{layer}}"), stacked=True),
        graph("99th percentile by client", "All slow together: the server. Some: their network, or themselves.", SECONDS,
              (f"histogram_quantile(0.99, sum by (le, instance) ({buckets}))", "{{instance}}")),
        graph("99th percentile by operation", "Over all clients.", SECONDS, (f"histogram_quantile(0.99, sum by (le, protocol, operation) ({buckets}))", "{{protocol}} {{operation}}")),
        graph("Operations by client", "Who asks how much of it.", PER_SECOND, (f"sum by (instance) ({made})", "{{instance}}")),
        graph("Bytes by client", "Payload that each client moves.", BYTES_A_SECOND, (f"sum by (instance) ({moved})", "{{instance}}")),
        graph("Failed operations by client", "Share that failed, ordinary failures included.", SHARE, (share(f"sum by (instance) ({failed})", f"sum by (instance) ({made})"), "{{instance}}")),
    )
