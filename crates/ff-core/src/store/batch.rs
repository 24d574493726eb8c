//! Operations that share a transaction. A refusal is a value and harms nobody else.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::oneshot;

use super::{Bells, Change, Needs, World, Write};
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
}

trait Work: Send {
    fn weight(&self) -> usize;
    fn may_end_leases(&self) -> bool;
    fn needs(&self, needs: &mut Needs);
    fn more(&self, world: &mut World, needs: &mut Needs);
    fn decide(&mut self, world: &mut World);
    fn answer(&mut self);
    fn refuse(&mut self, error: EngineError);
}

struct Pending<O: Operation> {
    operation: O,
    scope: Option<Namespace>,
    decided: Option<Result<O::Reply, EngineError>>,
    reply: Option<Reply<O::Reply>>,
    served: Option<Arc<AtomicBool>>,
    unheard: Option<Unheard<O::Reply>>,
}

impl<O: Operation> Work for Pending<O> {
    fn weight(&self) -> usize {
        self.operation.weight()
    }

    fn may_end_leases(&self) -> bool {
        O::MAY_END_LEASES
    }

    fn needs(&self, needs: &mut Needs) {
        let scope = self.scope.as_ref().map(|scope| scope.as_str().into());
        needs.ask(scope, O::MAY_END_LEASES);
        self.operation.needs(needs);
    }

    fn more(&self, world: &mut World, needs: &mut Needs) {
        world.restrict(self.scope.clone());
        self.operation.more(world, needs);
    }

    fn decide(&mut self, world: &mut World) {
        if O::NEEDS_CALLER && self.reply.as_ref().is_none_or(Reply::is_closed) {
            // What an earlier world had for it was not written.
            self.decided = None;
            return;
        }
        world.restrict(self.scope.clone());
        // A bug in one operation must not take the others down with it.
        let decide = AssertUnwindSafe(|| {
            let (reply, mut change) = self.operation.decide(world)?;
            settle::settle(world, &mut change);
            touch_flows(world, &mut change);
            debug_assert!(guards_its_records(world, &change), "{}: {change:?}", O::NAME);
            Ok((reply, change))
        });
        let decided = catch_unwind(decide).unwrap_or_else(|_| {
            let source = format!("{} panicked; nothing was changed", O::NAME).into();
            Err(EngineError::Transport { backend: world.store, source })
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
        let reply = Some(reply);
        Self(Box::new(Pending { operation, scope, decided: None, reply, served, unheard }))
    }

    /// How many single operations this one is worth.
    pub fn weight(&self) -> usize {
        self.0.weight()
    }
}

impl Batch {
    pub fn new(jobs: Vec<Job>) -> Self {
        Self { jobs }
    }

    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The needs of all jobs, merged.
    pub fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        for job in &self.jobs {
            job.0.needs(&mut needs);
        }
        needs.settle_claims();
        needs
    }

    /// What the jobs need beyond what was asked for, seeing what that has brought; nothing if
    /// they can decide.
    pub fn more(&self, world: &mut World, asked: &mut Needs) -> Option<Needs> {
        let mut needs = Needs::after(std::mem::take(asked));
        for job in &self.jobs {
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
        self.jobs.into_iter().map(|job| Self { jobs: vec![job] })
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
