//! Tells the engine what became of attempts: what ended at the same moment is told together, and
//! what the engine could not take is told again for as long as the lease stands.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ff_core::contracts::{FailArgs, FailureClass};
use ff_core::engine::clock::Clock;
use ff_core::engine_error::EngineError;

use super::leases::Leases;
use crate::clock::{backoff, pause};
use crate::failure::INVALID_RESULT;
use crate::transport::{Report, Transport, Verdict};

/// The pauses before a report is repeated.
const RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(2);

/// What is to be told about one attempt.
pub(crate) struct Told {
    pub ticket: u64,
    pub report: Report,
    tries: u32,
}

type Sent = Vec<(Told, Result<(), EngineError>)>;

pub(crate) struct Reporting {
    transport: Arc<dyn Transport>,
    clock: Arc<dyn Clock>,
    leases: Arc<Leases>,
    under_way: Vec<Pin<Box<dyn Future<Output = Sent> + Send>>>,
    again: usize,
    /// How many of those under way tell something for the first time.
    first: usize,
}

impl Told {
    pub fn new(ticket: u64, report: Report) -> Self {
        Self { ticket, report, tries: 0 }
    }
}

impl Reporting {
    pub fn new(transport: Arc<dyn Transport>, clock: Arc<dyn Clock>, leases: Arc<Leases>) -> Self {
        Self { transport, clock, leases, under_way: Vec::new(), again: 0, first: 0 }
    }

    pub fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether something is being told for the first time.
    pub fn is_sending(&self) -> bool {
        self.first > 0
    }

    /// How many attempts the engine could not be told of yet.
    pub fn again(&self) -> usize {
        self.again
    }

    pub fn send(&mut self, told: Vec<Told>) {
        if told.is_empty() {
            return;
        }
        self.first += usize::from(told[0].tries == 0);
        let (transport, clock) = (self.transport.clone(), self.clock.clone());
        self.under_way.push(Box::pin(async move {
            if let Some(tries) = told[0].tries.checked_sub(1) {
                pause(&*clock, backoff(tries, RETRY, LONGEST_RETRY)).await;
            }
            let (tickets, reports): (Vec<_>, Vec<_>) =
                told.into_iter().map(|told| ((told.ticket, told.tries), told.report)).unzip();
            let outcomes = transport.report(&reports).await;
            let told = tickets.into_iter().zip(reports);
            let told = told.map(|((ticket, tries), report)| Told { ticket, report, tries });
            told.zip(outcomes).collect()
        }));
    }

    /// Waits until something has been told; never returns while nothing is under way.
    pub async fn progress(&mut self) {
        let mut sent = Vec::new();
        poll_fn(|context| {
            self.under_way.retain_mut(|sending| match sending.as_mut().poll(context) {
                Poll::Pending => true,
                Poll::Ready(outcomes) => {
                    let first = |(told, _): &(Told, _)| told.tries == 0;
                    self.first -= usize::from(outcomes.first().is_some_and(first));
                    sent.extend(outcomes);
                    false
                }
            });
            if sent.is_empty() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        self.settle(sent);
    }

    fn settle(&mut self, sent: Sent) {
        let (mut done, mut again) = (Vec::with_capacity(sent.len()), Vec::new());
        for (told, outcome) in sent {
            self.again -= usize::from(told.tries > 0);
            let ticket = told.ticket;
            match outcome {
                Ok(()) => done.push(ticket),
                Err(error) => match self.retry(told, &error) {
                    Some(told) => again.push(told),
                    None => done.push(ticket),
                },
            }
        }
        self.leases.remove(done.into_iter());
        let (again, instead): (Vec<_>, Vec<_>) = again.into_iter().partition(|t| t.tries > 0);
        self.again += again.len();
        self.send(again);
        self.send(instead);
    }

    /// What to tell instead of what was refused, if anything.
    fn retry(&self, mut told: Told, error: &EngineError) -> Option<Told> {
        let execution = told.report.handle.execution_id();
        if error.retryable() {
            told.tries += 1;
            tracing::warn!(%execution, %error, "the outcome could not be told");
            return self.leases.stands(told.ticket).then_some(told);
        }
        if let (EngineError::Validation { .. }, Verdict::Complete(_)) =
            (error, &told.report.verdict)
        {
            told.tries = 0;
            told.report.verdict = Verdict::Fail(FailArgs {
                reason: format!("the engine does not take the result: {error}"),
                category: INVALID_RESULT.to_owned(),
                class: FailureClass::Fatal,
            });
            return Some(told);
        }
        tracing::info!(%execution, %error, "the outcome was refused: the lease is gone");
        None
    }
}
