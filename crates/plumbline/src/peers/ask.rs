//! Asks the daemon of a server what it has served to this host. A thread of its own asks one question at a time, each with a time limit.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use http::uri::Authority;
use nix::sys::eventfd::EventFd;
use rustls::pki_types::CertificateDer;
use tokio::runtime::Runtime;

use super::{MAX_CLIENTS, PATH, tls};
use crate::{
    config::PeersConfig,
    evidence::{IncidentId, MAX_ANSWER},
    publish::{PublishWorker, web::Failure, web::Http},
    source::this_host,
};

/// The most questions that wait while one is asked.
const WAITING: usize = 8;
/// The most answers that the daemon has not read; while there are so many, no question is asked.
const UNREAD: usize = 2;

/// A question to a server's daemon.
pub struct PeerQuestion {
    /// The incident whose server side is wanted.
    pub incident: IncidentId,
    /// The address of the server's daemon.
    pub at: Authority,
    /// How far back the question goes, seconds.
    pub seconds: u32,
}

/// The result of a question.
pub struct PeerAnswer {
    /// The incident that the question was about.
    pub incident: IncidentId,
    /// The address that was asked.
    pub at: Authority,
    /// The answer, which is a bundle as received, or the reason why there is none.
    pub answer: Result<Vec<u8>, String>,
}

/// The handle of the thread that asks.
pub struct PeerAsker {
    worker: PublishWorker<PeerQuestion>,
    answers: Receiver<PeerAnswer>,
}

impl PeerAsker {
    /// Starts the thread. `wake` becomes readable when there are answers.
    ///
    /// # Errors
    ///
    /// When a certificate or a key cannot be used, or the thread cannot be made.
    pub fn start(config: &PeersConfig, wake: Arc<EventFd>) -> Result<Self> {
        let identity = tls::PeerIdentity::read(config)?;
        let own = identity.certificate();
        let tls = identity.asking()?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start tokio")?;
        let http = {
            let _entered = runtime.enter();
            Http::with_tls(tls)
        };
        let (answer, answers) = sync_channel(UNREAD);
        let work = AskerWork { runtime, http, own, timeout: config.timeout, answer, wake };
        let worker = PublishWorker::start("ask_peers", WAITING, move |questions| work.serve(questions))?;
        Ok(Self { worker, answers })
    }

    /// Queues a question. Returns false if the queue is full.
    pub fn ask(&self, question: PeerQuestion) -> bool {
        self.worker.queue(question)
    }

    /// The answers since the last call.
    pub fn answers(&self) -> Vec<PeerAnswer> {
        self.answers.try_iter().collect()
    }
}

struct AskerWork {
    runtime: Runtime,
    http: Http,
    /// This host's certificate.
    own: Option<CertificateDer<'static>>,
    timeout: Duration,
    answer: SyncSender<PeerAnswer>,
    wake: Arc<EventFd>,
}

impl AskerWork {
    fn serve(self, questions: &Receiver<PeerQuestion>) {
        for PeerQuestion { incident, at, seconds } in questions {
            let answer = self.ask(&at, seconds);
            if self.answer.send(PeerAnswer { incident, at, answer }).is_err() {
                return;
            }
            // The write fails only if the descriptor is readable already.
            let _ = self.wake.write(1);
        }
    }

    fn ask(&self, at: &Authority, seconds: u32) -> Result<Vec<u8>, String> {
        let addresses = self.named_addresses();
        let clients: String = addresses.iter().map(|address| format!("&client={address}")).collect();
        let address = format!("https://{at}{PATH}?seconds={seconds}{clients}");
        let address = address.parse().map_err(|error| format!("this is no address: {error}"))?;
        let answer = self.http.get(address, MAX_ANSWER);
        let answer = self.runtime.block_on(async { tokio::time::timeout(self.timeout, answer).await });
        match answer {
            Ok(Ok(body)) => Ok(body.into()),
            Ok(Err(Failure::Final(why) | Failure::Passing { why, .. })) => Err(why),
            Err(_) => Err(format!("no answer within {} s", self.timeout.as_secs_f64())),
        }
    }

    /// The addresses in this host's certificate. The server may see another address as the source of this connection.
    fn named_addresses(&self) -> Vec<IpAddr> {
        let Some(own) = &self.own else { return Vec::new() };
        let host = this_host();
        let addresses = host.addresses.iter().filter_map(|text| text.split('/').next()?.parse::<IpAddr>().ok());
        addresses.filter(|address| tls::names(own, *address)).take(MAX_CLIENTS).collect()
    }
}
