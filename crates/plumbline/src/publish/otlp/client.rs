//! The way to the collector: OTLP over gRPC, or protobuf over HTTP/1.1; with TLS if the endpoint says https.
//!
//! tokio lives in here and nowhere else: a send is a call that comes back within the time limit.

use std::time::Duration;

use anyhow::{Context, Result};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header, uri::PathAndQuery};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{
        Client as HttpClient,
        connect::{Connect, HttpConnector},
    },
    rt::TokioExecutor,
};
use model::text::printable;
use opentelemetry_proto::tonic::collector::{
    logs::v1::ExportLogsServiceResponse, metrics::v1::ExportMetricsServiceResponse,
};
use prost::{
    Message,
    bytes::{Buf, BufMut, Bytes},
};
use tokio::runtime::Runtime;
use tonic::{
    Code, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    metadata::MetadataMap,
    transport::{Channel, ClientTlsConfig, Endpoint},
};

use super::{Signal, request::Batch};
use crate::config::{Otlp, OtlpProtocol};

/// No answer is longer, bytes.
const MAX_ANSWER: usize = 64 << 10;
/// Characters of a collector's own words that are shown.
const MAX_WORDS: usize = 200;
const USER_AGENT: &str = concat!("plumbline/", env!("CARGO_PKG_VERSION"));

/// What the collector did not take of a request that it took.
#[derive(Debug, Default)]
pub struct Rejected {
    pub items: u64,
    pub message: String,
}

/// Why a request was not taken.
pub enum Failure {
    /// It may be taken another time.
    Passing { why: String, again_in: Option<Duration> },
    /// It never will.
    Final(String),
}

/// One collector.
pub struct Client {
    runtime: Runtime,
    timeout: Duration,
    headers: HeaderMap,
    way: Way,
}

enum Way {
    Grpc(Grpc<Channel>),
    Http(HttpClient<HttpConnector, Full<Bytes>>, Uri),
    Https(HttpClient<HttpsConnector<HttpConnector>, Full<Bytes>>, Uri),
}

impl Client {
    /// Connects when there is something to send.
    ///
    /// # Errors
    ///
    /// When TLS is asked for and this host knows no certificate authority.
    pub fn new(config: &Otlp, runtime: Runtime) -> Result<Self> {
        // Connections belong to the runtime.
        let entered = runtime.enter();
        let endpoint = config.endpoint.clone();
        let is_tls = endpoint.scheme() == Some(&http::uri::Scheme::HTTPS);
        let pool = HttpClient::builder(TokioExecutor::new());
        let roots = "no certificate authorities are found here; install ca-certificates";
        let way = match (config.protocol, is_tls) {
            (OtlpProtocol::Grpc, _) => {
                let mut endpoint = Endpoint::from(endpoint).connect_timeout(config.timeout).user_agent(USER_AGENT)?;
                if is_tls {
                    endpoint = endpoint.tls_config(ClientTlsConfig::new().with_native_roots()).context(roots)?;
                }
                Way::Grpc(Grpc::new(endpoint.connect_lazy()))
            }
            (OtlpProtocol::Http, false) => Way::Http(pool.clone().build_http(), endpoint),
            (OtlpProtocol::Http, true) => {
                let connector = HttpsConnectorBuilder::new().with_native_roots().context(roots)?;
                Way::Https(pool.clone().build(connector.https_only().enable_http1().build()), endpoint)
            }
        };
        drop(entered);
        Ok(Self { runtime, timeout: config.timeout, headers: config.headers.clone(), way })
    }

    /// Sends one request and waits for the answer.
    ///
    /// # Errors
    ///
    /// When it was not taken: see [`Failure`].
    pub fn send(&mut self, batch: &Batch) -> Result<Rejected, Failure> {
        let (signal, body, headers) = (batch.signal, batch.body.clone(), self.headers.clone());
        let way = &mut self.way;
        let answer = async {
            match way {
                Way::Grpc(client) => by_grpc(client, signal, headers, body).await,
                Way::Http(client, base) => by_http(client, base, signal, headers, body).await,
                Way::Https(client, base) => by_http(client, base, signal, headers, body).await,
            }
        };
        let limit = self.timeout;
        let answer = self.runtime.block_on(async { tokio::time::timeout(limit, answer).await });
        match answer {
            Ok(answer) => answer.map(|answer| rejected(signal, &answer)),
            Err(_) => {
                let why = format!("no answer within {} s", limit.as_secs_f64());
                Err(Failure::Passing { why, again_in: None })
            }
        }
    }
}

