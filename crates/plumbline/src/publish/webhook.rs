//! Posts incidents as JSON to an address that the operator configures, when they begin and when they are over.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use prost::bytes::Bytes;

use super::{
    delivery::{Delivery, Destination},
    web::{Failure, Http},
    worker::Outcomes,
};
use crate::config::WebhookConfig as Config;

struct Webhook {
    http: Http,
    config: Config,
}

/// Starts the thread that posts to the configured address.
///
/// # Errors
///
/// When the thread or the runtime cannot be created, or TLS cannot be set up.
pub fn start(config: &Config, outcomes: Arc<Outcomes>) -> Result<Delivery> {
    Delivery::start(|| Ok(Webhook { http: Http::new(&config.url)?, config: config.clone() }), outcomes)
}

impl Destination for Webhook {
    const NAME: &'static str = "webhook";

    fn shown(&self) -> String {
        self.config.shown()
    }

    fn timeout(&self) -> Duration {
        self.config.timeout
    }

    async fn send(&self, body: Bytes) -> Result<(), Failure> {
        let Config { url, headers, .. } = &self.config;
        self.http.post(url.clone(), headers.clone(), "application/json", body).await.map(drop)
    }
}
