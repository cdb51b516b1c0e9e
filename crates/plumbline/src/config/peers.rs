//! The section `peers`: the exchange between daemons of clients and servers.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use http::uri::Authority;

use super::{
    native::ConfigSection,
    node::{YamlEntry, YamlValue},
    publish::is_off,
    reader::{ConfigReader, quoted},
};

/// The settings of the exchange between daemons of clients and servers, and of their certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeersConfig {
    /// The address at which this host answers questions; `None`: it answers none.
    pub listen: Option<SocketAddr>,
    /// The servers that this host asks.
    pub ask: AskedServers,
    /// The time limit of a question: 0.1 to 30 s.
    pub timeout: Duration,
    /// This host's certificate and the intermediate ones up to the authority's: a PEM file.
    pub certificate: PathBuf,
    /// The certificate's private key: a file of PEM.
    pub key: PathBuf,
    /// The certificate of the authority that has issued all peers' certificates: a PEM file.
    pub authority: PathBuf,
}

/// The servers that are asked for their side of an incident.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskedServers {
    /// No server.
    Nobody,
    /// Every server, at its name or address in the mount and this port.
    Port(u16),
    /// By a server's name or address in the mount: the address of its daemon.
    Listed(BTreeMap<String, Authority>),
}

impl AskedServers {
    /// The address of a server's daemon; `None` if it is not asked.
    pub fn of(&self, server: &str) -> Option<Authority> {
        match self {
            Self::Nobody => None,
            Self::Port(port) if server.contains(':') => format!("[{server}]:{port}").parse().ok(),
            Self::Port(port) => format!("{server}:{port}").parse().ok(),
            Self::Listed(listed) => listed.get(server).cloned(),
        }
    }
}

/// The section `peers`; `Some(None)` if it is off.
pub fn peers(reader: &mut ConfigReader<'_>, all: &ConfigSection<'_>) -> Option<Option<PeersConfig>> {
    let keys = ["listen", "ask", "timeout_sec", "certificate", "key", "authority"];
    let section = all.section(reader, "peers", &keys)?;
    let [listen, ask, timeout, certificate, key, authority] = keys.map(|key| section.get(reader, key));
    // All keys are read, so that errors are reported even if the section is off.
    let places = [listen, ask].map(|entry| entry.map(|entry| entry.value.at));
    let listen = listen.and_then(|entry| listen_of(reader, entry));
    let ask = ask.and_then(|entry| ask_of(reader, entry));
    let timeout = timeout.and_then(|entry| reader.seconds(entry, 0.1, 30.0));
    let files = [certificate, key, authority].map(|entry| Some((entry?.key.as_str(), file(reader, entry?)?)));
    let (listen, ask, timeout) = (listen?, ask?, timeout?);
    let [certificate, key, authority] = files;
    let (certificate, key, authority) = (certificate?, key?, authority?);
    if listen.is_none() && ask == AskedServers::Nobody {
        return Some(None);
    }
    let [at_listen, at_ask] = places;
    let at = if listen.is_some() { at_listen } else { at_ask }.unwrap_or(section.at);
    let mut needed = |(key, file): (&str, Option<PathBuf>)| {
        if file.is_none() {
            let text = format!(
                "`{key}` is off, and peers prove who they are by certificates; write the path of a file (docs/server.md)"
            );
            reader.refuse(at, text);
        }
        file
    };
    let (certificate, key, authority) = (needed(certificate), needed(key), needed(authority));
    Some(Some(PeersConfig { listen, ask, timeout, certificate: certificate?, key: key?, authority: authority? }))
}

fn listen_of(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Option<Option<SocketAddr>> {
    let text = reader.word(entry)?;
    if is_off(entry) {
        return Some(None);
    }
    let address = text.parse::<SocketAddr>().ok().filter(|address| address.port() > 0);
    if address.is_none() {
        let text = format!(
            "`listen` is {}; write an address and a port, such as 0.0.0.0:9438 or 10.0.0.5:9438, or off",
            quoted(text)
        );
        reader.refuse(entry.value.at, text);
    }
    address.map(Some)
}

fn ask_of(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Option<AskedServers> {
    match &entry.value.value {
        YamlValue::Map(servers) => {
            let listed: Vec<_> = servers.iter().map(|server| asked(reader, server)).collect();
            let listed: BTreeMap<_, _> = listed.into_iter().collect::<Option<_>>()?;
            Some(if listed.is_empty() { AskedServers::Nobody } else { AskedServers::Listed(listed) })
        }
        _ if is_off(entry) => Some(AskedServers::Nobody),
        YamlValue::Plain(text) if text.parse::<u16>().is_ok_and(|port| port > 0) => {
            Some(AskedServers::Port(text.parse().ok()?))
        }
        _ => {
            let text = "`ask` is no port; write the port at which the daemons of all servers listen, such as 9438, or {SERVER: HOST:PORT}, \
                        or off";
            reader.refuse(entry.value.at, text);
            None
        }
    }
}

fn asked(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Option<(String, Authority)> {
    let text = reader.word(entry)?;
    let authority = text.parse::<Authority>().ok();
    let is_good = |at: &Authority| at.port_u16().is_some_and(|port| port > 0) && !at.as_str().contains('@');
    let authority = authority.filter(is_good);
    if authority.is_none() {
        let server = quoted(&entry.key);
        let text = format!("the daemon of {server} is at {}; write HOST:PORT, such as filer1:9438", quoted(text));
        reader.refuse(entry.value.at, text);
    }
    Some((entry.key.clone(), authority?))
}

/// The path of a file, or off.
fn file(reader: &mut ConfigReader<'_>, entry: &YamlEntry) -> Option<Option<PathBuf>> {
    let text = reader.word(entry)?;
    if is_off(entry) {
        return Some(None);
    }
    if !text.starts_with('/') || text.contains('\0') {
        let text = format!("`{}` is {}; write the absolute path of a file, or off", entry.key, quoted(text));
        reader.refuse(entry.value.at, text);
        return None;
    }
    Some(Some(PathBuf::from(text)))
}
