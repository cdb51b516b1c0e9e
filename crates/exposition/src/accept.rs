//! Chooses the response format from the client's `Accept` header (RFC 9110, section 12.5.1).

/// A format that this server can send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The text format 0.0.4: for people, and for clients that state no preference.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The only format with native histograms.
    Protobuf,
}

impl Format {
    /// The value of the `Content-Type` header.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }

    /// The format that `accept` prefers; of equally preferred formats, the first one. Text if `accept` names no supported format.
    pub fn wanted(accept: &str) -> Self {
        let mut best = (Self::Text, 0.0);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
            let parameter = |name: &str| {
                let named = parameters.iter().find(|(key, _)| key.trim().eq_ignore_ascii_case(name));
                named.map(|(_, value)| value.trim().trim_matches('"'))
            };
            let format = match (&*kind, parameter("version")) {
                ("application/vnd.google.protobuf", _) => {
                    let is_ours = parameter("proto").is_none_or(|proto| proto == "io.prometheus.client.MetricFamily")
                        && parameter("encoding") == Some("delimited");
                    is_ours.then_some(Self::Protobuf)
                }
                ("application/openmetrics-text", None | Some("1.0.0" | "0.0.1")) => Some(Self::OpenMetrics),
                ("text/plain", None | Some("0.0.4")) | ("text/*" | "*/*", _) => Some(Self::Text),
                _ => None,
            };
            let weight = parameter("q").map_or(Some(1.0), |q| q.parse::<f32>().ok()).unwrap_or(0.0);
            if let Some(format) = format.filter(|_| weight > best.1) {
                best = (format, weight);
            }
        }
        best.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_gets_what_they_like_best() {
        // Prometheus 2.42, with native histograms and without; curl; a browser.
        let native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
                      application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,\
                      text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let classic = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                       text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Format::wanted(native), Format::Protobuf);
        assert_eq!(Format::wanted(classic), Format::OpenMetrics);
        assert_eq!(Format::wanted("*/*"), Format::Text);
        assert_eq!(Format::wanted("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"), Format::Text);
        assert_eq!(
            Format::wanted("application/vnd.google.protobuf;proto=x.Y;encoding=delimited, */*;q=0.1"),
            Format::Text
        );
        assert_eq!(Format::wanted("application/vnd.google.protobuf;encoding=text"), Format::Text);
        for nonsense in ["", ",,;;q=", "text/plain;q=nan", "application/openmetrics-text;q=0", "\u{0};=,=;"] {
            assert_eq!(Format::wanted(nonsense), Format::Text, "{nonsense:?}");
        }
    }
}
