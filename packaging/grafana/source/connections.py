"""Connections with servers, and where TCP's sends wait."""
from parts import CONNECTIONS, COUNT, PER_SECOND, SECONDS, dashboard, filled, graph, operations, quantile, rows, series, top

OF_TYPE = 'type="connection"'


def happened(*names):
    return operations(CONNECTIONS, f'operation=~"{"|".join(names)}"')


def build():
    board = dashboard("connections", "Connections", "What happens to connections with the servers of SMB and NFS mounts, and where what they send waits.")
    by_mount = "{{operation}} {{mount}} {{instance}}"
    lost = happened("CONNECTION_LOST", "SESSION_LOST", "LEASE_LOST", "TCP_RESET", "TCP_NO_ANSWER", "RPC_TIMEOUT")
    again = happened("TCP_RETRANSMIT", "RPC_RETRANSMIT")
    here = happened("TCP_DROPPED", "TCP_DAMAGED", "TCP_NOT_SENT", "TCP_HELD", "TCP_REROUTED", "NEIGHBOUR_CHANGED", "INTERFACE_DROPPED", "TCP_UNREACHABLE", "TCP_RESET_SENT")
    starved = happened("TCP_ZERO_WINDOW", "CREDIT_STARVATION", "SLOT_STARVATION", "LEASE_BREAK_TIMEOUT")
    reconnected = (CONNECTIONS, 'operation="RECONNECT"')
    return filled(
        board,
        rows("What happened", "In the time shown. Each name is explained in docs/connections.md.",
             f"sum by (instance, mount, operation) (increase({series('plumbline_operation_duration_seconds_count', CONNECTIONS)}[$__range])) > 0",
             ["instance", "mount", "operation"], value="Times", height=8),
        graph("Lost", "Connections, sessions and leases that were lost, resets, servers that were silent.", PER_SECOND, (f"sum by (operation, mount, instance) ({lost})", by_mount)),
        graph("Sent again", "Segments and calls that were sent again: the path lost them, or their answers.", PER_SECOND, (f"sum by (operation, mount, instance) ({again})", by_mount)),
        graph("On this host", "Segments that this host dropped, held or could not send, seconds in which an interface dropped packets, and new routes.", PER_SECOND, (f"sum by (operation, mount, instance) ({here})", by_mount)),
        graph("Refused by the server", "Closed windows, and credits or slots that were missing.", PER_SECOND, (f"sum by (operation, mount, instance) ({starved})", by_mount)),
        graph("Time until connected again", "The longest, from when the connection was lost.", SECONDS, (quantile(1, "mount, instance", *reconnected), "{{mount}} {{instance}}")),
        graph("Connected again", "Times a second.", PER_SECOND, (f"sum by (mount, instance) ({operations(*reconnected)})", "{{mount}} {{instance}}")),
        graph("Where sends wait", "99th percentile of each stage of TCP's sends (Linux 6.14 or newer, of connections that are looked at).", SECONDS,
              (quantile(0.99, "operation", 'protocol="tcp"'), "{{operation}}")),
        graph("Incidents of connections", "Open incidents of type connection.", COUNT,
              (top(15, f"sum by (rule, layer, mount, instance) ({series('plumbline_incident_open', OF_TYPE)})"), "{{rule}} {{mount}} {{instance}}: {{layer}}"), stacked=True),
    )
