//! How peers identify themselves: TLS 1.3, both sides with a certificate of the same authority. Other connections are refused.

use std::{fs, net::IpAddr, path::Path, sync::Arc};

use anyhow::{Context, Result, ensure};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    client::verify_server_name,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier},
    version::TLS13,
};

use crate::{config::PeersConfig, watched};

/// The largest file of certificates, bytes.
const MAX_FILE: u64 = 1 << 20;

/// This host's key and certificates, and the authority that it trusts.
pub struct PeerIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    authority: Arc<RootCertStore>,
}

impl PeerIdentity {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// When one of the files cannot be read, or lacks a certificate or key.
    pub fn read(config: &PeersConfig) -> Result<Self> {
        let shown = |path: &Path| format!("cannot use {}", path.display());
        let mut roots = RootCertStore::empty();
        let authority = certificates(&config.authority).with_context(|| shown(&config.authority))?;
        for certificate in authority {
            roots.add(certificate).with_context(|| shown(&config.authority))?;
        }
        let chain = certificates(&config.certificate).with_context(|| shown(&config.certificate))?;
        let key = PrivateKeyDer::from_pem_slice(&read(&config.key)?)
            .context("there is no private key in it; write it as PEM, without a passphrase")
            .with_context(|| shown(&config.key))?;
        Ok(Self { chain, key, authority: Arc::new(roots) })
    }

    /// The TLS configuration of the side that answers.
    ///
    /// # Errors
    ///
    /// When key and certificate do not belong together.
    pub fn serving(self) -> Result<ServerConfig> {
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(self.authority, Arc::clone(&provider)).build()?;
        let tls = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13])?;
        let mut tls = tls.with_client_cert_verifier(verifier).with_single_cert(self.chain, self.key).context(UNFIT)?;
        // Each question has a connection of its own, and questions are rare: there are no sessions to resume.
        tls.session_storage = Arc::new(NoServerSessionStorage {});
        tls.send_tls13_tickets = 0;
        Ok(tls)
    }

    /// The TLS configuration of the side that asks.
    ///
    /// # Errors
    ///
    /// As [`PeerIdentity::serving`].
    pub fn asking(self) -> Result<ClientConfig> {
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let tls = tls.with_protocol_versions(&[&TLS13])?.with_root_certificates(self.authority);
        tls.with_client_auth_cert(self.chain, self.key).context(UNFIT)
    }

    /// This host's own certificate.
    pub fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.chain.first().cloned()
    }
}

const UNFIT: &str = "the certificate and the key do not belong together";

/// Whether a certificate names an address (subjectAltName).
pub fn names(certificate: &CertificateDer<'_>, address: IpAddr) -> bool {
    let parsed = ParsedCertificate::try_from(certificate);
    parsed.is_ok_and(|parsed| verify_server_name(&parsed, &ServerName::IpAddress(address.into())).is_ok())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let text = read(path)?;
    let all: Vec<_> = CertificateDer::pem_slice_iter(&text).collect::<Result<_, _>>().context("this is no PEM")?;
    ensure!(!all.is_empty(), "there is no certificate in it; write it as PEM");
    Ok(all)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    watched::refuse(path)?;
    let about = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(about.is_file() && about.len() <= MAX_FILE, "{} is no file, or a large one", path.display());
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
