//! The server's side of incidents: this daemon asks the daemons of servers for it, and answers the daemons of clients.

use std::{collections::HashMap, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use http::uri::Authority;
use model::{Host, Incident, Level, Losses, Nanos};
use nix::sys::eventfd::{EfdFlags, EventFd};
use probes::Recorder;

use super::{
    Daemon, losses_of, nanos,
    sources::{Sources, Wake},
};
use crate::{
    config::{AskedServers, Config, PeersConfig},
    detection::{ChangeExt, EpisodeChange},
    evidence::{IncidentId, MAX_ANSWERS},
    peers::{self, LONGEST, PeerAnswer, PeerAsker, PeerQuestion, ServedNow},
    publish::{Exchange, HttpServer, Outcomes},
    source::this_host,
    view::clock::Clock,
};

/// The probe whose requests a server's daemon sees, too.
const ASKED_FOR: &str = "nfs";
/// The shortest time until a server is asked again; it triples with each question about the incident.
const AGAIN: Duration = Duration::from_secs(20);
/// The most incidents about which servers are asked at the same time. No question is asked about further ones.
const MAX_INCIDENTS: usize = 16;

/// The exchange with the daemons of clients and of servers.
pub struct Peers {
    exchange: Arc<Exchange<ServedNow>>,
    /// Readable when answers from servers have arrived.
    wake: Arc<EventFd>,
    server: Option<HttpServer>,
    asker: Option<PeerAsker>,
    wanted: Option<PeersConfig>,
    /// The open incidents about which servers are asked.
    open: HashMap<IncidentId, AskedIncident>,
    /// Questions to servers: how many were answered, and how many were not.
    asked: Arc<Outcomes>,
    /// Questions from clients: how many were answered, and how many were refused.
    told: Arc<Outcomes>,
}

struct AskedIncident {
    at: Authority,
    /// When the incident's first window began, CLOCK_MONOTONIC.
    begun: Nanos,
    /// When the server was last asked.
    last: Nanos,
    asked: usize,
    /// Whether the incident has changed since.
    is_due: bool,
}

impl Peers {
    /// Starts what the configuration wants. If the server or the questions cannot start, that is logged, and is no error.
    ///
    /// # Errors
    ///
    /// When no file descriptor is left.
    pub fn start(config: &Config, sources: &Sources) -> Result<Self> {
        let exchange = Arc::new(Exchange::new().context("cannot make an eventfd")?);
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC);
        let wake = Arc::new(wake.context("cannot make an eventfd")?);
        sources.add(&*exchange, Wake::Publish)?;
        sources.add(&*wake, Wake::Publish)?;
        let mut peers = Self {
            exchange,
            wake,
            server: None,
            asker: None,
            wanted: None,
            open: HashMap::new(),
            asked: Arc::default(),
            told: Arc::default(),
        };
        peers.configure(config);
        Ok(peers)
    }

    /// Applies another configuration, and reads the certificates again.
    pub fn configure(&mut self, config: &Config) {
        self.stop();
        self.exchange.open();
        self.wanted.clone_from(&config.peers);
        let Some(wanted) = &config.peers else { return };
        if let Some(address) = wanted.listen {
            match peers::serve(address, wanted, Arc::clone(&self.exchange), Arc::clone(&self.told)) {
                Ok(server) => {
                    tracing::info!("peers: clients may ask at {} what was served to them", server.address());
                    self.server = Some(server);
                }
                Err(error) => tracing::warn!("peers: clients get no answers: {error:#}; correct that, and reload"),
            }
        }
        if wanted.ask != AskedServers::Nobody {
            match PeerAsker::start(wanted, Arc::clone(&self.wake)) {
                Ok(asker) => {
                    tracing::info!("peers: servers are asked for their side of incidents");
                    self.asker = Some(asker);
                }
                Err(error) => tracing::warn!("peers: servers are not asked: {error:#}; correct that, and reload"),
            }
        }
    }

    /// Stops answering and asking. Clients that wait for an answer get none.
    pub fn stop(&mut self) {
        self.exchange.close();
        (self.server, self.asker) = (None, None);
        self.open.clear();
    }

    /// Questions to servers, answered and not answered; questions from clients, answered and refused. `None` if not configured.
    pub fn counts(&self) -> [Option<(u64, u64)>; 2] {
        let wanted = self.wanted.as_ref();
        let asks = wanted.filter(|wanted| wanted.ask != AskedServers::Nobody);
        let tells = wanted.filter(|wanted| wanted.listen.is_some());
        [asks.map(|_| self.asked.read()), tells.map(|_| self.told.read())]
    }

    /// Takes note that an incident has begun, goes on or is over. Asks its server at once if it has begun or is over, else when the server is due.
    pub fn incident(
        &mut self,
        id: &IncidentId,
        incident: &Incident,
        change: &EpisodeChange,
        recorder: Duration,
        now: Nanos,
    ) {
        let wanted = self.wanted.as_ref().filter(|_| self.asker.is_some() && incident.anomaly.probe == ASKED_FOR);
        let Some(wanted) = wanted else { return };
        if let Some(known) = self.open.get_mut(id) {
            known.is_due |= !change.closed();
        } else if !change.closed() && self.open.len() < MAX_INCIDENTS {
            let Some(at) = incident.mount().and_then(|mount| wanted.ask.of(&mount.server)) else { return };
            let begun = change.episode().window.from;
            self.open.insert(id.clone(), AskedIncident { at, begun, last: 0, asked: 0, is_due: true });
        }
        if change.closed() {
            // If a question is due, it is asked now, however recent the previous one is.
            if let Some(mut last) = self.open.remove(id) {
                last.last = 0;
                self.ask(id, &mut last, recorder, now);
            }
        } else {
            self.ask_due(recorder, now);
        }
    }

    /// Asks the servers that are due.
    pub fn ask_due(&mut self, recorder: Duration, now: Nanos) {
        let mut open = std::mem::take(&mut self.open);
        for (id, incident) in &mut open {
            self.ask(id, incident, recorder, now);
        }
        self.open = open;
    }

    fn ask(&self, id: &IncidentId, incident: &mut AskedIncident, recorder: Duration, now: Nanos) {
        let Some(asker) = self.asker.as_ref().filter(|_| incident.is_due && incident.asked < MAX_ANSWERS) else {
            return;
        };
        let pause = nanos(AGAIN).saturating_mul(3_u64.saturating_pow(incident.asked.saturating_sub(1) as u32));
        if incident.last != 0 && now.saturating_sub(incident.last) < pause {
            return;
        }
        let span = now.saturating_sub(incident.begun).saturating_add(nanos(recorder));
        let seconds = u32::try_from(span.div_ceil(1_000_000_000)).unwrap_or(LONGEST).clamp(1, LONGEST);
        (incident.last, incident.asked, incident.is_due) = (now, incident.asked + 1, false);
        if !asker.ask(PeerQuestion { incident: id.clone(), at: incident.at.clone(), seconds }) {
            self.asked.failed(1);
            tracing::warn!(
                incident = id.as_str(),
                "peers: {} is not asked: too many questions to other servers are waiting",
                incident.at
            );
        }
    }
}

