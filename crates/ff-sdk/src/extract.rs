//! What a handler may ask for as an argument.

use std::any::{Any, TypeId, type_name};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ff_core::state::AttemptType;
use serde::de::DeserializeOwned;

use crate::ctx::Ctx;
use crate::error::Error;
use crate::failure::{Failure, INVALID_INPUT};

/// An argument of a handler.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a handler",
    note = "arguments are `Ctx`, `Input<T>`, `Payload`, `State<T>`, `Tags` and `Attempt`"
)]
pub trait FromExecution: Sized {
    fn from_execution(ctx: &Ctx) -> Result<Self, Failure>;

    /// Refuses a worker that could never give this argument, before it runs.
    fn check(_states: &States) -> Result<(), Error> {
        Ok(())
    }
}

impl FromExecution for Ctx {
    fn from_execution(ctx: &Ctx) -> Result<Self, Failure> {
        Ok(ctx.clone())
    }
}

/// The execution's input, read from JSON. What does not fit is a fatal failure of the category
/// `invalid_input`; no input at all reads as `null`.
#[derive(Clone, Copy, Debug)]
pub struct Input<T>(pub T);

impl<T: DeserializeOwned> FromExecution for Input<T> {
    fn from_execution(ctx: &Ctx) -> Result<Self, Failure> {
        let bytes: &[u8] = match &*ctx.inner().claimed.payload {
            [] => b"null",
            bytes => bytes,
        };
        let input = serde_json::from_slice(bytes);
        input.map(Self).map_err(|error| {
            let expected = type_name::<T>();
            Failure::fatal(INVALID_INPUT, format!("the input is not a {expected}: {error}"))
        })
    }
}

/// The execution's input as it was submitted.
#[derive(Clone, Debug)]
pub struct Payload(pub Arc<[u8]>);

impl FromExecution for Payload {
    fn from_execution(ctx: &Ctx) -> Result<Self, Failure> {
        Ok(Self(ctx.inner().claimed.payload.clone()))
    }
}

/// A value of the worker, given to it with `state`. A worker whose handlers ask for a type that it
/// was not given does not start.
#[derive(Clone, Copy, Debug)]
pub struct State<T>(pub T);

impl<T: Clone + Send + Sync + 'static> FromExecution for State<T> {
    fn from_execution(ctx: &Ctx) -> Result<Self, Failure> {
        let state = ctx.inner().states.get::<T>();
        Ok(Self(state.ok_or_else(missing::<T>)?))
    }

    fn check(states: &States) -> Result<(), Error> {
        states.get::<T>().map(drop).ok_or_else(missing::<T>)
    }
}

fn missing<T>() -> Error {
    let name = type_name::<T>();
    Error::config(format!("a handler asks for State<{name}>, but the worker was given none"))
}

/// The execution's tags.
#[derive(Clone, Debug)]
pub struct Tags(pub BTreeMap<String, String>);

impl FromExecution for Tags {
    fn from_execution(ctx: &Ctx) -> Result<Self, Failure> {
        Ok(Self(ctx.tags().clone()))
    }
}

/// Which attempt this is, counted from 0, and why it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub index: u32,
    pub attempt_type: AttemptType,
}

impl FromExecution for Attempt {
    fn from_execution(ctx: &Ctx) -> Result<Self, Failure> {
        Ok(Self { index: ctx.attempt(), attempt_type: ctx.attempt_type() })
    }
}

/// The values that a worker was given, one of each type.
#[derive(Clone, Default)]
pub struct States(Arc<HashMap<TypeId, Box<dyn Any + Send + Sync>>>);

impl States {
    pub(crate) fn insert<T: Clone + Send + Sync + 'static>(&mut self, state: T) {
        // Nobody else has these values before the worker runs.
        if let Some(states) = Arc::get_mut(&mut self.0) {
            states.insert(TypeId::of::<T>(), Box::new(state));
        }
    }

    fn get<T: Clone + 'static>(&self) -> Option<T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref::<T>().cloned()
    }
}
