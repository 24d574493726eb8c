//! What a handler is given and what it gives back.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use bytes::Bytes;
use ff_core::types::{ExecutionId, FlowId, LaneId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::gate::Authorized;
use crate::refusal::{Answered, Refusal};
use crate::state::State;
use crate::{body, query};

/// A request that has been authorised and read, and not yet understood.
pub struct RawCall {
    pub state: Arc<State>,
    pub door: Authorized,
    /// Where the request came from, past trusted proxies.
    pub remote: IpAddr,
    /// What the answer and the log call this request.
    pub request_id: Arc<str>,
    pub headers: HeaderMap,
    pub params: HashMap<String, String>,
    pub query: String,
    pub body: Bytes,
    pub idempotency_key: Option<String>,
}

/// A request as its handler sees it. Everything that it may touch is behind `door`.
pub struct Call<Q, B> {
    pub state: Arc<State>,
    pub door: Authorized,
    /// Where the request came from, past trusted proxies.
    pub remote: IpAddr,
    /// What the answer and the log call this request.
    pub request_id: Arc<str>,
    pub headers: HeaderMap,
    pub params: HashMap<String, String>,
    pub query: Q,
    pub body: B,
    pub idempotency_key: Option<String>,
}

impl RawCall {
    pub fn typed<Q: DeserializeOwned, B: DeserializeOwned>(self) -> Answered<Call<Q, B>> {
        Ok(Call {
            query: query::parse(&self.query)?,
            body: body::parse(&self.body)?,
            state: self.state,
            door: self.door,
            remote: self.remote,
            request_id: self.request_id,
            headers: self.headers,
            params: self.params,
            idempotency_key: self.idempotency_key,
        })
    }
}

impl<Q, B> Call<Q, B> {
    pub fn param(&self, name: &str) -> &str {
        self.params.get(name).map_or("", String::as_str)
    }

    /// `{fp:N}:uuid`, or `N:uuid`, which needs no escaping in a URL.
    pub fn execution_id(&self) -> Answered<ExecutionId> {
        let text = self.param("execution_id");
        let short = || {
            let (partition, id) = text.split_once(':')?;
            ExecutionId::parse(&format!("{{fp:{partition}}}:{id}")).ok()
        };
        match ExecutionId::parse(text) {
            Ok(id) => Ok(id),
            Err(error) => short().ok_or_else(|| Refusal::invalid(error.to_string())),
        }
    }

    pub fn uuid(&self, name: &str) -> Answered<Uuid> {
        let unreadable = |_| Refusal::invalid(format!("{name} is not a UUID"));
        Uuid::try_parse(self.param(name)).map_err(unreadable)
    }

    pub fn flow_id(&self) -> Answered<FlowId> {
        self.uuid("flow_id").map(FlowId)
    }

    pub fn lane_id(&self) -> Answered<LaneId> {
        LaneId::try_new(self.param("lane_id")).map_err(|error| Refusal::invalid(error.to_string()))
    }
}

/// What a handler answers.
pub struct Answer<R> {
    status: StatusCode,
    content: Content<R>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

enum Content<R> {
    Nothing,
    Json(R),
    Text(&'static str, String),
    Stream(Body),
}

impl<R> Answer<R> {
    pub fn json(value: R) -> Self {
        Self::of(StatusCode::OK, Content::Json(value))
    }

    pub fn created(value: R) -> Self {
        Self::of(StatusCode::CREATED, Content::Json(value))
    }

    pub fn nothing() -> Self {
        Self::of(StatusCode::NO_CONTENT, Content::Nothing)
    }

    pub fn text(content_type: &'static str, text: String) -> Self {
        Self::of(StatusCode::OK, Content::Text(content_type, text))
    }

    pub fn stream(body: Body) -> Self {
        Self::of(StatusCode::OK, Content::Stream(body))
    }

    pub fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The engine remembered the key: this answers an earlier request again.
    pub fn replayed(mut self) -> Self {
        self.headers.push((REPLAYED, HeaderValue::from_static("true")));
        self
    }

    fn of(status: StatusCode, content: Content<R>) -> Self {
        Self { status, content, headers: Vec::new() }
    }
}

impl<R: Serialize> Answer<R> {
    pub fn reply(self) -> Answered<Reply> {
        let (content_type, body) = match self.content {
            Content::Nothing => (None, ReplyBody::Bytes(Bytes::new())),
            Content::Json(value) => {
                let json = serde_json::to_vec(&value);
                let json = json.map_err(|error| Refusal::new("internal", error.to_string()))?;
                (Some("application/json"), ReplyBody::Bytes(json.into()))
            }
            Content::Text(kind, text) => (Some(kind), ReplyBody::Bytes(text.into())),
            Content::Stream(body) => (Some("text/event-stream"), ReplyBody::Stream(body)),
        };
        Ok(Reply { status: self.status, content_type, headers: self.headers, body })
    }
}

/// An answer on its way out.
pub struct Reply {
    pub status: StatusCode,
    pub content_type: Option<&'static str>,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: ReplyBody,
}

pub enum ReplyBody {
    Bytes(Bytes),
    Stream(Body),
}

pub const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
