"""The libcephfs proxy: what its clients wait for (the probe cephproxy), and what the daemon says of itself (libcephfsd --metrics)."""
from parts import BYTES_A_SECOND, COUNT, PER_SECOND, SECONDS, SHARE, dashboard, filled, graph, number, operations, quantile, rate, series, share

OF = 'protocol="cephproxy"'
BUSY, FAILED, RULES = 'state="busy"', 'outcome="error"', 'rule=~"cephproxy.*"'
DAEMON = "libcephfsd_request_duration_seconds"


def build():
    board = dashboard("proxy", "libcephfs proxy", "Who waits for the libcephfs proxy, and how busy its daemon is.", of="libcephfsd_build_info|plumbline_build_info")
    answered = rate("libcephfsd_requests_total")
    return filled(
        board,
        number("Clients", "Connections with the daemon.", COUNT, f"sum({series('libcephfsd_connections')})"),
        number("Handles", "Inodes, files, directories, identities and mounts that clients hold.", COUNT, f"sum({series('libcephfsd_handles')})"),
        number("Mounts", "Mounts of CephFS.", COUNT, f"sum({series('libcephfsd_mounts')})"),
        number("Busy workers", "Share of the threads that answer. At 1, requests queue.", SHARE,
               f"sum({series('libcephfsd_workers', BUSY)}) / sum({series('libcephfsd_workers')})", warn=0.8, bad=0.95),
        number("Refused clients", "Clients that were turned away in the time shown.", COUNT, f"sum(increase({series('libcephfsd_connections_refused_total')}[$__range]))", warn=1),
        number("Refused requests", "Requests that were refused in the time shown.", COUNT, f"sum(increase({series('libcephfsd_requests_refused_total')}[$__range]))", warn=1),
        graph("Clients wait: 99th percentile", "What processes waited for each operation, by the probe cephproxy.", SECONDS, (quantile(0.99, "operation", OF), "{{operation}}")),
        graph("In the cluster: 99th percentile", "Time in libcephfs, so in the cluster and on the way to it, by the daemon.", SECONDS,
              (quantile(0.99, "operation", 'phase="libcephfs"', name=DAEMON), "{{operation}}")),
        graph("In the queue: 99th percentile", "Time until a worker took the request: this host.", SECONDS, (quantile(0.99, "operation", 'phase="waiting"', name=DAEMON), "{{operation}}")),
        graph("Requests answered", "Requests a second, by the daemon.", PER_SECOND, (f"sum by (operation) ({answered})", "{{operation}}")),
        graph("Bytes", "Payload of requests, by the daemon.", BYTES_A_SECOND, (f"sum by (operation) ({rate('libcephfsd_request_bytes_total')}) > 0", "{{operation}}")),
        graph("Failed requests", "Share that failed, ordinary failures included.", SHARE,
              (share(f"sum by (operation) ({rate('libcephfsd_requests_total', FAILED)})", f"sum by (operation) ({answered})"), "{{operation}}")),
        graph("Requests seen by the probe", "Requests a second that processes made.", PER_SECOND, (f"sum by (operation) ({operations(OF)})", "{{operation}}")),
        graph("Open incidents", "Of the rules cephproxy_*.", COUNT, (f"sum by (rule, layer) ({series('plumbline_incident_open', RULES)})", "{{rule}}: {{layer}}"), stacked=True),
    )
