//! A request to somebody else's server: HTTP/1.1, with TLS if its address says https.

use std::time::Duration;

use anyhow::{Context, Result};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, ResponseFuture, connect::HttpConnector},
    rt::TokioExecutor,
};
use model::text::printable;
use prost::bytes::Bytes;

/// No answer is longer, bytes.
const MAX_ANSWER: usize = 64 << 10;
/// Characters of a server's own words that are shown.
pub const MAX_WORDS: usize = 200;
/// How we call ourselves.
pub const USER_AGENT: &str = concat!("plumbline/", env!("CARGO_PKG_VERSION"));
/// What is missing where TLS cannot be set up.
pub const NO_ROOTS: &str = "no certificate authorities are found here; install ca-certificates";

/// Why a request was not taken.
pub enum Failure {
    /// It may be taken another time; the server may have said when.
    Passing { why: String, again_in: Option<Duration> },
    /// It never will.
    Final(String),
}

/// Sends requests, and keeps the connection between them.
pub enum Http {
    Plain(Client<HttpConnector, Full<Bytes>>),
    Tls(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
}

impl Http {
    /// For this address. To be called within a tokio runtime, to which connections belong.
    ///
    /// # Errors
    ///
    /// When TLS is asked for and this host knows no certificate authority.
    pub fn new(address: &Uri) -> Result<Self> {
        let pool = Client::builder(TokioExecutor::new());
        if address.scheme() != Some(&http::uri::Scheme::HTTPS) {
            return Ok(Self::Plain(pool.build_http()));
        }
        let connector = HttpsConnectorBuilder::new().with_native_roots().context(NO_ROOTS)?;
        Ok(Self::Tls(pool.build(connector.https_only().enable_http1().build())))
    }

    /// Posts a body, and returns what the server answers.
    ///
    /// # Errors
    ///
    /// When it was not taken: see [`Failure`].
    pub async fn post(
        &self,
        address: Uri,
        headers: HeaderMap,
        content_type: &'static str,
        body: Bytes,
    ) -> Result<Bytes, Failure> {
        let mut request =
            Request::post(address).body(Full::new(body)).map_err(|error| Failure::Final(error.to_string()))?;
        *request.headers_mut() = headers;
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        let passing = |why| Failure::Passing { why, again_in: None };
        let answer = self.request(request).await.map_err(|error| passing(chain(&error)))?;
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

    fn request(&self, request: Request<Full<Bytes>>) -> ResponseFuture {
        match self {
            Self::Plain(client) => client.request(request),
            Self::Tls(client) => client.request(request),
        }
    }
}

/// An error and what it came of.
pub fn chain(error: &dyn std::error::Error) -> String {
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