async fn by_grpc(
    client: &mut Grpc<Channel>,
    signal: Signal,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Bytes, Failure> {
    let path = PathAndQuery::from_static(match signal {
        Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        Signal::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    });
    let passing = |error: tonic::transport::Error| Failure::Passing { why: chain(&error), again_in: None };
    client.ready().await.map_err(passing)?;
    let mut request = tonic::Request::new(body);
    *request.metadata_mut() = MetadataMap::from_headers(headers);
    match client.unary(request, path, Encoded).await {
        Ok(answer) => Ok(answer.into_inner()),
        Err(status) => {
            let why = chain(&status);
            // The codes that OTLP calls retryable, and what comes of a connection that breaks.
            let passes = matches!(
                status.code(),
                Code::Cancelled
                    | Code::DeadlineExceeded
                    | Code::Aborted
                    | Code::OutOfRange
                    | Code::Unavailable
                    | Code::DataLoss
                    | Code::ResourceExhausted
                    | Code::Unknown
            );
            Err(if passes { Failure::Passing { why, again_in: None } } else { Failure::Final(why) })
        }
    }
}

async fn by_http<C: Connect + Clone + Send + Sync + 'static>(
    client: &HttpClient<C, Full<Bytes>>,
    base: &Uri,
    signal: Signal,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Bytes, Failure> {
    let place = match signal {
        Signal::Metrics => "v1/metrics",
        Signal::Logs => "v1/logs",
    };
    let base = base.to_string();
    let separator = if base.ends_with('/') { "" } else { "/" };
    let mut request = Request::post(format!("{base}{separator}{place}"))
        .body(Full::new(body))
        .map_err(|error| Failure::Final(error.to_string()))?;
    *request.headers_mut() = headers;
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    let passing = |why| Failure::Passing { why, again_in: None };
    let answer = client.request(request).await.map_err(|error| passing(chain(&error)))?;
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, MAX_ANSWER).collect().await;
    if head.status.is_success() {
        // It is taken, whatever its answer is like.
        return Ok(body.map(|body| body.to_bytes()).unwrap_or_default());
    }
    let words = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned()).unwrap_or_default();
    let why = format!("{} {}", head.status, words.chars().take(MAX_WORDS).collect::<String>());
    let why = printable(why.trim().as_bytes());
    match head.status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => {
            let after = head.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            Err(Failure::Passing { why, again_in: after.map(Duration::from_secs) })
        }
        _ => Err(Failure::Final(why)),
    }
}

/// What an answer says that was not taken. One that cannot be read says nothing.
fn rejected(signal: Signal, answer: &[u8]) -> Rejected {
    let (items, message) = match signal {
        Signal::Metrics => {
            let answer = ExportMetricsServiceResponse::decode(answer).unwrap_or_default();
            answer.partial_success.map(|part| (part.rejected_data_points, part.error_message)).unwrap_or_default()
        }
        Signal::Logs => {
            let answer = ExportLogsServiceResponse::decode(answer).unwrap_or_default();
            answer.partial_success.map(|part| (part.rejected_log_records, part.error_message)).unwrap_or_default()
        }
    };
    let message: String = message.chars().take(MAX_WORDS).collect();
    Rejected { items: u64::try_from(items).unwrap_or(0), message: printable(message.as_bytes()) }
}

/// An error and what it came of.
fn chain(error: &dyn std::error::Error) -> String {
    let mut all: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let words: String = error.to_string().chars().take(MAX_WORDS).collect();
        // Some repeat what is below them.
        if !all.iter().any(|above| above.contains(&words)) {
            all.push(words);
        }
        next = error.source();
    }
    printable(all.join(": ").as_bytes())
}

/// Messages that are encoded already: they wait as bytes, whose number is known.
struct Encoded;

impl Codec for Encoded {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