impl Daemon {
    /// Answers the clients that wait, and passes the servers' answers to the collector.
    pub(super) fn answer_peers(&mut self) {
        if self.peers.exchange.is_asked() {
            self.peers.exchange.answer(self.served());
        }
        // The read fails if there is nothing to reset.
        let _ = self.peers.wake.read();
        let answers = self.peers.asker.as_ref().map(PeerAsker::answers).unwrap_or_default();
        for PeerAnswer { incident, at, answer } in answers {
            match answer {
                Ok(answer) => {
                    self.peers.asked.succeeded();
                    let refused =
                        self.collector.as_ref().and_then(|collector| collector.join(incident.clone(), answer).err());
                    if let Some(refused) = refused {
                        tracing::warn!(
                            incident = incident.as_str(),
                            "peers: what {at} has answered is lost: {refused}"
                        );
                    }
                }
                Err(why) => {
                    self.peers.asked.failed(1);
                    tracing::warn!(
                        incident = incident.as_str(),
                        "peers: {at} has not given the server's side of {}, whose verdict stays as it is: {why}",
                        incident.as_str()
                    );
                }
            }
        }
    }

    /// What this host has served in the last [`LONGEST`] seconds. About this host, a client learns only its name, its version and its losses.
    fn served(&self) -> ServedNow {
        let (now, watch) = (nanos(probes::monotonic()), self.source.watch());
        let recorder = watch.recorder().unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read the flight recorder");
            Recorder::default()
        });
        let recorder = recorder.excerpt(now.saturating_sub(u64::from(LONGEST) * 1_000_000_000), usize::MAX);
        let served: Vec<_> = probes::at(Level::Served).map(|protocol| protocol.name).collect();
        let mut losses = losses_of(watch, 0);
        losses.probes.retain(|(probe, _)| served.contains(&probe.as_str()));
        let Host { name, plumbline, .. } = this_host();
        let host = Host { name, plumbline, ..Host::default() };
        let losses = Losses { probes: losses.probes, ..Losses::default() };
        let about = Incident { id: "asked-by-a-client".into(), host, losses, closed: true, ..Incident::default() };
        ServedNow { recorder, now, clock: Clock::now(), about }
    }

    /// Asks the servers of open incidents again when they are due, and frees an answer that no client needs any more.
    pub(super) fn look_after_peers(&mut self) {
        self.peers.ask_due(self.setup.config.evidence.recorder, nanos(probes::monotonic()));
        self.peers.exchange.tidy();
    }
}
