//! Plain async functions as handlers: their arguments are taken from the execution, their answer
//! becomes its result.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;

use serde::Serialize;

use crate::ctx::Ctx;
use crate::error::Error;
use crate::extract::{FromExecution, Input, States};
use crate::failure::{Failure, INVALID_RESULT};

/// An async function of up to eight arguments that answers `Result<T, E>`, where `T` can be written
/// as JSON and `E` is a [`Failure`] or any error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler",
    label = "not a handler",
    note = "a handler is an `async fn` whose arguments implement `FromExecution` \
            and which answers `Outcome<T>` with a `T: Serialize`"
)]
pub trait Handler<Args>: Clone + Send + Sync + 'static {
    /// What it answers when all is well.
    type Value: Serialize;

    fn call(self, ctx: Ctx) -> impl Future<Output = Result<Self::Value, Failure>> + Send;

    /// Whether the worker can give every argument.
    fn check(states: &States) -> Result<(), Error>;
}

/// The answer of a handler.
pub trait IntoOutcome {
    type Value: Serialize;

    fn into_outcome(self) -> Result<Self::Value, Failure>;
}

impl<T: Serialize, E: Into<Failure>> IntoOutcome for Result<T, E> {
    type Value = T;

    fn into_outcome(self) -> Result<T, Failure> {
        self.map_err(Into::into)
    }
}

/// The arguments of a handler that takes the input `I`, as its last one.
#[diagnostic::on_unimplemented(
    message = "the handler does not take the task's input",
    note = "its last argument must be `Input<{I}>`"
)]
pub trait Takes<I> {}

macro_rules! handlers {
    ($([$($argument:ident),*])*) => { $(
        impl<F, R, A, $($argument),*> Handler<($($argument,)*)> for F
        where
            F: Fn($($argument),*) -> R + Clone + Send + Sync + 'static,
            R: Future<Output = A> + Send,
            A: IntoOutcome,
            $($argument: FromExecution + Send,)*
        {
            type Value = A::Value;

            #[allow(non_snake_case, unused_variables)]
            async fn call(self, ctx: Ctx) -> Result<A::Value, Failure> {
                $(let $argument = $argument::from_execution(&ctx)?;)*
                drop(ctx);
                self($($argument),*).await.into_outcome()
            }

            #[allow(unused_variables)]
            fn check(states: &States) -> Result<(), Error> {
                $($argument::check(states)?;)*
                Ok(())
            }
        }
    )* };
}

handlers! {
    [] [A1] [A1, A2] [A1, A2, A3] [A1, A2, A3, A4] [A1, A2, A3, A4, A5]
    [A1, A2, A3, A4, A5, A6] [A1, A2, A3, A4, A5, A6, A7] [A1, A2, A3, A4, A5, A6, A7, A8]
}

macro_rules! takes {
    ($([$($argument:ident),*])*) => { $(
        impl<I, $($argument),*> Takes<I> for ($($argument,)* Input<I>,) {}
    )* };
}

takes! {
    [] [A1] [A1, A2] [A1, A2, A3] [A1, A2, A3, A4] [A1, A2, A3, A4, A5]
    [A1, A2, A3, A4, A5, A6] [A1, A2, A3, A4, A5, A6, A7]
}

/// A handler without its types.
pub(crate) trait AnyHandler: Send + Sync {
    fn call(&self, ctx: Ctx) -> Answer;

    fn check(&self, states: &States) -> Result<(), Error>;
}

/// The result as JSON; `None` stands for `null`.
pub(crate) type Answer = Pin<Box<dyn Future<Output = Result<Option<Vec<u8>>, Failure>> + Send>>;

pub(crate) struct Erased<H, Args> {
    handler: H,
    args: PhantomData<fn(Args)>,
}

impl<H, Args> Erased<H, Args> {
    pub fn new(handler: H) -> Self {
        Self { handler, args: PhantomData }
    }
}

impl<Args: 'static, H: Handler<Args>> AnyHandler for Erased<H, Args> {
    fn call(&self, ctx: Ctx) -> Answer {
        let handler = self.handler.clone();
        Box::pin(async move { to_json(&handler.call(ctx).await?) })
    }

    fn check(&self, states: &States) -> Result<(), Error> {
        H::check(states)
    }
}

fn to_json<T: Serialize>(value: &T) -> Result<Option<Vec<u8>>, Failure> {
    let bytes = serde_json::to_vec(value);
    let bytes = bytes.map_err(|error| {
        Failure::fatal(INVALID_RESULT, format!("the result cannot be written as JSON: {error}"))
    })?;
    Ok((bytes != b"null").then_some(bytes))
}
