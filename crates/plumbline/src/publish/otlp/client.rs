//! The client of the collector: OTLP over gRPC, or protobuf over HTTP/1.1, with TLS if the endpoint's scheme is https.
//!
//! No other module uses tokio: for callers, a send is a blocking call that returns within the time limit.

use std::time::Duration;

use anyhow::{Context, Result};
use http::{HeaderMap, Uri, uri::PathAndQuery};
use model::text::printable;
use opentelemetry_proto::tonic::collector::{
    logs::v1::ExportLogsServiceResponse, metrics::v1::ExportMetricsServiceResponse,
    trace::v1::ExportTraceServiceResponse,
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

use super::{Signal, request::EncodedRequest};
use crate::{
    config::{Otlp, OtlpProtocol},
    publish::web::{Failure, Http, MAX_WORDS, NO_ROOTS, USER_AGENT, chain},
};

/// The items that the collector rejected from a request that it accepted.
#[derive(Debug, Default)]
pub struct Rejected {
    pub items: u64,
    pub message: String,
}

/// One collector.
pub struct OtlpClient {
    runtime: Runtime,
    timeout: Duration,
    headers: HeaderMap,
    way: OtlpTransport,
}

enum OtlpTransport {
    Grpc(Grpc<Channel>),
    Http(Http, Uri),
}

impl OtlpClient {
    /// A client that connects with the first send.
    ///
    /// # Errors
    ///
    /// When the endpoint uses TLS and this host has no certificate authorities.
    pub fn new(config: &Otlp, runtime: Runtime) -> Result<Self> {
        // Clients must be built inside the runtime that will drive their connections.
        let entered = runtime.enter();
        let endpoint = config.endpoint.clone();
        let way = match config.protocol {
            OtlpProtocol::Grpc => {
                let is_tls = endpoint.scheme() == Some(&http::uri::Scheme::HTTPS);
                let mut endpoint = Endpoint::from(endpoint).connect_timeout(config.timeout).user_agent(USER_AGENT)?;
                if is_tls {
                    endpoint = endpoint.tls_config(ClientTlsConfig::new().with_native_roots()).context(NO_ROOTS)?;
                }
                OtlpTransport::Grpc(Grpc::new(endpoint.connect_lazy()))
            }
            OtlpProtocol::Http => OtlpTransport::Http(Http::new(&endpoint)?, endpoint),
        };
        drop(entered);
        Ok(Self { runtime, timeout: config.timeout, headers: config.headers.clone(), way })
    }

    /// Sends one request and waits for the answer. Returns the items that the collector rejected from it.
    ///
    /// # Errors
    ///
    /// When the request as a whole failed, or no answer came in time: see [`Failure`].
    pub fn send(&mut self, batch: &EncodedRequest) -> Result<Rejected, Failure> {
        let (signal, body, headers) = (batch.signal, batch.body.clone(), self.headers.clone());
        let way = &mut self.way;
        let answer = async {
            match way {
                OtlpTransport::Grpc(client) => by_grpc(client, signal, headers, body).await,
                OtlpTransport::Http(http, base) => by_http(http, base, signal, headers, body).await,
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
        Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
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
            // The codes that OTLP calls retryable, and the codes of a broken connection.
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

async fn by_http(http: &Http, base: &Uri, signal: Signal, headers: HeaderMap, body: Bytes) -> Result<Bytes, Failure> {
    let place = match signal {
        Signal::Metrics => "v1/metrics",
        Signal::Logs => "v1/logs",
        Signal::Traces => "v1/traces",
    };
    let base = base.to_string();
    let separator = if base.ends_with('/') { "" } else { "/" };
    let address: Uri = format!("{base}{separator}{place}")
        .parse()
        .map_err(|error: http::uri::InvalidUri| Failure::Final(error.to_string()))?;
    http.post(address, headers, "application/x-protobuf", body).await
}

/// The rejected items that an answer reports; none if the answer cannot be decoded.
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
        Signal::Traces => {
            let answer = ExportTraceServiceResponse::decode(answer).unwrap_or_default();
            answer.partial_success.map(|part| (part.rejected_spans, part.error_message)).unwrap_or_default()
        }
    };
    let message: String = message.chars().take(MAX_WORDS).collect();
    Rejected { items: u64::try_from(items).unwrap_or(0), message: printable(message.as_bytes()) }
}

/// The codec for messages that are encoded already. The queue holds bytes, so that it knows their number.
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
