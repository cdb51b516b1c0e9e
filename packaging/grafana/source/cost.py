"""What Plumbline costs, and what it lost."""
from parts import BYTES, COUNT, LOST, PER_SECOND, SECONDS, SHARE, dashboard, filled, graph, number, rate, series, top


def build():
    board = dashboard("cost", "Own cost", "What Plumbline itself costs on each host, and what it could not keep up with.")
    cpu, memory, bpf = rate("plumbline_process_cpu_seconds_total"), series("plumbline_process_resident_memory_bytes"), rate("plumbline_bpf_run_seconds_total")
    by_signal = "{{signal}} {{instance}}"
    return filled(
        board,
        number("CPU, highest", "Share of one processor that the daemon uses. Its unit allows half of one.", SHARE, f"max({cpu})", warn=0.05, bad=0.25, width=6),
        number("Memory, highest", "Resident memory of the daemon. Its unit allows 64 MiB, kernel maps included.", BYTES, f"max({memory})", warn=33554432, bad=50331648, width=6),
        number("Events lost", "In the time shown, without what was sampled or swept.", COUNT, f"sum(increase({series('plumbline_events_lost_total', LOST)}[$__range]))", warn=1, width=6),
        number("Bundles lost", "Bundles that were not made or not renewed in the time shown. The log says why.", COUNT, f"sum(increase({series('plumbline_bundles_lost_total')}[$__range]))", warn=1, width=6),
        graph("CPU of the daemon", "Share of one processor. The time of its BPF programs is not part of it.", SHARE, (top(15, f"sum by (instance) ({cpu})"), "{{instance}}")),
        graph("Resident memory", "Of the daemon's process.", BYTES, (top(15, f"max by (instance) ({memory})"), "{{instance}}")),
        graph("BPF programs", "Share of one processor, by probe. Only where kernel.bpf_stats_enabled is 1.", SHARE, (f"sum by (probe) ({bpf})", "{{probe}}")),
        graph("In flight", "Operations that have begun and not ended, by probe.", COUNT, (f"sum by (probe) ({series('plumbline_operations_in_flight')})", "{{probe}}")),
        graph("Losses by cause", "A second. sampled_out is made up for by weights; swept are operations whose end was missed.", PER_SECOND,
              (f"sum by (probe, cause) ({rate('plumbline_events_lost_total')}) > 0", "{{probe}} {{cause}}")),
        graph("Series given up", "Operations a second that are counted under mount `other`, and series that were retired.", PER_SECOND,
              (f"sum by (instance) ({rate('plumbline_operations_folded_total')})", "folded {{instance}}"), (f"sum by (instance) ({rate('plumbline_series_retired_total')})", "retired {{instance}}")),
        graph("To the collector", "Points and records a second that an OpenTelemetry collector has taken, and those given up.", PER_SECOND,
              (f"sum by (signal, instance) ({rate('plumbline_otlp_sent_total')})", f"sent {by_signal}"), (f"sum by (signal, instance) ({rate('plumbline_otlp_dropped_total')})", f"given up {by_signal}")),
        graph("To webhook and program", "Messages about incidents a second that were taken, and those given up.", PER_SECOND,
              (f"sum by (instance) ({rate('plumbline_webhook_sent_total')})", "sent {{instance}}"), (f"sum by (instance) ({rate('plumbline_webhook_dropped_total')})", "given up {{instance}}"),
              (f"sum by (instance) ({rate('plumbline_on_incident_succeeded_total')})", "program {{instance}}"), (f"sum by (instance) ({rate('plumbline_on_incident_failed_total')})", "program failed {{instance}}")),
        graph("Scrape", "How long Prometheus waited for the page.", SECONDS, (f"max by (instance) ({series('scrape_duration_seconds')} and on (job, instance) {series('plumbline_build_info')})", "{{instance}}")),
        graph("Samples of a scrape", "How many samples the page has.", COUNT, (f"max by (instance) ({series('scrape_samples_scraped')} and on (job, instance) {series('plumbline_build_info')})", "{{instance}}")),
    )
