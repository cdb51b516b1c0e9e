//! The recipients of metrics and incidents.

use std::net::SocketAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use super::{
    KubernetesEventsConfig, Otlp, OtlpProtocol, Prometheus, WebhookConfig,
    native::ConfigSection,
    node::{YamlEntry, YamlValue},
    reader::{ConfigReader, quoted},
};

/// The section `prometheus`.
pub fn prometheus(reader: &mut ConfigReader<'_>, all: &ConfigSection<'_>) -> Option<Prometheus> {
    let section = all.section(reader, "prometheus", &["listen", "max_series"])?;
    let listen = section.get(reader, "listen").and_then(|entry| listen(reader, entry));
    // At most as many as the kernel side has.
    let max_series = section.get(reader, "max_series").and_then(|entry| reader.whole(entry, 1..=4096));
    Some(Prometheus { listen: listen?, max_series: usize::try_from(max_series?).ok()? })
}

/// An address with a port, or off. An invalid address is refused here; whether it is in use shows when the server starts.
fn listen(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Option<Option<SocketAddr>> {
    let text = reader.word(entry)?;
    if is_off(entry) {
        return Some(None);
    }
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() > 0 => {
            if !address.ip().is_loopback() {
                reader.note(format!(
                    "metrics are served at {address}: anyone who can reach this address can read the names of mounts and servers"
                ));
            }
            Some(Some(address))
        }
        _ => {
            reader.refuse(
                entry.value.at,
                format!(
                    "`listen` is {}; write an address and a port, such as 127.0.0.1:9437 or [::1]:9437, or off",
                    quoted(text)
                ),
            );
            None
        }
    }
}

/// Whether the value is one of YAML's words for off.
pub fn is_off(entry: &YamlEntry) -> bool {
    matches!(&entry.value.value, YamlValue::Plain(text) if ["off", "no", "false"].contains(&text.to_ascii_lowercase().as_str()))
}

/// The section `otlp`; `Some(None)` if it is off.
pub fn otlp(reader: &mut ConfigReader<'_>, all: &ConfigSection<'_>) -> Option<Option<Otlp>> {
    let keys = ["endpoint", "protocol", "interval_sec", "timeout_sec", "buffer_kb", "headers"];
    let section = all.section(reader, "otlp", &keys)?;
    let [endpoint, protocol, interval, timeout, buffer, headers] = keys.map(|key| section.get(reader, key));
    // All keys are read, so that errors are reported even if the section is off.
    let protocol =
        protocol.and_then(|entry| reader.choice(entry, &[("grpc", OtlpProtocol::Grpc), ("http", OtlpProtocol::Http)]));
    let is_grpc = protocol == Some(OtlpProtocol::Grpc);
    let endpoint = endpoint.and_then(|entry| endpoint_of(reader, entry, is_grpc));
    let interval = interval.and_then(|entry| reader.seconds(entry, 1.0, 3600.0));
    let timeout = timeout.and_then(|entry| reader.seconds(entry, 0.1, 60.0));
    let buffer = buffer.and_then(|entry| reader.whole(entry, 64..=65_536));
    let headers = headers.and_then(|entry| headers_of(reader, entry));
    let (protocol, interval, timeout, headers) = (protocol?, interval?, timeout?, headers?);
    let buffer = usize::try_from(buffer?).ok()? * 1024;
    Some(endpoint?.map(|endpoint| Otlp { endpoint, protocol, interval, timeout, headers, buffer }))
}

/// The section `webhook`; `Some(None)` if it is off.
pub fn webhook(reader: &mut ConfigReader<'_>, all: &ConfigSection<'_>) -> Option<Option<WebhookConfig>> {
    let keys = ["url", "timeout_sec", "headers"];
    let section = all.section(reader, "webhook", &keys)?;
    let [url, timeout, headers] = keys.map(|key| section.get(reader, key));
    // All keys are read, so that errors are reported even if the section is off.
    let url = url.and_then(|entry| url_of(reader, entry, |_| None));
    let timeout = timeout.and_then(|entry| reader.seconds(entry, 0.1, 60.0));
    let headers = headers.and_then(|entry| headers_of(reader, entry));
    let (timeout, headers) = (timeout?, headers?);
    Some(url?.map(|url| WebhookConfig { url, headers, timeout }))
}

