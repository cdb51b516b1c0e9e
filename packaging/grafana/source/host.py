"""One host: its mounts, its probes, its incidents."""
from parts import BYTES_A_SECOND, COUNT, PER_SECOND, SECONDS, SHARE, WAITED_FOR, dashboard, filled, graph, number, operations, quantile, rate, rows, series, share, top

BY = "instance, mount, protocol"
LEGEND = "{{mount}} {{protocol}} {{instance}}"


def build():
    board = dashboard("host", "Host", "One host or some: mounts, load, latency, incidents and probes.")
    failed = rate("plumbline_operation_errors_total", WAITED_FOR)
    opened = series("plumbline_incident_open")
    return filled(
        board,
        rows("Mounts", "Mounts that are watched.", f"max by (instance, mount, source, server, fstype) ({series('plumbline_mount_info')})",
             ["instance", "mount", "source", "server", "fstype"], value=None, width=14),
        rows("Probes", "Those that this kernel cannot run, and those whose module is not loaded, are not attached: `plumbline doctor` says why.", f"max by (instance, probe) ({series('plumbline_probe_attached')})",
             ["instance", "probe"], value="Attached", width=10),
        number("Open incidents", "Incidents that are open now.", COUNT, f"sum({opened}) or vector(0)", warn=1, bad=5, width=6),
        number("In flight", "Operations that have begun and not ended. A number that stays while nothing is asked for shows that ends were missed.", COUNT,
               f"sum({series('plumbline_operations_in_flight')})", width=6),
        number("Mounts left out", "Mounts beyond the first 1000, which the metrics do not list.", COUNT, f"sum({series('plumbline_mounts_omitted')})", warn=1, width=6),
        number("Folded operations", "Operations a second that are counted under mount `other`, since there are too many mounts.", PER_SECOND,
               f"sum({rate('plumbline_operations_folded_total')})", warn=0.001, width=6),
        graph("99th percentile by mount", "One operation in a hundred took longer.", SECONDS, (top(15, quantile(0.99, BY, WAITED_FOR)), LEGEND)),
        graph("Operations by mount", "Operations a second.", PER_SECOND, (top(15, f"sum by ({BY}) ({operations(WAITED_FOR)})"), LEGEND)),
        graph("Bytes by mount", "Payload that operations moved.", BYTES_A_SECOND, (top(15, f"sum by ({BY}) ({rate('plumbline_operation_bytes_sum', WAITED_FOR)})"), LEGEND)),
        graph("Failed operations by mount", "Share that failed, ordinary failures included.", SHARE,
              (top(15, share(f"sum by ({BY}) ({failed})", f"sum by ({BY}) ({operations(WAITED_FOR)})")), LEGEND)),
        graph("Open incidents by rule", "By the rule that found them, and the layer that the verdict names.", COUNT, (f"sum by (rule, layer) ({opened})", "{{rule}}: {{layer}}"), stacked=True),
        graph("Incidents over, by rule", "Incidents that ended, by the layer of their last verdict.", COUNT,
              (f"sum by (rule, layer) (increase({series('plumbline_incidents_closed_total')}[$__rate_interval])) > 0", "{{rule}}: {{layer}}"), stacked=True),
    )
