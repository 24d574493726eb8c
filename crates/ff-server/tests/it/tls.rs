//! TLS by configuration: a real handshake with a certificate that the client trusts by name.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ff_server::Config;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::client::parse;
use crate::server::{Server, config};

/// A certificate for `localhost` that signs itself; returns its file and that of its key.
fn certificate(folder: &Path) -> (std::path::PathBuf, std::path::PathBuf) {
    let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .output()
        .expect("openssl is there");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (cert, key)
}

fn connector(cert: &Path) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(cert).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(client))
}

#[tokio::test]
async fn with_a_certificate_the_server_speaks_tls_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = certificate(folder.path());
    let tls = Config { tls_cert: Some(cert.clone()), tls_key: Some(key.clone()), ..config() };
    let server = Server::start_with(tls).await;
    let stream = TcpStream::connect(server.client.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = connector(&cert).connect(name, stream).await.unwrap();
    let request = format!(
        "GET /version HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
         connection: close\r\n\r\n",
        crate::server::ROOT
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let _ = tokio::time::timeout(Duration::from_secs(10), read).await.expect("it hangs");
    let answer = parse(&answer).unwrap();
    assert_eq!(answer.expect(200)["store"], "sqlite");
    assert_eq!(answer.header("strict-transport-security"), Some("max-age=31536000"));

    // Whoever speaks without it is not answered, and whoever says nothing harms nobody.
    let plain = server.client.raw(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(!plain.starts_with(b"HTTP/1.1 200"), "{plain:?}");
    let silent = TcpStream::connect(server.client.address).await.unwrap();
    let stream = TcpStream::connect(server.client.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    assert!(connector(&cert).connect(name, stream).await.is_ok());
    let stream = TcpStream::connect(server.client.address).await.unwrap();
    let other = ServerName::try_from("example.com").unwrap();
    assert!(connector(&cert).connect(other, stream).await.is_err());
    drop(silent);
    server.stop().await;
}

#[tokio::test]
async fn files_that_are_no_certificates_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = certificate(folder.path());
    let wrong = folder.path().join("wrong.pem");
    std::fs::write(&wrong, "no certificate").unwrap();
    let missing = folder.path().join("missing.pem");
    for (cert, key, named) in
        [(&wrong, &key, "wrong"), (&cert, &wrong, "wrong"), (&missing, &key, "missing")]
    {
        let data = folder.path().join("data");
        let (tls_cert, tls_key) = (Some(cert.clone()), Some(key.clone()));
        let config = Config { data, tls_cert, tls_key, ..config() };
        let error = ff_server::serve(config, |_| (), std::future::ready(())).await.unwrap_err();
        assert!(error.to_string().contains(named), "{error}");
    }
    let half = Config { tls_cert: Some(cert), ..config() };
    let error = ff_server::serve(half, |_| (), std::future::ready(())).await.unwrap_err();
    assert!(error.to_string().contains("together"), "{error}");
}

/// What the server answers over TLS to a client that trusts this certificate, if it does.
async fn ask(address: std::net::SocketAddr, cert: &Path, path: &str) -> Option<String> {
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = connector(cert).connect(name, stream).await.ok()?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
         connection: close\r\n\r\n",
        crate::server::ROOT
    );
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    Some(String::from_utf8(answer).unwrap())
}

#[tokio::test]
async fn replaced_certificates_are_picked_up() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = certificate(folder.path());
    let old = folder.path().join("old.pem");
    std::fs::copy(&cert, &old).unwrap();
    let tls = Config {
        tls_cert: Some(cert.clone()),
        tls_key: Some(key.clone()),
        tls_check: Duration::from_millis(10),
        ..config()
    };
    let server = Server::start_with(tls).await;
    let address = server.client.address;
    assert!(ask(address, &old, "/livez").await.is_some());

    // A broken file is told, and the certificate stays.
    let good = std::fs::read(&key).unwrap();
    std::fs::write(&key, "no key").unwrap();
    let failed = async {
        loop {
            let metrics = ask(address, &old, "/metrics").await.unwrap();
            if !metrics.contains("ff_tls_reload_failures_total 0") {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), failed).await.expect("it is not noticed");
    std::fs::write(&key, good).unwrap();

    let other = tempfile::tempdir().unwrap();
    let (new, new_key) = certificate(other.path());
    std::fs::copy(&new_key, &key).unwrap();
    std::fs::copy(&new, &cert).unwrap();
    let taken = async { while ask(address, &new, "/livez").await.is_none() {} };
    tokio::time::timeout(Duration::from_secs(20), taken).await.expect("it is not picked up");
    assert!(ask(address, &old, "/livez").await.is_none());
    server.stop().await;
}
