"""I/O by job of the batch system: the series of packaging/prometheus/io-by-job, since no metric of the daemon has a job."""
from parts import BYTES_A_SECOND, PER_SECOND, SECONDS, SHARE, dashboard, filled, graph, rate, rows, series, share, top, variable

OF = ('layer=~"$layer"', 'batch_job=~"$batch_job"')
LEGEND = "{{batch_job}} {{mount}} {{layer}}"
BY = "batch_job, mount, layer"


def build():
    seen = 'plumbline_job_operations_total{job=~"$job", instance=~"$instance"}'
    which = [variable("layer", "Layer", f"label_values({seen}, layer)"), variable("batch_job", "Batch job", f"label_values({seen}, batch_job)")]
    board = dashboard("jobs", "I/O by job", "Which job of the batch system asks for how much I/O, and how long it waits.", of="plumbline_job_operations_total", more=which)
    made, moved, waited, failed = (rate(f"plumbline_job_{name}_total", *OF) for name in ("operations", "bytes", "wait_seconds", "errors"))
    return filled(
        board,
        rows("Jobs", "Payload of each job in the time shown.",
             f"topk(20, sum by (batch_job, mount, layer) (increase({series('plumbline_job_bytes_total', *OF)}[$__range])))", ["batch_job", "mount", "layer"], unit="bytes", value="Bytes", height=8),
        graph("Bytes", "Payload of the fifteen jobs that moved most.", BYTES_A_SECOND, (top(15, f"sum by ({BY}) ({moved})"), LEGEND)),
        graph("Operations", "Operations a second of the fifteen busiest jobs.", PER_SECOND, (top(15, f"sum by ({BY}) ({made})"), LEGEND)),
        graph("Mean latency", "Mean time of an operation.", SECONDS, (top(15, share(f"sum by ({BY}) ({waited})", f"sum by ({BY}) ({made})")), LEGEND)),
        graph("Threads that wait", "How many threads of the job were in an operation, on average.", "short", (top(15, f"sum by ({BY}) ({waited})"), LEGEND)),
        graph("Failed operations", "Share that failed, ordinary failures included.", SHARE, (top(15, share(f"sum by ({BY}) ({failed})", f"sum by ({BY}) ({made})")), LEGEND)),
        graph("Hosts of a job", "Hosts on which the job had I/O.", "short", (f"count by (batch_job) (count by (batch_job, instance) ({series('plumbline_job_operations_total', *OF)}))", "{{batch_job}}")),
    )
