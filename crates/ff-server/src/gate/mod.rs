//! Who is calling, and what that caller may touch. Handlers reach the engine through
//! [`Authorized`] alone, so what was authorised is what is acted on.

mod actor;
mod known;
mod origin;
mod principal;
mod tokens;

pub use actor::Origin;
pub use principal::{EVERYWHERE, Principal};
pub use tokens::{hash, mint_token};

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use ff_core::contracts::StoredToken;
use ff_core::engine_backend::{Acting, EngineBackend, Namespaced, TokenOperations};
use ff_core::engine_error::EngineError;
use ff_core::store::Query;
use ff_core::types::{Namespace, TimestampMs};
use subtle::ConstantTimeEq;
use tokio::time::{Interval, MissedTickBehavior};
use uuid::Uuid;

use crate::config::{Auth, Config};
use crate::gate::known::Known;
use crate::host::Hosts;
use crate::refusal::{Answered, Refusal};
use crate::route::{Access, Reach, Route};

/// What stands before every route.
pub struct Gate {
    backend: Arc<dyn EngineBackend>,
    auth: Auth,
    /// The hash of the token that is given by configuration.
    root: Option<[u8; 32]>,
    known: Known,
    hosts: Hosts,
    /// How often a request that waits looks whether its token is still good.
    check: Duration,
}

/// The engine as one authorised request may see it.
#[derive(Clone)]
pub struct Authorized {
    backend: Arc<dyn EngineBackend>,
    principal: Arc<Principal>,
    namespace: Option<Namespace>,
}

impl Authorized {
    pub fn backend(&self) -> &dyn EngineBackend {
        &*self.backend
    }

    pub fn principal(&self) -> &Arc<Principal> {
        &self.principal
    }

    /// The one namespace to act in; `*` is none.
    pub fn namespace(&self) -> Answered<&Namespace> {
        let every = || Refusal::invalid("this needs one namespace, not all of them");
        self.namespace.as_ref().ok_or_else(every)
    }

    /// How the namespace is told apart from others where answers are kept.
    pub fn namespace_key(&self) -> &str {
        self.namespace.as_ref().map_or("*", Namespace::as_str)
    }
}

impl Gate {
    pub fn new(backend: Arc<dyn EngineBackend>, config: &Config) -> Self {
        Self {
            backend,
            auth: config.auth,
            root: config.root_token.as_deref().map(hash),
            known: Known::default(),
            hosts: Hosts::new(config.host_names(), config.listen.ip()),
            check: config.token_check,
        }
    }

    /// Who sent this. Whoever may come in without a token is anonymous.
    pub async fn authenticate(&self, headers: &HeaderMap) -> Answered<Arc<Principal>> {
        if self.auth == Auth::None {
            self.hosts.check_own(headers)?;
            origin::check(headers)?;
            return Ok(Principal::anonymous());
        }
        let token = bearer(headers).ok_or_else(Refusal::unauthorized)?;
        let principal = self.find(&hash(token)).await?.ok_or_else(Refusal::unauthorized)?;
        match principal.is_good_at(self.now()) {
            true => Ok(principal),
            false => Err(Refusal::unauthorized()),
        }
    }

    /// Whether a caller is still who it was: tokens expire and are revoked while streams are open.
    pub async fn is_still_good(&self, principal: &Principal) -> bool {
        if !principal.is_good_at(self.now()) {
            return false;
        }
        match &principal.hash {
            // A store that cannot be asked has revoked nothing.
            Some(hash) => !matches!(self.find(hash).await, Ok(None)),
            None => true,
        }
    }

    /// Returns when a caller's token has expired or been revoked, and not before.
    pub async fn until_revoked(&self, principal: &Principal) {
        let mut checks = self.checks();
        loop {
            checks.tick().await;
            if !self.is_still_good(principal).await {
                return;
            }
        }
    }

    /// When a request that waits looks at its token: regularly, whatever else happens to it.
    pub fn checks(&self) -> Interval {
        let mut checks =
            tokio::time::interval_at(tokio::time::Instant::now() + self.check, self.check);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        checks
    }

    /// A revoked token must not be good for another moment here.
    pub fn forget(&self, token_id: Uuid) {
        self.known.forget(token_id);
    }

    /// What this caller may touch through this route.
    pub fn authorize(
        &self,
        principal: &Arc<Principal>,
        route: &Route,
        wanted: Option<String>,
        origin: &Origin,
    ) -> Answered<Authorized> {
        if let Access::Scoped(scope) = route.access
            && !principal.has(scope)
        {
            let detail = format!("this needs a token with the scope `{}`", scope.as_str());
            return Err(Refusal::new("forbidden", detail));
        }
        let namespace = match (route.reach, wanted) {
            (Reach::Nothing, None) => None,
            (Reach::Own, None) if principal.is_everywhere() => None,
            (Reach::Namespace | Reach::Own, wanted) => principal.choose(wanted)?,
            (Reach::Everything, None) if principal.is_everywhere() => None,
            (Reach::Everything, None) => {
                let detail = "this needs a token that is good in all namespaces";
                return Err(Refusal::new("forbidden", detail));
            }
            (Reach::Nothing | Reach::Everything, Some(_)) => {
                return Err(Refusal::invalid("this route belongs to no namespace"));
            }
        };
        let backend: Arc<dyn EngineBackend> = match &namespace {
            Some(namespace) => Arc::new(Namespaced::new(self.backend.clone(), namespace.clone())),
            None => self.backend.clone(),
        };
        let backend: Arc<dyn EngineBackend> = match origin.stamp(principal, route) {
            Some(stamp) => Arc::new(Acting::new(backend, stamp)),
            None => backend,
        };
        Ok(Authorized { backend, principal: principal.clone(), namespace })
    }

    /// Whether the store answers, and the engine still writes.
    pub async fn ping(&self) -> Result<(), EngineError> {
        self.backend.engine().check_writing()?;
        self.backend.engine().query(Query::Log).await.map(drop)
    }

    pub fn now(&self) -> TimestampMs {
        self.backend.engine().store().now()
    }

    async fn find(&self, hash: &[u8; 32]) -> Answered<Option<Arc<Principal>>> {
        if self.root.is_some_and(|root| root.ct_eq(hash).into()) {
            return Ok(Some(Principal::root()));
        }
        if let Some(known) = self.known.get(hash, Instant::now()) {
            return Ok(Some(known));
        }
        let Some(stored) = self.backend.find_token(hash).await? else { return Ok(None) };
        if !stored.is_good_at(self.now()) {
            return Ok(None);
        }
        self.touch(&stored);
        let principal = Arc::new(Principal::stored(stored, *hash));
        self.known.put(principal.clone(), *hash, Instant::now());
        Ok(Some(principal))
    }

    /// Notes the use of a token, without making its user wait.
    fn touch(&self, stored: &StoredToken) {
        let (backend, token_id) = (self.backend.clone(), stored.token_id);
        let minute_ago = self.now().0 - 60_000;
        if stored.last_used_at.is_none_or(|used| used.0 <= minute_ago) {
            tokio::spawn(async move { backend.touch_token(token_id).await });
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let (first, second) = (given.next()?, given.next());
    let (scheme, token) = first.to_str().ok()?.split_once(' ')?;
    let alone = second.is_none() && scheme.eq_ignore_ascii_case("bearer");
    alone.then(|| token.trim())
}
