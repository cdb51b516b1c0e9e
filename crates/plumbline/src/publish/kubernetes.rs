//! Creates a Kubernetes Event (events.k8s.io/v1) about the node for each incident that begins. The Event goes to the API server of the cluster to
//! which the daemon's pod belongs.
//!
//! The name of an Event is derived from the node and the incident. So an Event is not created twice if an answer is lost: the API server
//! answers that the Event exists.

use std::{env, fs, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use jiff::Timestamp;
use model::{Incident, text::printable};
use prost::bytes::Bytes;
use serde_json::json;

use super::{
    delivery::{Delivery, Destination},
    web::{Failure, Http},
    worker::Outcomes,
};
use crate::{config::KubernetesEventsConfig as Config, page};

/// The directory in a pod with the token of its service account and the certificate authority of the API server.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The namespace of Events about objects without a namespace, such as nodes.
const NAMESPACE: &str = "default";
/// The longest note that the API server takes, in bytes.
const MAX_NOTE: usize = 1024;

/// The thread that creates Events.
pub struct EventPublisher {
    node: String,
    delivery: Delivery,
}

impl EventPublisher {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// When the environment lacks the address of the API server or the name of the node, or when the thread or the runtime cannot be created.
    pub fn start(config: &Config, outcomes: Arc<Outcomes>) -> Result<Self> {
        let node = said("NODE_NAME", "set it from spec.nodeName in the pod's manifest")?;
        let in_a_pod = "Kubernetes sets it in a pod, and the daemon runs in none";
        let [host, port] = ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"].map(|name| said(name, in_a_pod));
        let server = ApiServer::new(&host?, &port?, config.timeout)?;
        Ok(Self { node, delivery: Delivery::start(|| Ok(server), outcomes)? })
    }

    /// Queues an Event about an incident that has begun. `bundle`: the path of its bundle on the node.
    pub fn queue(&self, incident: &Incident, bundle: &Path) {
        self.delivery.queue(event(incident, bundle, &self.node, Timestamp::now()));
    }

    /// As [`Delivery::stop`].
    pub fn stop(self, deadline: std::time::Instant) {
        self.delivery.stop(deadline);
    }
}

/// The value of an environment variable.
fn said(name: &str, cure: &str) -> Result<String> {
    match env::var(name) {
        Ok(value) if !value.is_empty() => Ok(value),
        _ => bail!("{name} is not in the environment: {cure}"),
    }
}

struct ApiServer {
    /// `https://HOST:PORT`
    shown: String,
    events: Uri,
    timeout: Duration,
}

impl ApiServer {
    fn new(host: &str, port: &str, timeout: Duration) -> Result<Self> {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let shown = format!("https://{host}:{port}");
        let events = format!("{shown}/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events");
        let events = events.parse().with_context(|| {
            format!(
                "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are no address: {}",
                printable(shown.as_bytes())
            )
        })?;
        Ok(Self { shown, events, timeout })
    }

    /// A client and the service account's token, read from the files again: Kubernetes renews them while the pod runs.
    fn credentials() -> Result<(Http, HeaderMap)> {
        let read = |name| {
            let path = format!("{ACCOUNT}/{name}");
            fs::read(&path).with_context(|| format!("cannot read {path}; the pod needs `automountServiceAccountToken`"))
        };
        let http = Http::trusting(&read("ca.crt")?).with_context(|| format!("cannot use {ACCOUNT}/ca.crt"))?;
        let token = read("token")?;
        let mut value = HeaderValue::from_bytes(&[b"Bearer ", token.trim_ascii()].concat())
            .with_context(|| format!("{ACCOUNT}/token is no token"))?;
        value.set_sensitive(true);
        Ok((http, HeaderMap::from_iter([(header::AUTHORIZATION, value)])))
    }
}

impl Destination for ApiServer {
    const NAME: &'static str = "kubernetes_events";

    fn shown(&self) -> String {
        self.shown.clone()
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    async fn send(&self, body: Bytes) -> Result<(), Failure> {
        let (http, headers) =
            Self::credentials().map_err(|error| Failure::Passing { why: format!("{error:#}"), again_in: None })?;
        match http.post(self.events.clone(), headers, "application/json", body).await {
            // An earlier try has created the Event, and its answer was lost.
            Err(Failure::Final(why)) if why.starts_with(StatusCode::CONFLICT.as_str()) => Ok(()),
            answer => answer.map(drop),
        }
    }
}

/// The Event about an incident, as JSON.
fn event(incident: &Incident, bundle: &Path, node: &str, now: Timestamp) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name(node, &incident.id), "namespace": NAMESPACE},
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
        "reportingController": "plumbline",
        "reportingInstance": head(node, 128),
        "action": "Detected",
        "reason": reason(&incident.anomaly.kind),
        // `kubectl describe node` looks for the node's name as `uid`, as the kubelet writes it.
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
        "note": note(incident, bundle),
        "type": "Warning",
    }))
}

