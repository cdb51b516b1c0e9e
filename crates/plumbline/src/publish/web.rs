//! The client for requests to other servers: HTTP/1.1, with TLS if the address begins with `https`.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, ResponseFuture, connect::HttpConnector},
    rt::TokioExecutor,
};
use model::text::printable;
use prost::bytes::Bytes;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

/// The most bytes of an answer that are read.
const MAX_ANSWER: usize = 64 << 10;
/// The most characters of a server's own message that are shown.
pub const MAX_WORDS: usize = 200;
pub const USER_AGENT: &str = concat!("plumbline/", env!("CARGO_PKG_VERSION"));
/// The error if TLS cannot be set up.
pub const NO_ROOTS: &str = "no certificate authorities are found here; install ca-certificates";

/// Why a request failed.
pub enum Failure {
    /// A retry may succeed; `again_in` is the pause that the server asks for.
    Passing { why: String, again_in: Option<Duration> },
    /// No retry will succeed. If the server has answered, the text begins with its status.
    Final(String),
}

/// Sends requests, and keeps the connection open between them.
pub enum Http {
    Plain(Client<HttpConnector, Full<Bytes>>),
    Tls(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
}

impl Http {
    /// A client for this address. Must be called inside the tokio runtime that will drive its connections.
    ///
    /// # Errors
    ///
    /// When the address uses TLS and this host has no certificate authorities.
    pub fn new(address: &Uri) -> Result<Self> {
        let pool = Client::builder(TokioExecutor::new());
        if address.scheme() != Some(&http::uri::Scheme::HTTPS) {
            return Ok(Self::Plain(pool.build_http()));
        }
        let connector = HttpsConnectorBuilder::new().with_native_roots().context(NO_ROOTS)?;
        Ok(Self::Tls(pool.build(connector.https_only().enable_http1().build())))
    }

    /// A client that trusts only these certificate authorities (PEM). Must be called inside the tokio runtime.
    ///
    /// # Errors
    ///
    /// When there is no certificate, or one that cannot be read.
    pub fn trusting(authorities: &[u8]) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(authorities) {
            roots.add(authority.context("this is no PEM")?)?;
        }
        ensure!(!roots.is_empty(), "there is no certificate in it");
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        Ok(Self::with_tls(
            tls.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth(),
        ))
    }

    /// A client that uses only this TLS configuration, and no plain HTTP. Must be called inside the tokio runtime.
    pub fn with_tls(tls: ClientConfig) -> Self {
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().build();
        Self::Tls(Client::builder(TokioExecutor::new()).build(connector))
    }

    /// Gets the content of an address, at most `most` bytes.
    ///
    /// # Errors
    ///
    /// As [`Http::ask`].
    pub async fn get(&self, address: Uri, most: usize) -> Result<Bytes, Failure> {
        let request = Request::get(address).body(Full::default());
        self.exchange(request, most).await?.map_err(Failure::Final)
    }

    /// Posts a body. Returns the body of the server's answer; empty if it cannot be read.
    ///
    /// # Errors
    ///
    /// When no answer came, or its status is no success: see [`Failure`].
    pub async fn post(
        &self,
        address: Uri,
        headers: HeaderMap,
        content_type: &'static str,
        body: Bytes,
    ) -> Result<Bytes, Failure> {
        // The status alone says that the request was accepted; an unreadable body does not matter.
        let answer = self.exchange(posted(address, headers, content_type, body), MAX_ANSWER).await?;
        Ok(answer.unwrap_or_default())
    }

    /// Posts a body and returns the answer, at most `most` bytes.
    ///
    /// # Errors
    ///
    /// As [`Http::post`]; also when the answer is longer or incomplete.
    pub async fn ask(
        &self,
        address: Uri,
        headers: HeaderMap,
        content_type: &'static str,
        body: Bytes,
        most: usize,
    ) -> Result<Bytes, Failure> {
        self.exchange(posted(address, headers, content_type, body), most).await?.map_err(Failure::Final)
    }

    /// The inner error: a successful answer whose body cannot be read.
    async fn exchange(
        &self,
        request: http::Result<Request<Full<Bytes>>>,
        most: usize,
    ) -> Result<Result<Bytes, String>, Failure> {
        let mut request = request.map_err(|error| Failure::Final(error.to_string()))?;
        request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        let passing = |why| Failure::Passing { why, again_in: None };
        let answer = self.request(request).await.map_err(|error| passing(chain(&error)))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, most).collect().await;
        if head.status.is_success() {
            return Ok(body.map(|body| body.to_bytes()).map_err(|error| chain(&*error)));
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

    fn request(&self, request: Request<Full<Bytes>>) -> ResponseFuture {
        match self {
            Self::Plain(client) => client.request(request),
            Self::Tls(client) => client.request(request),
        }
    }
}

fn posted(
    address: Uri,
    headers: HeaderMap,
    content_type: &'static str,
    body: Bytes,
) -> http::Result<Request<Full<Bytes>>> {
    let mut request = Request::post(address).body(Full::new(body))?;
    *request.headers_mut() = headers;
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    Ok(request)
}

/// The messages of an error and of its sources, joined by colons.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut all: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let words: String = error.to_string().chars().take(MAX_WORDS).collect();
        // Some errors repeat the message of their source.
        if !all.iter().any(|above| above.contains(&words)) {
            all.push(words);
        }
        next = error.source();
    }
    printable(all.join(": ").as_bytes())
}
