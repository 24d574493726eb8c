//! Operations that share a transaction. A refusal is a value and harms nobody else.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::oneshot;

use super::{Bells, Change, Needs, World, Write};
use crate::contracts::Stamp;
use crate::engine::message_of;
use crate::engine_error::{EngineError, StoreError};
use crate::mutants::{self, Mutant};
use crate::operations::Operation;
use crate::operations::flow::drafts::touch_flows;
use crate::operations::limit::settle;
use crate::rows::ExecutionRow;
use crate::types::{ExecutionKey, Namespace};

/// Where an operation's answer goes.
pub type Reply<T> = oneshot::Sender<Result<T, EngineError>>;

/// What becomes of an answer that nobody is there to take.
pub type Unheard<T> = Box<dyn FnOnce(T) + Send>;

/// One waiting operation, whatever it is.
pub struct Job(Box<dyn Work>);

/// The operations of one transaction, in the order in which they came.
pub struct Batch {
    jobs: Vec<Job>,
    /// Since the transaction began. Before that nothing can have been written.
    decided: bool,
}

trait Work: Send {
    fn weight(&self) -> usize;
    fn may_end_leases(&self) -> bool;
    fn stamp(&mut self, stamp: Option<Arc<Stamp>>);
    fn needs(&mut self, needs: &mut Needs);
    fn more(&mut self, world: &mut World, needs: &mut Needs);
    fn decide(&mut self, world: &mut World);
    fn answer(&mut self);
    fn refuse(&mut self, error: EngineError);
}

struct Pending<O: Operation> {
    operation: O,
    scope: Option<Namespace>,
    stamp: Option<Arc<Stamp>>,
    decided: Option<Result<O::Reply, EngineError>>,
    reply: Option<Reply<O::Reply>>,
    served: Option<Arc<AtomicBool>>,
    unheard: Option<Unheard<O::Reply>>,
    /// It has panicked before it could decide, so it is not asked again.
    panicked: bool,
}

impl<O: Operation> Pending<O> {
    /// A bug in one operation must not take the others down with it.
    fn guarded<T>(&self, work: impl FnOnce(&Self) -> Result<T, EngineError>) -> Guarded<T> {
        catch_unwind(AssertUnwindSafe(|| work(self))).map_err(|panic| {
            tracing::error!(
                operation = O::NAME,
                why = message_of(&*panic),
                "an operation panicked"
            );
        })
    }
}

/// What came of work that may panic; the panic itself is logged.
type Guarded<T> = Result<Result<T, EngineError>, ()>;

impl<O: Operation> Work for Pending<O> {
    fn weight(&self) -> usize {
        self.operation.weight()
    }

    fn may_end_leases(&self) -> bool {
        O::MAY_END_LEASES
    }

    fn stamp(&mut self, stamp: Option<Arc<Stamp>>) {
        self.stamp = stamp;
    }

    fn needs(&mut self, needs: &mut Needs) {
        let scope = self.scope.as_ref().map(|scope| scope.as_str().into());
        needs.ask(scope, O::MAY_END_LEASES);
        let asked = self.guarded(|pending| {
            pending.operation.needs(needs);
            Ok(())
        });
        self.panicked = asked.is_err();
    }

    fn more(&mut self, world: &mut World, needs: &mut Needs) {
        if self.panicked {
            return;
        }
        world.restrict(self.scope.clone());
        let asked = self.guarded(|pending| {
            pending.operation.more(world, needs);
            Ok(())
        });
        self.panicked = asked.is_err();
    }

    fn decide(&mut self, world: &mut World) {
        if O::NEEDS_CALLER && self.reply.as_ref().is_none_or(Reply::is_closed) {
            // What an earlier world had for it was not written.
            self.decided = None;
            return;
        }
        world.restrict(self.scope.clone());
        let decided = match self.panicked {
            true => Err(()),
            false => self.guarded(|pending| {
                let (reply, mut change) = pending.operation.decide(world)?;
                settle::settle(world, &mut change);
                touch_flows(world, &mut change);
                if let Some(stamp) = &pending.stamp {
                    change.events.iter_mut().for_each(|event| event.stamp(stamp));
                }
                debug_assert!(guards_its_records(world, &change), "{}: {change:?}", O::NAME);
                Ok((reply, change))
            }),
        };
        let decided = decided.unwrap_or_else(|()| {
            Err(StoreError::Panicked(format!("{} panicked", O::NAME))
                .into_engine_error(world.store))
        });
        if let Some(served) = &self.served {
            let given = decided.as_ref().is_ok_and(|(reply, _)| O::is_served(reply));
            served.store(given, Ordering::Release);
        }
        self.decided = Some(decided.map(|(reply, change)| {
            world.apply(change);
            reply
        }));
        if mutants::active(Mutant::AckBeforeCommit) {
            self.answer();
        }
    }

