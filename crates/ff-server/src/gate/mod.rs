//! Who is calling, and what that caller may touch. Handlers reach the engine through
//! [`Authorized`] alone, so what was authorised is what is acted on.

mod known;
mod origin;
mod principal;
mod tokens;

pub use principal::{EVERYWHERE, Principal};
pub use tokens::{hash, mint_token};

use std::sync::Arc;
use std::time::Instant;

use axum::http::{HeaderMap, header};
use ff_core::contracts::StoredToken;
use ff_core::engine_backend::{EngineBackend, Namespaced, TokenOperations};
use ff_core::engine_error::EngineError;
use ff_core::store::Query;
use ff_core::types::{Namespace, TimestampMs};
use subtle::ConstantTimeEq;
use uuid::Uuid;

use crate::config::Auth;
use crate::gate::known::Known;
use crate::refusal::{Answered, Refusal};
use crate::route::{Access, Reach};

/// What stands before every route.
pub struct Gate {
    backend: Arc<dyn EngineBackend>,
    auth: Auth,
    /// The hash of the token that is given by configuration.
    root: Option<[u8; 32]>,
    known: Known,
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

    /// For work that outlives the request.
    pub fn share(&self) -> Arc<dyn EngineBackend> {
        self.backend.clone()
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
    pub fn new(backend: Arc<dyn EngineBackend>, auth: Auth, root_token: Option<&str>) -> Self {
        Self { backend, auth, root: root_token.map(hash), known: Known::default() }
    }

    /// Who sent this. Whoever may come in without a token is anonymous.
    pub async fn authenticate(&self, headers: &HeaderMap) -> Answered<Arc<Principal>> {
        if self.auth == Auth::None {
            origin::check(headers)?;
            return Ok(Principal::anonymous());
        }
        let unknown =
            || Refusal::new("unauthorized", "send a valid token: Authorization: Bearer …");
        let token = bearer(headers).ok_or_else(unknown)?;
        let principal = self.find(&hash(token)).await?.ok_or_else(unknown)?;
        match principal.is_good_at(self.now()) {
            true => Ok(principal),
            false => Err(unknown()),
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

    /// A revoked token must not be good for another moment here.
    pub fn forget(&self, token_id: Uuid) {
        self.known.forget(token_id);
    }

    /// What this caller may touch through this route.
    pub fn authorize(
        &self,
        principal: &Arc<Principal>,
        access: Access,
        reach: Reach,
        wanted: Option<String>,
    ) -> Answered<Authorized> {
        if let Access::Scoped(scope) = access
            && !principal.has(scope)
        {
            let detail = format!("this needs a token with the scope `{}`", scope.as_str());
            return Err(Refusal::new("forbidden", detail));
        }
        let namespace = match (reach, wanted) {
            (Reach::Nothing, None) => None,
            (Reach::Namespace, wanted) => principal.choose(wanted)?,
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
        Ok(Authorized { backend, principal: principal.clone(), namespace })
    }

    /// Whether the store answers.
    pub async fn ping(&self) -> Result<(), EngineError> {
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
