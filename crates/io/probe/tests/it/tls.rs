use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_model::FailureKind;
use plimsoll_probe::{Connection, ProbeSpec, Scheme, SpecError, TlsSpec};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::AsyncWriteExt;
use tokio_rustls::TlsAcceptor;

use crate::server::{OK, Server, fails, prober, read_request, spec, succeeds};

/// A certificate for `backend.test` and 127.0.0.1, signed by itself, in a file of its own.
struct Identity {
    config: Arc<ServerConfig>,
    file: PathBuf,
}

impl Identity {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let names = vec!["backend.test".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("TLS 1.2 and 1.3")
                .with_no_client_auth()
                .with_single_cert(vec![made.cert.der().clone()], PrivateKeyDer::Pkcs8(key))
                .expect("a key for the certificate");
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        let name = format!("plimsoll-probe-{}-{number}.pem", std::process::id());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, made.cert.pem()).expect("a writable directory");
        Identity { config: Arc::new(config), file }
    }

    /// A server that answers every request over TLS, or `once` only, closing without a goodbye.
    async fn serve(&self, once: bool) -> Server {
        let acceptor = TlsAcceptor::from(self.config.clone());
        Server::start(move |stream, _| {
            let acceptor = acceptor.clone();
            async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
                while read_request(&mut stream).await.is_some() {
                    let answer = if once { "HTTP/1.1 200 OK\r\n\r\nok" } else { OK };
                    let _ = stream.write_all(answer.as_bytes()).await;
                    let _ = stream.flush().await;
                    if once {
                        return;
                    }
                }
            }
        })
        .await
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

fn https(tls: TlsSpec) -> ProbeSpec {
    ProbeSpec { scheme: Scheme::Https, tls: Some(tls), ..spec() }
}

fn trusting(identity: &Identity) -> TlsSpec {
    TlsSpec { ca_file: Some(identity.file.clone()), ..TlsSpec::default() }
}

#[tokio::test]
async fn a_certificate_of_a_trusted_authority_is_taken_and_the_connection_kept() {
    let identity = Identity::new();
    let server = identity.serve(false).await;
    let prober = prober(server.addr, https(trusting(&identity)));
    for _ in 0..5 {
        succeeds(&prober).await;
    }
    assert_eq!((server.accepted(), prober.idle_connections()), (1, 1));
    let named = TlsSpec { server_name: Some("backend.test".into()), ..trusting(&identity) };
    succeeds(&crate::server::prober(server.addr, https(named))).await;
    let new = ProbeSpec { connection: Connection::New, ..https(trusting(&identity)) };
    succeeds(&crate::server::prober(server.addr, new)).await;
}

#[tokio::test]
async fn any_other_certificate_is_a_tls_failure_unless_insecure() {
    let (identity, other) = (Identity::new(), Identity::new());
    let server = identity.serve(false).await;
    let untrusted = fails(server.addr, https(trusting(&other)), FailureKind::Tls).await;
    assert!(untrusted.detail.contains("certificate"), "{}", untrusted.detail);
    let misnamed = TlsSpec { server_name: Some("other.test".into()), ..trusting(&identity) };
    fails(server.addr, https(misnamed), FailureKind::Tls).await;
    let insecure = TlsSpec { insecure: true, ..TlsSpec::default() };
    let prober = prober(server.addr, https(insecure));
    succeeds(&prober).await;
    succeeds(&prober).await;
}

#[tokio::test]
async fn a_server_without_tls_is_a_tls_failure() {
    let insecure = || https(TlsSpec { insecure: true, ..TlsSpec::default() });
    let plain = Server::start(|mut stream, _| async move {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        crate::server::wait_for_close(&mut stream).await;
    })
    .await;
    fails(plain.addr, insecure(), FailureKind::Tls).await;
    let closing = Server::start(|mut stream, _| async move {
        let mut buf = [0; 4096];
        let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut buf).await;
    })
    .await;
    fails(closing.addr, insecure(), FailureKind::Tls).await;
}

#[tokio::test]
async fn a_body_may_end_with_a_connection_that_says_no_goodbye() {
    let identity = Identity::new();
    let server = identity.serve(true).await;
    let spec = ProbeSpec { expect_body: Some(b"ok".to_vec()), ..https(trusting(&identity)) };
    succeeds(&prober(server.addr, spec)).await;
}

#[tokio::test]
async fn a_file_of_authorities_must_hold_some() {
    let file = std::env::temp_dir().join(format!("plimsoll-probe-{}.txt", std::process::id()));
    std::fs::write(&file, "no certificate in here\n").expect("a writable directory");
    let tls = TlsSpec { ca_file: Some(file.clone()), ..TlsSpec::default() };
    let error = plimsoll_probe::Probe::new(https(tls)).expect_err("no authority");
    assert!(matches!(error, SpecError::CaFile { .. }), "{error}");
    let _ = std::fs::remove_file(&file);
}

#[tokio::test]
async fn silence_within_the_handshake_is_a_timeout() {
    let server = Server::start(|mut stream, _| async move {
        crate::server::wait_for_close(&mut stream).await;
    })
    .await;
    let hasty = ProbeSpec {
        timeout: std::time::Duration::from_millis(150),
        ..https(TlsSpec { insecure: true, ..TlsSpec::default() })
    };
    let addr: SocketAddr = server.addr;
    fails(addr, hasty, FailureKind::Timeout).await;
}