    fn answer(&mut self) {
        if let (Some(decided), Some(reply)) = (self.decided.take(), self.reply.take()) {
            // The caller may have gone; what it asked for has happened all the same.
            let unheard = reply.send(decided).err().and_then(Result::ok);
            if let (Some(answer), Some(unheard)) = (unheard, self.unheard.take()) {
                unheard(answer);
            }
        }
    }

    fn refuse(&mut self, error: EngineError) {
        if let Some(reply) = self.reply.take() {
            let _ = reply.send(Err(error));
        }
    }
}

impl Job {
    pub fn new<O: Operation>(
        operation: O,
        scope: Option<Namespace>,
        reply: Reply<O::Reply>,
    ) -> Self {
        Self::with(operation, scope, reply, None, None)
    }

    /// A job that says as soon as it is decided whether it was given what it wants, and has a use
    /// for an answer that comes too late.
    pub fn watched<O: Operation>(
        operation: O,
        scope: Option<Namespace>,
        reply: Reply<O::Reply>,
        served: Option<Arc<AtomicBool>>,
        unheard: Unheard<O::Reply>,
    ) -> Self {
        Self::with(operation, scope, reply, served, Some(unheard))
    }

    fn with<O: Operation>(
        operation: O,
        scope: Option<Namespace>,
        reply: Reply<O::Reply>,
        served: Option<Arc<AtomicBool>>,
        unheard: Option<Unheard<O::Reply>>,
    ) -> Self {
        let (reply, decided, panicked) = (Some(reply), None, false);
        let stamp = None;
        Self(Box::new(Pending {
            operation,
            scope,
            stamp,
            decided,
            reply,
            served,
            unheard,
            panicked,
        }))
    }

    /// Every event that it causes names this actor.
    #[must_use]
    pub fn stamped(mut self, stamp: Option<&Arc<Stamp>>) -> Self {
        self.0.stamp(stamp.cloned());
        self
    }

    /// How many single operations this one is worth.
    pub fn weight(&self) -> usize {
        self.0.weight()
    }
}

impl Batch {
    pub fn new(jobs: Vec<Job>) -> Self {
        Self { jobs, decided: false }
    }

    /// A transaction begins: nothing of it is decided.
    pub(crate) fn begin(&mut self) {
        self.decided = false;
    }

    /// Whether there is something that may have been written.
    pub(crate) fn is_decided(&self) -> bool {
        self.decided
    }

    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The needs of all jobs, merged.
    pub fn needs(&mut self) -> Needs {
        let mut needs = Needs::default();
        for job in &mut self.jobs {
            job.0.needs(&mut needs);
        }
        needs.settle_claims();
        needs
    }

    /// What the jobs need beyond what was asked for, seeing what that has brought; nothing if
    /// they can decide.
    pub fn more(&mut self, world: &mut World, asked: &mut Needs) -> Option<Needs> {
        let mut needs = Needs::after(std::mem::take(asked));
        for job in &mut self.jobs {
            job.0.more(world, &mut needs);
        }
        if self.jobs.iter().any(|job| job.0.may_end_leases()) {
            settle::more(world, &mut needs);
        }
        let (grown, more) = needs.beyond();
        *asked = grown;
        more
    }

    /// Lets the jobs decide in turn. May be called again with a newer world.
    ///
    /// Claims that wait for work are decided right behind the jobs that bring it, so that one
    /// commit accepts an execution and hands it out.
    pub fn decide(&mut self, mut world: World, bells: &Bells) -> Change {
        for job in &mut self.jobs {
            job.0.decide(&mut world);
        }
        let offers = bells.take_offers(&world.new_work());
        world.unprepared();
        self.decided = true;
        for mut claim in offers {
            claim.0.decide(&mut world);
            self.jobs.push(claim);
        }
        world.into_change()
    }

    /// The transaction is committed: everybody gets an answer.
    pub fn answer(mut self) {
        for job in &mut self.jobs {
            job.0.answer();
        }
    }

    /// The transaction failed: everybody is told.
    pub fn refuse(mut self, error: &StoreError, store: &'static str) {
        for job in &mut self.jobs {
            job.0.refuse(error.clone().into_engine_error(store));
        }
    }

    /// The same jobs, each in a batch of its own.
    pub fn split(self) -> impl Iterator<Item = Self> {
        self.jobs.into_iter().map(|job| Self::new(vec![job]))
    }
}

/// Whether the execution of each record that asks for it is written too.
fn guards_its_records(world: &World, change: &Change) -> bool {
    let written: HashSet<ExecutionKey> = change.executions.iter().map(Write::key).collect();
    change.records.iter().all(|write| {
        let (spec, values) = match write {
            Write::Insert(row) | Write::Update(row) => (row.spec, &row.values[..]),
            Write::Delete(key) => (key.spec, &key.values[..]),
        };
        spec.owner(values).filter(|_| spec.guarded).is_none_or(|owner| {
            let row = world.executions.get(&owner);
            written.contains(&owner) || row.is_none_or(ExecutionRow::is_finished)
        })
    })
}
