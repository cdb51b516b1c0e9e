//! The text format 0.0.4, and OpenMetrics 1.0, which differs from it in a few places.

use std::fmt::Write;

use crate::{Family, FamilyKind, LabelName, MetricUnit, PointValue, classic, seconds};

/// Writes all families.
pub fn write<L: LabelName>(families: &[Family<'_, L>], open_metrics: bool) -> Vec<u8> {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let written = families.iter().try_for_each(|family| write_family(&mut page, family, open_metrics));
    if open_metrics && written.is_ok() {
        page.push_str("# EOF\n");
    }
    page.into_bytes()
}

fn write_family<L: LabelName>(page: &mut String, family: &Family<'_, L>, open_metrics: bool) -> std::fmt::Result {
    let suffix = match family.kind {
        FamilyKind::Counter => "_total",
        FamilyKind::Info => "_info",
        _ => "",
    };
    // In the comments, OpenMetrics uses the family's name, the text format the name of the samples.
    let in_comments = if open_metrics { "" } else { suffix };
    let name = family.name;
    writeln!(page, "# HELP {name}{in_comments} {}", escaped(family.help, open_metrics))?;
    writeln!(page, "# TYPE {name}{in_comments} {}", type_name(family.kind, open_metrics))?;
    let unit = match family.unit {
        MetricUnit::Seconds => "seconds",
        MetricUnit::Bytes => "bytes",
        MetricUnit::None => "",
    };
    if open_metrics && !unit.is_empty() {
        writeln!(page, "# UNIT {name} {unit}")?;
    }
    for point in &family.points {
        let mut labels = String::new();
        for (label, value) in &point.labels {
            let comma = if labels.is_empty() { "" } else { "," };
            write!(labels, "{comma}{}=\"{}\"", label.name(), escaped(value, true))?;
        }
        let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        match point.value {
            PointValue::Number(number) => writeln!(page, "{name}{suffix}{braced} {number}")?,
            PointValue::Sum { sum, count } => {
                writeln!(page, "{name}_sum{braced} {sum}\n{name}_count{braced} {count}")?;
            }
            PointValue::Histogram(histogram) => {
                let comma = if labels.is_empty() { "" } else { "," };
                for (bound, count) in classic(histogram) {
                    writeln!(page, "{name}_bucket{{{labels}{comma}le=\"{}\"}} {count}", as_go_has_it(seconds(bound)))?;
                }
                // The sum of the buckets, so that the last bucket is never less than the previous one, even if operations are counted meanwhile.
                let count: u64 = histogram.buckets.iter().sum();
                writeln!(page, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}")?;
                writeln!(page, "{name}_sum{braced} {}\n{name}_count{braced} {count}", seconds(histogram.sum))?;
            }
        }
    }
    Ok(())
}

fn type_name(kind: FamilyKind, open_metrics: bool) -> &'static str {
    match kind {
        FamilyKind::Counter => "counter",
        FamilyKind::Histogram => "histogram",
        FamilyKind::Summary => "summary",
        FamilyKind::Info if open_metrics => "info",
        FamilyKind::Gauge | FamilyKind::Info => "gauge",
    }
}

/// A bound as Prometheus itself formats a number: the same bound in another form would be another series.
fn as_go_has_it(bound: f64) -> String {
    let text = format!("{bound:?}");
    match text.split_once("e-") {
        Some((digits, exponent)) => format!("{digits}e-{exponent:0>2}"),
        None => text,
    }
}

/// Puts a backslash before each backslash and line feed, and before each quote if `quotes`.
fn escaped(text: &str, quotes: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Point;

    fn page(kind: FamilyKind, value: PointValue<'_>, labels: Vec<(&'static str, &str)>, open_metrics: bool) -> String {
        let points = vec![Point { labels, value }];
        let family =
            Family { name: "x_seconds", otel: "", help: "Says \\ \"it\".", unit: MetricUnit::Seconds, kind, points };
        String::from_utf8(write(&[family], open_metrics)).unwrap()
    }

    #[test]
    fn names_that_somebody_else_chose_break_no_line() {
        let text = page(FamilyKind::Gauge, PointValue::Number(1.5), vec![("mount", "/a\"b\\x0a\nc")], false);
        let sample = r#"x_seconds{mount="/a\"b\\x0a\nc"} 1.5"#;
        assert_eq!(text, format!("# HELP x_seconds Says \\\\ \"it\".\n# TYPE x_seconds gauge\n{sample}\n"));
    }

    #[test]
    fn open_metrics_names_families_and_ends() {
        let text = page(FamilyKind::Counter, PointValue::Number(3.0), vec![], true);
        let comments = "# HELP x_seconds Says \\\\ \\\"it\\\".\n# TYPE x_seconds counter\n# UNIT x_seconds seconds\n";
        assert_eq!(text, format!("{comments}x_seconds_total 3\n# EOF\n"));
        let text = page(FamilyKind::Counter, PointValue::Number(3.0), vec![], false);
        assert!(text.contains("# TYPE x_seconds_total counter\nx_seconds_total 3\n"), "{text}");
    }

    #[test]
    fn a_histogram_is_cumulative_and_ends_with_all() {
        let mut histogram = model::Histogram::default();
        [1_000, 20_000, 1_000_000_000, u64::MAX >> 4].iter().for_each(|duration| histogram.add(*duration, 1, false));
        let text = page(FamilyKind::Histogram, PointValue::Histogram(&histogram), vec![("probe", "nfs")], false);
        assert!(text.contains("x_seconds_bucket{probe=\"nfs\",le=\"1.6384e-05\"} 1\n"), "{text}");
        assert!(text.contains("x_seconds_bucket{probe=\"nfs\",le=\"0.000131072\"} 2\n"), "{text}");
        assert!(text.contains("x_seconds_bucket{probe=\"nfs\",le=\"17.179869184\"} 3\n"), "{text}");
        assert!(text.contains("x_seconds_bucket{probe=\"nfs\",le=\"+Inf\"} 4\n"), "{text}");
        assert!(text.ends_with("x_seconds_count{probe=\"nfs\"} 4\n"), "{text}");
    }
}
