//! Who the events of a request name.

use std::net::IpAddr;

use axum::http::Method;
use ff_api::Scope;
use ff_core::contracts::{Actor, Stamp};

use super::Principal;
use crate::route::{Access, Route};

/// Where a request came from, and what it is called.
pub struct Origin<'o> {
    pub remote: IpAddr,
    pub request_id: &'o str,
}

impl Origin<'_> {
    /// What the events of this request say of its sender; nothing if it can cause none. Submitters
    /// and workers cause most events by far, so theirs name the token and nothing else.
    pub fn stamp(&self, principal: &Principal, route: &Route) -> Option<Stamp> {
        if route.method == Method::GET {
            return None;
        }
        let name = principal.name.clone();
        match route.access {
            Access::Public => None,
            Access::Scoped(Scope::Submit | Scope::Work) => Some(Stamp::worker(&Actor {
                token_id: principal.token_id,
                token_name: principal.token_id.is_none().then_some(name),
                ..Actor::default()
            })),
            Access::Known | Access::Scoped(_) => {
                let (token_id, token_name) = (principal.token_id, Some(name));
                Some(Stamp::operator(&Actor { token_id, token_name, ..self.actor() }))
            }
            // The event of a signal names the waitpoint whose token brought it.
            Access::Waitpoint => Some(Stamp::operator(&self.actor())),
        }
    }

    fn actor(&self) -> Actor {
        Actor {
            remote: Some(self.remote.to_string()),
            request_id: Some(self.request_id.to_owned()),
            ..Actor::default()
        }
    }
}