/// The section `kubernetes_events`; `Some(None)` if it is off.
pub fn kubernetes_events(
    reader: &mut ConfigReader<'_>,
    all: &ConfigSection<'_>,
) -> Option<Option<KubernetesEventsConfig>> {
    let keys = ["enabled", "timeout_sec"];
    let section = all.section(reader, "kubernetes_events", &keys)?;
    let [enabled, timeout] = keys.map(|key| section.get(reader, key));
    let enabled = enabled.and_then(|entry| reader.flag(entry));
    let timeout = timeout.and_then(|entry| reader.seconds(entry, 0.1, 60.0))?;
    Some(enabled?.then_some(KubernetesEventsConfig { timeout }))
}

fn endpoint_of(reader: &mut ConfigReader<'_>, entry: &YamlEntry, is_grpc: bool) -> Option<Option<Uri>> {
    url_of(reader, entry, |uri| wrong_for_otlp(uri, is_grpc))
}

fn wrong_for_otlp(uri: &Uri, is_grpc: bool) -> Option<&'static str> {
    match uri {
        uri if uri.port_u16().is_none_or(|port| port == 0) => {
            Some("write the port, too: 4317 for grpc and 4318 for http, as a rule")
        }
        uri if uri.query().is_some() => Some("remove what is behind the `?`"),
        uri if is_grpc && uri.path() != "/" => Some("remove the path: gRPC has its own"),
        _ => None,
    }
}

/// The address of a collector.
///
/// # Errors
///
/// When the address is invalid; the error says what to write instead.
pub fn otlp_endpoint(text: &str, protocol: OtlpProtocol) -> Result<Uri, &'static str> {
    address_of(text, |uri| wrong_for_otlp(uri, protocol == OtlpProtocol::Grpc))
}

/// An address. `wrong` returns further errors.
fn address_of(text: &str, wrong: impl Fn(&Uri) -> Option<&'static str>) -> Result<Uri, &'static str> {
    let uri = text.parse::<Uri>().map_err(|_| "write http://HOST:PORT, or off")?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err("begin it with http:// or https://");
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("write passwords into `headers`");
    }
    wrong(&uri).map_or(Ok(uri), Err)
}

/// An address, or off. `wrong` returns further errors.
fn url_of(
    reader: &mut ConfigReader<'_>,
    entry: &YamlEntry,
    wrong: impl Fn(&Uri) -> Option<&'static str>,
) -> Option<Option<Uri>> {
    let text = reader.word(entry)?;
    if is_off(entry) {
        return Some(None);
    }
    match address_of(text, wrong) {
        Ok(uri) => Some(Some(uri)),
        Err(wrong) => {
            reader.refuse(entry.value.at, format!("`{}` is {}; {wrong}", entry.key, quoted(text)));
            None
        }
    }
}

fn headers_of(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Option<HeaderMap> {
    // Headers that the protocol itself sets.
    const OURS: [&str; 8] = [
        "content-type",
        "content-length",
        "host",
        "connection",
        "transfer-encoding",
        "te",
        "user-agent",
        "grpc-timeout",
    ];
    let mut headers = HeaderMap::new();
    let mut is_good = true;
    for entry in reader.map("`headers`", &entry.value)? {
        let name = entry.key.to_ascii_lowercase();
        let value = reader.word(entry);
        let wrong = match (HeaderName::from_bytes(name.as_bytes()), value.map(HeaderValue::from_str)) {
            (_, None) => {
                is_good = false;
                continue;
            }
            (Err(_), _) => "is no name of a header; letters, digits and hyphens are",
            (Ok(name), _) if OURS.contains(&name.as_str()) || name.as_str().ends_with("-bin") => {
                "is not for you to set; remove it"
            }
            (_, Some(Err(_))) => "has a value that no header can have; write printable characters",
            (Ok(name), Some(Ok(mut value))) => {
                // The value is never shown.
                value.set_sensitive(true);
                headers.insert(name, value);
                continue;
            }
        };
        reader.refuse(entry.at, format!("the header {} {wrong}", quoted(&entry.key)));
        is_good = false;
    }
    is_good.then_some(headers)
}
