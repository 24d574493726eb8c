//! TLS by configuration: a certificate chain and its key, as PEM files. Files that are replaced
//! while the server runs are picked up; connections that are open keep what they have.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// The certificate that new connections are given.
pub struct Certificate {
    cert: PathBuf,
    key: PathBuf,
    current: Mutex<Current>,
}

struct Current {
    config: Arc<ServerConfig>,
    /// What the files looked like when they were last read, well or badly.
    seen: Stamp,
}

type Stamp = [Option<(SystemTime, u64)>; 2];

impl Certificate {
    pub fn load(cert: &Path, key: &Path) -> Result<Self, String> {
        let seen = stamp(cert, key);
        let config = read(cert, key)?;
        let current = Mutex::new(Current { config, seen });
        Ok(Self { cert: cert.to_owned(), key: key.to_owned(), current })
    }

    pub fn acceptor(&self) -> TlsAcceptor {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(current.config.clone())
    }

    /// Reads the files again. If they cannot be used, the certificate stays as it is.
    pub fn reload(&self) -> Result<(), String> {
        let seen = stamp(&self.cert, &self.key);
        let config = read(&self.cert, &self.key);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.seen = seen;
        current.config = config?;
        Ok(())
    }

    /// Reads the files again if they are not those that were read last.
    pub fn reload_if_replaced(&self) -> Option<Result<(), String>> {
        let seen = stamp(&self.cert, &self.key);
        let same = self.current.lock().unwrap_or_else(PoisonError::into_inner).seen == seen;
        (!same).then(|| self.reload())
    }
}

/// When the files were written, and how long they are.
fn stamp(cert: &Path, key: &Path) -> Stamp {
    [cert, key].map(|path| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    })
}

fn read(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, String> {
    let read = |path: &Path| {
        fs::read(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(cert)?).collect();
    let chain = chain.map_err(|error| format!("{}: {error}", cert.display()))?;
    let private = PrivateKeyDer::from_pem_slice(&read(key)?);
    let private = private.map_err(|error| format!("{}: {error}", key.display()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, private);
    let mut config = config.map_err(|error| format!("{}: {error}", cert.display()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
