//! Prometheus' HTTP API: two kinds of queries, with limits of time and size.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, bail};
use http::{HeaderMap, Uri};
use model::text::printable;
use serde::Deserialize;
use tokio::runtime::Runtime;

use crate::publish::web::{Failure, Http, MAX_WORDS};

/// The most bytes of an answer that are read.
const MOST: usize = 128 << 20;

/// A Prometheus.
pub struct Api {
    runtime: Runtime,
    http: Http,
    base: Uri,
    headers: HeaderMap,
    timeout: Duration,
}

/// A series of an answer: its labels, and its values with their times in seconds since 1970.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct QuerySeries {
    /// The labels.
    pub metric: BTreeMap<String, String>,
    /// The values of a range query.
    values: Vec<(f64, String)>,
    /// The value of an instant query.
    value: Option<(f64, String)>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct QueryResponse {
    status: String,
    error: String,
    data: Data,
    warnings: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Data {
    result: Vec<QuerySeries>,
}

impl QuerySeries {
    /// The value of a label; empty if the series does not have it.
    pub fn label(&self, name: &str) -> &str {
        self.metric.get(name).map_or("", String::as_str)
    }

    /// The times, milliseconds since 1970, at which it had a value.
    pub fn times(&self) -> impl Iterator<Item = i64> {
        self.values.iter().map(|(at, _)| (at * 1e3) as i64)
    }

    /// Its value, if that is a number.
    pub fn number(&self) -> Option<f64> {
        self.value.as_ref().and_then(|(_, text)| text.parse().ok()).filter(|value: &f64| value.is_finite())
    }
}

impl Api {
    /// A client of the Prometheus at this address. Sends no request yet.
    ///
    /// # Errors
    /// When no connection is possible, for instance because there are no certificate authorities.
    pub fn new(base: Uri, headers: HeaderMap, timeout: Duration) -> Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start tokio")?;
        let http = {
            let _entered = runtime.enter();
            Http::new(&base)?
        };
        Ok(Self { runtime, http, base, headers, timeout })
    }

    /// The values of an expression over a range, one every `step` seconds; times are seconds since 1970. Appends Prometheus' warnings to
    /// `warnings`.
    ///
    /// # Errors
    /// When there is no answer in time, or it is too long or not from Prometheus.
    pub fn range(
        &self,
        query: &str,
        (from, to, step): (i64, i64, i64),
        warnings: &mut Vec<String>,
    ) -> Result<Vec<QuerySeries>> {
        let [from, to, step] = [from, to, step].map(|number| number.to_string());
        self.ask("query_range", &[("query", query), ("start", &from), ("end", &to), ("step", &step)], warnings)
    }

    /// The values of an expression at a time, seconds since 1970.
    ///
    /// # Errors
    /// As [`Api::range`].
    pub fn at(&self, query: &str, time: i64, warnings: &mut Vec<String>) -> Result<Vec<QuerySeries>> {
        self.ask("query", &[("query", query), ("time", &time.to_string())], warnings)
    }

    fn ask(&self, what: &str, fields: &[(&str, &str)], warnings: &mut Vec<String>) -> Result<Vec<QuerySeries>> {
        let base = self.base.to_string();
        let address = format!("{}/api/v1/{what}", base.trim_end_matches('/'));
        let limit = ("timeout", format!("{}s", self.timeout.as_secs().max(1)));
        let fields = fields.iter().copied().chain(Some((limit.0, limit.1.as_str())));
        let body: Vec<String> = fields.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let address = address.parse().with_context(|| format!("{} is no address", printable(address.as_bytes())))?;
        let kind = "application/x-www-form-urlencoded";
        let answer = self.http.ask(address, self.headers.clone(), kind, body.join("&").into(), MOST);
        let answer = self.runtime.block_on(async { tokio::time::timeout(self.timeout, answer).await });
        let answer = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(Failure::Passing { why, .. } | Failure::Final(why))) => bail!("{why}"),
            Err(_) => bail!("no answer within {} s (--timeout)", self.timeout.as_secs_f64()),
        };
        let Ok(answer) = serde_json::from_slice::<QueryResponse>(&answer) else {
            let words: String = String::from_utf8_lossy(&answer).chars().take(MAX_WORDS).collect();
            bail!("that is no answer of Prometheus: {}", printable(words.trim().as_bytes()));
        };
        match answer.status.as_str() {
            "success" => {
                warnings.extend(answer.warnings.iter().map(|warning| printable(warning.as_bytes())));
                Ok(answer.data.result)
            }
            _ => bail!("{}", printable(answer.error.as_bytes())),
        }
    }
}

/// Encodes a text for the body of a form.
fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
