//! The listener: it accepts connections, bounds how many there are and how slow they may be, and
//! ends them when the server does.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, header};
use ff_core::engine::supervise;
use ff_core::engine_backend::EngineBackend;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use crate::activity::{Activity, Watched};
use crate::config::{Config, ConfigError};
use crate::connections::{Admittance, Places};
use crate::heads::Heads;
use crate::open::{OpenError, open};
use crate::remote::Peer;
use crate::root::{RootTokenError, root_token};
use crate::state::State;
use crate::tls::Certificate;
use crate::{pipeline, upkeep};

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{address} cannot be listened on: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error(transparent)]
    Root(#[from] RootTokenError),
    #[error("TLS: {0}")]
    Tls(String),
}

/// Opens the store, serves until `shutdown`, drains and closes the store.
pub async fn serve(
    config: Config,
    listening: impl FnOnce(SocketAddr),
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let mut config = config;
    config.check()?;
    let backend = open(&config).await?;
    let served = async {
        config.root_token = root_token(&config, &*backend.engine()).await?;
        let bound = Bound::bind(&config, backend.engine()).await?;
        tracing::info!(address = %bound.local_addr(), "listening");
        listening(bound.local_addr());
        bound.run(shutdown).await;
        Ok(())
    };
    let served = served.await;
    backend.close().await;
    served
}

/// A server that has its address and does not answer yet.
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    connections: Arc<Connections>,
    drain: Duration,
    tls_check: Duration,
}

/// What all connections share.
struct Connections {
    state: Arc<State>,
    router: Router,
    tls: Option<Arc<Certificate>>,
    places: Places,
    header_timeout: Duration,
    idle: Duration,
    /// Ends whatever has not ended by itself.
    kill: CancellationToken,
}

/// What clients are told for whom there is no connection at all.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n\
    content-length: 0\r\nconnection: close\r\n\r\n";
/// The largest head of a request that is buffered, a little more than `check_head` lets pass.
const HEAD_BYTES: usize = 32 * 1024;
const HEADERS: usize = 100;
/// Browsers that have come by TLS once come by TLS for a year.
const HSTS: HeaderValue = HeaderValue::from_static("max-age=31536000");
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a connection that is there for a probe may take to ask.
const PROBE: Duration = Duration::from_secs(2);

impl Bound {
    pub async fn bind(
        config: &Config,
        backend: Arc<dyn EngineBackend>,
    ) -> Result<Self, ServeError> {
        config.check()?;
        let address = config.listen;
        let failed = |source| ServeError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let tls = match (&config.tls_cert, &config.tls_key) {
            (Some(cert), Some(key)) => {
                Some(Arc::new(Certificate::load(cert, key).map_err(ServeError::Tls)?))
            }
            _ => None,
        };
        for warning in config.warnings() {
            tracing::warn!("{warning}");
        }
        let state = State::new(config, backend);
        let connections = Arc::new(Connections {
            router: pipeline::router(&state),
            state,
            tls,
            places: Places::new(config),
            header_timeout: config.header_timeout,
            idle: config.connection_idle,
            kill: CancellationToken::new(),
        });
        Ok(Self {
            listener,
            address,
            connections,
            drain: config.drain,
            tls_check: config.tls_check,
        })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown`, then lets open requests end, but not for ever.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let Self { listener, connections, drain, tls_check, .. } = self;
        let open = TaskTracker::new();
        let state = &connections.state;
        let (webhooks, closing) = (state.webhooks.clone(), state.closing.clone());
        let deliver = move || webhooks.clone().run(closing.clone());
        let deliveries = tokio::spawn(supervise("webhooks", deliver));
        tokio::spawn(upkeep::run(state.clone(), connections.tls.clone(), tls_check));
        let mut shutdown = pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut shutdown => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => connections.clone().admit(stream, peer.ip(), &open),
                // No file descriptors, most likely: they come free when connections end.
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        drop(listener);
        connections.state.close();
        open.close();
        let stop = deliveries.abort_handle();
        let ended = async { tokio::join!(open.wait(), deliveries) };
        if tokio::time::timeout(drain, ended).await.is_err() {
            stop.abort();
            tracing::warn!(left = open.len(), "connections that did not end are cut");
            connections.kill.cancel();
            open.wait().await;
        }
    }
}

impl Connections {
    fn admit(self: Arc<Self>, stream: TcpStream, peer: IpAddr, open: &TaskTracker) {
        let metrics = &self.state.metrics;
        metrics.connections_total.fetch_add(1, Ordering::Relaxed);
        let trusted = self.state.proxies.has(peer.to_canonical());
        let admittance = self.places.enter(peer, trusted);
        if !admittance.as_ref().is_some_and(Admittance::is_whole) {
            metrics.connections_refused_total.fetch_add(1, Ordering::Relaxed);
        }
        let Some(admittance) = admittance else {
            if self.tls.is_none() {
                let _ = stream.try_write(FULL);
            }
            return;
        };
        metrics.connections.fetch_add(1, Ordering::Relaxed);
        open.spawn(async move {
            tokio::select! {
                () = self.kill.cancelled() => {}
                () = self.connection(stream, peer, &admittance) => {}
            }
            self.state.metrics.connections.fetch_sub(1, Ordering::Relaxed);
        });
    }

    async fn connection(&self, stream: TcpStream, peer: IpAddr, admittance: &Admittance) {
        let _ = stream.set_nodelay(true);
        let activity = Arc::new(Activity::new());
        let stream = Watched { stream, activity: activity.clone() };
        let whole = admittance.is_whole();
        match &self.tls {
            None => self.http(stream, peer, whole, &activity).await,
            Some(tls) => {
                let acceptor = tls.acceptor();
                let patience = if whole { HANDSHAKE } else { PROBE };
                if let Ok(Ok(stream)) =
                    tokio::time::timeout(patience, acceptor.accept(stream)).await
                {
                    self.http(stream, peer, whole, &activity).await;
                }
            }
        }
    }

    /// Serves one connection; probes alone unless it was admitted as a whole.
    async fn http<S>(&self, stream: S, peer: IpAddr, whole: bool, activity: &Arc<Activity>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (router, counted) = (self.router.clone(), activity.clone());
        let secure = self.tls.is_some();
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(Peer(peer));
            let (mut router, handling) = (router.clone(), counted.clone().handling());
            async move {
                let refused = pipeline::refuse_early(&request, whole);
                let response = match refused {
                    Some(refused) => Ok(refused),
                    None => Service::call(&mut router, request).await,
                };
                drop(handling);
                let mut response = response.map_err(|never: Infallible| never)?;
                if secure {
                    response.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, HSTS);
                }
                Ok::<_, Infallible>(response)
            }
        });
        let (idle, timeout) = match whole {
            true => (self.idle, self.header_timeout),
            false => (self.idle.min(PROBE), self.header_timeout.min(PROBE)),
        };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(timeout)
            .keep_alive(whole)
            .max_buf_size(HEAD_BYTES)
            .max_headers(HEADERS)
            .serve_connection(TokioIo::new(Heads::new(stream)), service);
        let mut connection = pin!(connection);
        let closing = self.state.closing.cancelled();
        tokio::select! {
            _ = connection.as_mut() => return,
            () = activity.stands_still(idle) => return,
            () = closing => {}
        }
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            _ = connection => {}
            () = activity.stands_still(idle) => {}
        }
    }
}
