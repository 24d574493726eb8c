//! One entry of the table: who may call what, with how large a body and for how long, what it
//! takes and what it answers.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use axum::http::Method;
use ff_api::Scope;
use serde::Serialize;
use serde::de::DeserializeOwned;
use utoipa::openapi::RefOr;
use utoipa::openapi::path::{Parameter, ParameterIn};
use utoipa::openapi::schema::{Ref, Schema};
use utoipa::{IntoParams, ToSchema};

use crate::call::{Answer, Call, RawCall, Reply};
use crate::refusal::Answered;

/// Who may call a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anybody. Only the two probes are.
    Public,
    /// Whoever has a valid token.
    Known,
    /// Whoever has the token of a waitpoint, which the engine checks before it looks at anything.
    Waitpoint,
    /// Whoever has a token with this scope.
    Scoped(Scope),
}

/// Where the namespace comes from in which a route acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It touches nothing that belongs to a namespace.
    Nothing,
    /// The parameter `namespace`, or the token's only one.
    Namespace,
    /// It touches what all namespaces share, so the token must be good in all of them.
    Everything,
    /// The parameter `namespace`, or all that the token is good in.
    Own,
}

/// Who remembers an `Idempotency-Key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The engine, with the execution.
    Engine,
    /// The server, with its answer.
    Replies,
    /// Nobody, because the answer must not be kept.
    Nobody,
}

/// How long a request is in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    Work,
    /// It must be answered however busy the server is.
    Probes,
    /// It may wait for something to happen.
    Waits,
    /// It stays open until one side ends it.
    Streams,
}

pub struct Route {
    pub method: Method,
    pub path: &'static str,
    /// The name of the operation, as in the trait.
    pub name: &'static str,
    pub summary: &'static str,
    pub access: Access,
    pub reach: Reach,
    /// The largest body in bytes.
    pub body: usize,
    pub timeout: Duration,
    pub pace: Pace,
    pub memory: Memory,
    pub(crate) handler: Handler,
    pub(crate) query: Vec<Parameter>,
    pub(crate) takes: Option<Shape>,
    pub(crate) gives: Option<Shape>,
    pub(crate) content_type: &'static str,
    pub(crate) success: u16,
}

type Handling = Pin<Box<dyn Future<Output = Answered<Reply>> + Send>>;
pub(crate) type Handler = Box<dyn Fn(RawCall) -> Handling + Send + Sync>;

/// A type as the OpenAPI document has it: how it is referred to, and what must be defined for it.
pub(crate) struct Shape {
    pub reference: RefOr<Schema>,
    pub schemas: Vec<(String, RefOr<Schema>)>,
}

/// No query, no body, no answer.
#[derive(Clone, Copy, Debug, Default, Serialize, serde::Deserialize, ToSchema, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

pub(crate) const KIB: usize = 1024;
pub(crate) const MIB: usize = 1024 * KIB;
const SMALL_BODY: usize = 64 * KIB;
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest that a caller may ask a route to wait.
pub const LONGEST_WAIT: Duration = Duration::from_secs(60);

impl Route {
    /// A route of a namespace that takes and answers JSON.
    pub(crate) fn new<Q, B, R, H, F>(
        (method, path): (Method, &'static str),
        (name, summary): (&'static str, &'static str),
        scope: Scope,
        handler: H,
    ) -> Self
    where
        Q: DeserializeOwned + IntoParams + Send + 'static,
        B: DeserializeOwned + ToSchema + Send + 'static,
        R: Serialize + ToSchema + Send + 'static,
        H: Fn(Call<Q, B>) -> F + Send + Sync + Clone + 'static,
        F: Future<Output = Answered<Answer<R>>> + Send + 'static,
    {
        let handler: Handler = Box::new(move |raw| {
            let handler = handler.clone();
            Box::pin(async move {
                let answer = handler(raw.typed()?).await?;
                answer.reply()
            })
        });
        let takes = shape::<B>();
        Self {
            body: if takes.is_some() { SMALL_BODY } else { 0 },
            method,
            path,
            name,
            summary,
            access: Access::Scoped(scope),
            reach: Reach::Namespace,
            timeout: PATIENCE,
            pace: Pace::Work,
            memory: Memory::Replies,
            handler,
            query: Q::into_params(|| Some(ParameterIn::Query)),
            takes,
            gives: shape::<R>(),
            content_type: "application/json",
            success: if shape::<R>().is_some() { 200 } else { 204 },
        }
    }

    pub(crate) fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    pub(crate) fn reach(mut self, reach: Reach) -> Self {
        self.reach = reach;
        self
    }

    pub(crate) fn body(mut self, bytes: usize) -> Self {
        self.body = bytes;
        self
    }

    /// The caller may ask it to wait.
    pub(crate) fn waits(mut self) -> Self {
        self.timeout = LONGEST_WAIT + Duration::from_secs(15);
        self.pace = Pace::Waits;
        self
    }

    pub(crate) fn probes(mut self) -> Self {
        self.pace = Pace::Probes;
        self
    }

    pub(crate) fn streams(mut self) -> Self {
        self.pace = Pace::Streams;
        self.content("text/event-stream")
    }

    pub(crate) fn content(mut self, content_type: &'static str) -> Self {
        self.content_type = content_type;
        self.success = 200;
        self
    }

    pub(crate) fn remembered_by_engine(mut self) -> Self {
        self.memory = Memory::Engine;
        self
    }

    pub(crate) fn remembered_by_nobody(mut self) -> Self {
        self.memory = Memory::Nobody;
        self
    }

    pub(crate) fn success(mut self, status: u16) -> Self {
        self.success = status;
        self
    }
}

fn shape<T: ToSchema>() -> Option<Shape> {
    let name = T::name();
    if name == "Nothing" {
        return None;
    }
    let mut schemas = Vec::new();
    T::schemas(&mut schemas);
    let reference = RefOr::Ref(Ref::from_schema_name(&*name));
    schemas.push((name.into_owned(), T::schema()));
    Some(Shape { reference, schemas })
}