/// Lower-case letters, digits, `-` and `.`; 253 bytes at most.
fn name(node: &str, id: &str) -> String {
    let id: String = id
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' })
        .collect();
    format!("{}.{}", head(node, 150), head(id.trim_matches('-'), 100).trim_end_matches('-'))
}

/// `StorageLatency` for the type `latency`.
fn reason(kind: &str) -> String {
    let mut letters = kind.chars().filter(char::is_ascii_alphanumeric);
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    format!("Storage{}", first.into_iter().chain(letters).take(100).collect::<String>())
}

/// The page's first sentence, shortened if necessary, and the path of the bundle.
fn note(incident: &Incident, bundle: &Path) -> String {
    let bundle = format!(" Evidence: {}", printable(bundle.as_os_str().as_encoded_bytes()));
    let bundle = head(&bundle, MAX_NOTE / 2);
    let sentence = page::headline(incident);
    match head(&sentence, MAX_NOTE - bundle.len()) {
        whole if whole.len() == sentence.len() => sentence + bundle,
        _ => format!("{}...{bundle}", head(&sentence, MAX_NOTE - bundle.len() - "...".len())),
    }
}

/// The beginning of a text, at most `most` bytes.
fn head(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use model::{Anomaly, Mount, RankedMount, Ranking};

    use super::*;

    fn incident(mountpoint: &str) -> Incident {
        let mount = Mount { mountpoint: mountpoint.into(), ..Mount::default() };
        Incident {
            id: "20261125T214742Z-my_own-stalled-1".into(),
            anomaly: Anomaly { kind: "stalled".into(), observed: "2 operations hang".into(), ..Anomaly::default() },
            top: Ranking { mounts: vec![RankedMount { mount, ..RankedMount::default() }], ..Ranking::default() },
            ..Incident::default()
        }
    }

    fn made(mountpoint: &str) -> serde_json::Value {
        let now = Timestamp::from_microsecond(1_764_000_000_000_070).unwrap();
        serde_json::from_slice(&event(&incident(mountpoint), Path::new("/b.tar.zst"), "node-1", now).unwrap()).unwrap()
    }

    #[test]
    fn an_event_is_about_the_node_and_says_what_the_page_says() {
        let event = made("/mnt/a");
        assert_eq!(event["metadata"]["name"], "node-1.20261125t214742z-my-own-stalled-1");
        assert_eq!(event["eventTime"], "2025-11-24T16:00:00.000070Z");
        assert_eq!((&event["reason"], &event["type"]), (&json!("StorageStalled"), &json!("Warning")));
        assert_eq!(event["regarding"]["name"], "node-1");
        let note = event["note"].as_str().unwrap();
        assert!(note.starts_with("Plumbline on a host noticed 2 operations hang at /mnt/a"), "{note}");
        assert!(note.ends_with(". Evidence: /b.tar.zst"), "{note}");
    }

    #[test]
    fn a_note_is_as_long_as_the_api_server_takes_and_keeps_the_bundle() {
        for letter in ["x", "ä"] {
            let event = made(&format!("/{}", letter.repeat(2000)));
            let note = event["note"].as_str().unwrap();
            assert!((MAX_NOTE - 1..=MAX_NOTE).contains(&note.len()), "{}", note.len());
            assert!(note.ends_with("... Evidence: /b.tar.zst"), "{note}");
        }
    }

    #[test]
    fn an_address_of_ipv6_has_brackets() {
        let server = |host| ApiServer::new(host, "443", Duration::ZERO).map(|server| server.events.to_string());
        let path = "/apis/events.k8s.io/v1/namespaces/default/events";
        assert_eq!(server("10.96.0.1").unwrap(), format!("https://10.96.0.1:443{path}"));
        assert_eq!(server("fd00::1").unwrap(), format!("https://[fd00::1]:443{path}"));
        assert!(server("no host").is_err());
    }
}
