//! A caller: its name, its scopes and its namespaces.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use ff_api::Scope;
use ff_core::contracts::{SignalSource, StoredToken};
use ff_core::types::{Namespace, TimestampMs};
use uuid::Uuid;

use crate::refusal::{Answered, Refusal};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub name: String,
    /// The token that it came with, if that one is stored.
    pub token_id: Option<Uuid>,
    pub scopes: BTreeSet<Scope>,
    pub namespaces: Namespaces,
    pub expires_at: Option<TimestampMs>,
    pub(super) hash: Option<[u8; 32]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespaces {
    All,
    Only(Vec<Namespace>),
}

const DEFAULT: &str = "default";
pub const EVERYWHERE: &str = "*";

impl Principal {
    /// Names of callers without a token of their own: no token may pass for one of them.
    pub const RESERVED: [&str; 4] = ["anonymous", "embedded", "nobody", "root"];

    /// Whoever calls a server that asks for no token.
    pub fn anonymous() -> Arc<Self> {
        static ANONYMOUS: LazyLock<Arc<Principal>> = LazyLock::new(|| almighty("anonymous"));
        ANONYMOUS.clone()
    }

    /// Whoever may do nothing by what it is, and perhaps something by what it brings.
    pub fn nobody() -> Arc<Self> {
        static NOBODY: LazyLock<Arc<Principal>> = LazyLock::new(|| {
            let (scopes, namespaces) = (BTreeSet::new(), Namespaces::Only(Vec::new()));
            Arc::new(Principal { scopes, namespaces, ..(*almighty("nobody")).clone() })
        });
        NOBODY.clone()
    }

    /// Whoever holds the token of the configuration.
    pub fn root() -> Arc<Self> {
        static ROOT: LazyLock<Arc<Principal>> = LazyLock::new(|| almighty("root"));
        ROOT.clone()
    }

    /// Whoever holds a token that is on record. Words that this server does not know give nothing.
    pub fn stored(token: StoredToken, hash: [u8; 32]) -> Self {
        let everywhere = token.namespaces.iter().any(|name| name == EVERYWHERE);
        Self {
            name: token.name,
            token_id: Some(token.token_id),
            scopes: token.scopes.iter().filter_map(|word| Scope::parse(word)).collect(),
            namespaces: match everywhere {
                true => Namespaces::All,
                false => Namespaces::Only(token.namespaces.into_iter().map(Namespace).collect()),
            },
            expires_at: token.expires_at,
            hash: Some(hash),
        }
    }

    /// What its signals count as where sources are counted.
    pub fn source(&self) -> SignalSource {
        match self.token_id {
            Some(id) => SignalSource::ApiToken(id),
            None => SignalSource::Named { kind: "api_token".into(), identity: self.name.clone() },
        }
    }

    pub fn has(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&Scope::Admin)
    }

    pub fn is_everywhere(&self) -> bool {
        self.namespaces == Namespaces::All
    }

    pub fn is_good_at(&self, now: TimestampMs) -> bool {
        self.expires_at.is_none_or(|expires_at| now < expires_at)
    }

    /// The namespace that a request acts in; `None` means all of them.
    pub fn choose(&self, wanted: Option<String>) -> Answered<Option<Namespace>> {
        let foreign = || Refusal::new("forbidden", "the token is not good in this namespace");
        let wanted = match (wanted, &self.namespaces) {
            (Some(wanted), _) => wanted,
            (None, Namespaces::Only(own)) if own.len() == 1 => own[0].0.clone(),
            (None, _) => DEFAULT.to_owned(),
        };
        if wanted == EVERYWHERE {
            return if self.is_everywhere() { Ok(None) } else { Err(foreign()) };
        }
        let wanted = Namespace::try_new(wanted);
        let wanted = wanted.map_err(|error| Refusal::invalid(error.to_string()))?;
        match &self.namespaces {
            Namespaces::Only(own) if !own.contains(&wanted) => Err(foreign()),
            _ => Ok(Some(wanted)),
        }
    }
}

fn almighty(name: &str) -> Arc<Principal> {
    Arc::new(Principal {
        name: name.to_owned(),
        token_id: None,
        scopes: Scope::ALL.into(),
        namespaces: Namespaces::All,
        expires_at: None,
        hash: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(own: &[&str], wanted: Option<&str>) -> Result<Option<String>, &'static str> {
        let own = own.iter().map(|name| Namespace::new(*name)).collect();
        let namespaces = Namespaces::Only(own);
        let principal = Principal { namespaces, ..(*Principal::root()).clone() };
        let chosen = principal.choose(wanted.map(str::to_owned));
        chosen.map(|name| name.map(|name| name.0)).map_err(|refusal| refusal.code)
    }

    #[test]
    fn namespaces_are_chosen() {
        let some = |name: &str| Ok(Some(name.to_owned()));
        assert_eq!(chosen(&["a"], None), some("a"));
        assert_eq!(chosen(&["a"], Some("a")), some("a"));
        assert_eq!(chosen(&["a"], Some("b")), Err("forbidden"));
        assert_eq!(chosen(&["a"], Some("*")), Err("forbidden"));
        assert_eq!(chosen(&["a", "b"], Some("b")), some("b"));
        assert_eq!(chosen(&["a", "b"], None), Err("forbidden"));
        assert_eq!(chosen(&["a", "default"], None), some("default"));
        let root = Principal::root();
        assert_eq!(root.choose(Some("*".into())).unwrap(), None);
        assert_eq!(root.choose(None).unwrap(), Some(Namespace::new("default")));
        assert_eq!(root.choose(Some("a\u{7}".into())).unwrap_err().code, "invalid_input");
    }
}
