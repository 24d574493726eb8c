//! What one running server holds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::{HeaderMap, Uri};
use bytes::Bytes;
use ff_core::contracts::Durability;
use ff_core::engine_backend::EngineBackend;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::admission::Admission;
use crate::body::BodyLimits;
use crate::config::Config;
use crate::gate::{Gate, Principal};
use crate::metrics::Metrics;
use crate::refusal::{Answered, Refusal};
use crate::remote::Proxies;
use crate::replies::Replies;
use crate::route::Route;
use crate::webhooks::Webhooks;
use crate::{openapi, routes};

pub struct State {
    pub(crate) gate: Gate,
    pub(crate) routes: Vec<Route>,
    pub(crate) openapi: Bytes,
    pub(crate) replies: Replies,
    pub(crate) metrics: Metrics,
    pub(crate) limits: Limits,
    pub(crate) proxies: Proxies,
    pub(crate) admission: Arc<Admission>,
    /// Probes that ask the store at once; the others wait for their turn.
    pub(crate) pings: Semaphore,
    streams: Mutex<HashMap<String, usize>>,
    /// Ends streams and long polls.
    pub(crate) closing: CancellationToken,
    pub(crate) webhooks: Arc<Webhooks>,
    pub(crate) store_name: &'static str,
    pub(crate) durability: Durability,
}

/// What a request may cost.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub streams_per_token: usize,
    pub body: BodyLimits,
}

/// Probes need no token, so they must not be a way to keep the store busy.
const PINGS: usize = 4;
const URI_BYTES: usize = 8 * 1024;
const HEADER_BYTES: usize = 16 * 1024;

impl State {
    pub fn new(config: &Config, backend: Arc<dyn EngineBackend>) -> Arc<Self> {
        let store = backend.engine().store().clone();
        let routes = routes::table();
        let metrics = Metrics::new(&routes);
        let document = openapi::document(&routes);
        Arc::new(Self {
            webhooks: Webhooks::new(backend.clone(), config.webhook_guard()),
            gate: Gate::new(backend, config),
            openapi: document.to_json().unwrap_or_default().into(),
            routes,
            replies: Replies::default(),
            metrics,
            limits: Limits {
                streams_per_token: config.streams_per_token,
                body: BodyLimits {
                    bytes: config.body_bytes,
                    idle: config.body_idle,
                    grace: config.body_grace,
                    rate: config.body_rate,
                },
            },
            proxies: Proxies::new(config.trusted_networks()),
            admission: Admission::new(config),
            pings: Semaphore::new(PINGS),
            streams: Mutex::default(),
            closing: CancellationToken::new(),
            store_name: store.name(),
            durability: store.durability(),
        })
    }

    /// Ends streams and long polls; requests that do work are not disturbed.
    pub fn close(&self) {
        self.closing.cancel();
    }

    /// A place among the streams of one caller, given back when it is dropped.
    pub(crate) fn open_stream(self: &Arc<Self>, principal: &Principal) -> Answered<StreamPlace> {
        let who = principal.token_id.map_or_else(|| principal.name.clone(), |id| id.to_string());
        let max = self.limits.streams_per_token;
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let open = streams.entry(who.clone()).or_default();
        if *open >= max {
            let detail = format!("{max} streams are open, which is the limit");
            return Err(Refusal::new("too_many_streams", detail));
        }
        *open += 1;
        drop(streams);
        Ok(StreamPlace { state: self.clone(), who })
    }

    pub(crate) fn open_streams(&self) -> usize {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

/// Refuses a request whose head is too large.
pub(crate) fn check_head(uri: &Uri, headers: &HeaderMap) -> Answered<()> {
    let address = uri.path_and_query().map_or(0, |address| address.as_str().len());
    if address > URI_BYTES {
        return Err(Refusal::new("uri_too_long", format!("the limit is {URI_BYTES} bytes")));
    }
    let size: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if size > HEADER_BYTES {
        let detail = format!("{size} bytes of headers, the limit is {HEADER_BYTES}");
        return Err(Refusal::new("headers_too_large", detail));
    }
    Ok(())
}

pub(crate) struct StreamPlace {
    state: Arc<State>,
    who: String,
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut streams = self.state.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = streams.get_mut(&self.who) {
            *open -= 1;
            if *open == 0 {
                streams.remove(&self.who);
            }
        }
    }
}
