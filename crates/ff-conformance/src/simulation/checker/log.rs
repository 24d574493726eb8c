//! Walks one execution's log and follows the rules that it must have obeyed.

use ff_core::contracts::EventType;
use ff_core::policy::{Backoff, ExecutionPolicy};
use ff_core::rows::EventRow;
use ff_core::state::PublicState;
use ff_core::types::{ExecutionKey, TimestampMs};
use serde_json::Value;

use super::super::{Broken, Checked, broken};
use super::Evidence;

/// Why an execution ended that waited for too long.
const SUSPENSION_TIMEOUT: &str = "suspension_timeout";

/// Where the walk stands.
struct Walk<'a> {
    evidence: &'a Evidence<'a>,
    key: ExecutionKey,
    policy: ExecutionPolicy,
    state: Option<PublicState>,
    version: u64,
    epoch: u64,
    /// The grant whose lease stands.
    lease: Option<&'a EventRow>,
    not_before: Option<TimestampMs>,
    /// When the last claim was; time that an attempt spends put down is not time that it runs.
    started: Option<TimestampMs>,
    /// Since the last replay.
    retries: u32,
    reclaims: u32,
    endings: u32,
    /// A header's cancellation has ended it and left its attempt alone.
    by_header: bool,
}

pub(super) fn check(evidence: &Evidence, key: ExecutionKey, events: &[&EventRow]) -> Checked {
    let policy = evidence.history.plans[&key].policy();
    let mut walk = Walk {
        evidence,
        key,
        policy,
        state: None,
        version: 0,
        epoch: 0,
        lease: None,
        not_before: None,
        started: None,
        retries: 0,
        reclaims: 0,
        endings: 0,
        by_header: false,
    };
    events.iter().try_for_each(|event| walk.take(event))
}

impl<'a> Walk<'a> {
    fn take(&mut self, event: &'a EventRow) -> Checked {
        self.check_step(event)?;
        match event.event_type {
            EventType::Submitted => self.submitted(event),
            EventType::Claimed => self.claimed(event)?,
            EventType::Completed
            | EventType::Delayed
            | EventType::Suspended
            | EventType::WaitingChildren => {
                self.written_by_holder(event)?;
            }
            EventType::Held if event.from == Some(PublicState::Active) => {
                self.written_by_holder(event)?;
            }
            EventType::Failed if reason(event) == "max_reclaims_exceeded" => {
                self.reclaims += 1;
                self.lease_ran_out(event)?;
            }
            EventType::Failed if reason(event) == SUSPENSION_TIMEOUT => {}
            EventType::Failed => self.written_by_holder(event)?,
            EventType::LeaseExpired => {
                self.reclaims += 1;
                self.lease_ran_out(event)?;
            }
            EventType::RetryScheduled => self.retried(event)?,
            EventType::Expired => {
                self.ended_from_outside(event)?;
                self.expired(event)?;
            }
            EventType::Cancelled if event.by.as_deref() == Some("lease_holder") => {
                self.fenced(event)?;
            }
            EventType::Cancelled | EventType::Skipped => {
                self.by_header = event.by.as_deref() == Some(BY_HEADER);
                self.ended_from_outside(event)?;
            }
            // A limit has room for it.
            EventType::Ready if event.from == Some(PublicState::RateLimited) => {}
            EventType::Ready => self.became_ready(event)?,
            EventType::Replayed => {
                (self.retries, self.reclaims, self.endings) = (0, 0, 0);
                (self.started, self.by_header) = (None, false);
            }
            EventType::LeaseRevoked if event.lease_epoch <= self.epoch => {
                return Err(self.broken("I9 a revocation locks out", event, "the fence stayed"));
            }
            _ => {}
        }
        self.finish_step(event)
    }

    /// What holds for every transition.
    fn check_step(&mut self, event: &EventRow) -> Checked {
        let finished = self.state.is_some_and(PublicState::is_finished);
        let after_the_end = [EventType::Replayed, EventType::TagsChanged];
        // What a header's cancellation has left to its holder can still be taken away.
        let left = self.by_header && event.event_type == EventType::LeaseRevoked;
        if finished && !left && !after_the_end.contains(&event.event_type) {
            let invariant = match self.state {
                Some(PublicState::Cancelled) => "I16 nothing follows a cancellation",
                _ => "I12 an end is final",
            };
            return Err(self.broken(invariant, event, "the execution had ended"));
        }
        if event.version != self.version + 1 {
            let what = format!("version {} was expected", self.version + 1);
            return Err(self.broken("I11 versions are contiguous", event, &what));
        }
        if event.from != self.state || !is_legal(event) {
            let what = format!("it was {:?}", self.state);
            return Err(self.broken("I11 transitions are legal", event, &what));
        }
        if event.lease_epoch < self.epoch {
            return Err(self.broken("I6 epochs grow", event, "the epoch went back"));
        }
        Ok(())
    }

    fn finish_step(&mut self, event: &'a EventRow) -> Checked {
        self.state = event.to;
        self.version = event.version;
        self.epoch = event.lease_epoch;
        match (event.event_type, event.to) {
            (EventType::Claimed, _) => self.lease = Some(event),
            // A waitpoint or a signal leaves the lease as it is.
            (_, Some(PublicState::Active)) => {}
            _ => self.lease = None,
        }
        if event.to != Some(PublicState::Delayed) {
            self.not_before = None;
        } else if let Some(until) = named_instant(event) {
            self.not_before = Some(until);
        }
        self.endings += u32::from(event.event_type.is_finish());
        if self.endings > 1 {
            return Err(self.broken("I13 it ends once", event, "a second end without a replay"));
        }
        let limits = &self.policy;
        if self.retries > limits.retry_policy.max_retries {
            return Err(self.broken("I14 retries are bounded", event, "one retry too many"));
        }
        // The expiry that goes beyond the bound must be the one that ends the execution.
        let bound = limits.timeout_policy.max_reclaim_count;
        if self.reclaims > bound + u32::from(event.to == Some(PublicState::Failed)) {
            return Err(self.broken("I14 reclaims are bounded", event, "one reclaim too many"));
        }
        Ok(())
    }

    fn submitted(&mut self, event: &EventRow) {
        let plan = &self.evidence.history.plans[&self.key];
        self.not_before = plan.submission.delay.map(|delay| event.at.after(delay));
    }

    fn claimed(&mut self, event: &EventRow) -> Checked {
        if event.lease_epoch <= self.epoch {
            return Err(self.broken("I6 epochs grow", event, "this epoch had been granted"));
        }
        self.started = Some(event.at);
        Ok(())
    }

    /// Whoever held a lease must find it gone. A header's cancellation leaves attempts alone: who
    /// holds one finds the execution ended.
    fn ended_from_outside(&self, event: &EventRow) -> Checked {
        let by_header = event.by.as_deref() == Some(BY_HEADER);
        if !by_header && self.lease.is_some_and(|grant| grant.lease_epoch >= event.lease_epoch) {
            return Err(self.broken("I7 the fence moves", event, "the holder keeps its epoch"));
        }
        Ok(())
    }

    fn written_by_holder(&self, event: &EventRow) -> Checked {
        if self.lease.is_some_and(|grant| grant.by != event.by) {
            return Err(self.broken("I7 the fence holds", event, "somebody else held the lease"));
        }
        self.fenced(event)
    }

    /// The lease of the last grant must have stood, by the store's clock.
    fn fenced(&self, event: &EventRow) -> Checked {
        let Some(grant) = self.lease else {
            return Err(self.broken("I7 the fence holds", event, "nobody held a lease"));
        };
        let same =
            grant.lease_epoch == event.lease_epoch && grant.attempt_index == event.attempt_index;
        if !same {
            return Err(self.broken("I7 the fence holds", event, "it is of another lease"));
        }
        match self.lease_end(grant) {
            Some(until) if event.at < until => Ok(()),
            until => {
                let what = format!("the lease stood until {until:?}");
                Err(self.broken("I7 the fence holds", event, &what))
            }
        }
    }

    fn lease_ran_out(&self, event: &EventRow) -> Checked {
        let until = self.lease.and_then(|grant| self.lease_end(grant));
        match until {
            Some(until) if until > event.at => {
                let what = format!("the lease stood until {}", until.0);
                Err(self.broken("I8 no lease is taken while it stands", event, &what))
            }
            Some(_) => Ok(()),
            None => Err(self.broken("I8 no lease is taken while it stands", event, "no grant")),
        }
    }

    fn lease_end(&self, grant: &EventRow) -> Option<TimestampMs> {
        self.evidence.leases.get(&(self.key, grant.lease_epoch)).copied()
    }

    fn retried(&mut self, event: &EventRow) -> Checked {
        if reason(event) == "attempt_timeout" {
            self.timed_out(event)?;
        } else {
            self.written_by_holder(event)?;
        }
        let backoff = &self.policy.retry_policy.backoff;
        let most = without_jitter(backoff).delay_ms(self.retries, 0);
        let least = backoff.delay_ms(self.retries, 0);
        let Some(until) = named_instant(event) else {
            return Err(self.broken("I15 back-off", event, "no end of the back-off is named"));
        };
        let delay = u64::try_from(until.0 - event.at.0).unwrap_or(u64::MAX);
        if !(least..=most).contains(&delay) {
            let what = format!("{delay} ms is not within {least} to {most} ms");
            return Err(self.broken("I15 back-off", event, &what));
        }
        self.retries += 1;
        Ok(())
    }

    fn timed_out(&self, event: &EventRow) -> Checked {
        let timeout = self.policy.timeout_policy.attempt_timeout_ms;
        let due = timeout.and_then(|ms| self.started.map(|at| at.after_ms(ms)));
        match due {
            Some(due) if due <= event.at => Ok(()),
            _ => {
                let what = format!("the attempt may run until {due:?}");
                Err(self.broken("I17 time-outs are not early", event, &what))
            }
        }
    }

    fn expired(&self, event: &EventRow) -> Checked {
        if reason(event) == "attempt_timeout" {
            return self.timed_out(event);
        }
        if reason(event) == SUSPENSION_TIMEOUT {
            return Ok(());
        }
        let created = self.evidence.events[&self.key][0].at;
        let deadline = self.evidence.history.plans[&self.key].submission.deadline;
        match deadline.map(|deadline| created.after(deadline)) {
            Some(due) if due <= event.at => Ok(()),
            due => {
                let what = format!("its deadline is {due:?}");
                Err(self.broken("I17 deadlines are not early", event, &what))
            }
        }
    }

    fn became_ready(&self, event: &EventRow) -> Checked {
        match self.not_before {
            Some(at) if at <= event.at => Ok(()),
            at => {
                let what = format!("it was to wait until {at:?}");
                Err(self.broken("I15 nothing is handed out early", event, &what))
            }
        }
    }

    fn broken(&self, invariant: &'static str, event: &EventRow, what: &str) -> Broken {
        broken(invariant, self.key, format!("{what}, at{}", super::line(event)))
    }
}

/// The transitions that there are. Waiting work only becomes active once it is ready, which is how
/// nothing is claimed before its time.
fn is_legal(event: &EventRow) -> bool {
    use PublicState::{
        Active, Cancelled, Completed, Delayed, Expired, Failed, RateLimited, Skipped, Suspended,
        Waiting, WaitingChildren,
    };
    let Some(to) = event.to else { return false };
    let Some(from) = event.from else {
        let first = matches!(to, Waiting | Delayed | WaitingChildren);
        return event.event_type == EventType::Submitted && first;
    };
    let parked = matches!(from, Waiting | Delayed | RateLimited | WaitingChildren | Suspended);
    let open = parked || from == Active;
    match event.event_type {
        EventType::Claimed => (from, to) == (Waiting, Active),
        EventType::Completed => (from, to) == (Active, Completed),
        EventType::Failed => {
            let from_wait = from == Suspended && reason(event) == SUSPENSION_TIMEOUT;
            (from == Active || from_wait) && to == Failed
        }
        EventType::Suspended => (from, to) == (Active, Suspended),
        EventType::WaitingChildren => (from, to) == (Active, WaitingChildren),
        EventType::Blocked => {
            matches!(from, Waiting | Delayed | RateLimited) && to == WaitingChildren
        }
        EventType::TagsChanged => from == to,
        EventType::WaitpointCreated => (from, to) == (Active, Active),
        EventType::SignalDelivered => open && from == to,
        EventType::Resumed => from == Suspended && matches!(to, Waiting | Delayed),
        EventType::Escalated => (from, to) == (Suspended, Suspended),
        EventType::Cancelled => open && to == Cancelled,
        EventType::Expired => open && to == Expired,
        EventType::RetryScheduled | EventType::Delayed => {
            from == Active && matches!(to, Waiting | Delayed)
        }
        EventType::Ready => matches!(from, Delayed | RateLimited) && to == Waiting,
        EventType::Limited => (from, to) == (Waiting, RateLimited),
        EventType::Unblocked => (from, to) == (WaitingChildren, Waiting),
        EventType::Skipped => (from, to) == (WaitingChildren, Skipped),
        EventType::Held => matches!(from, Waiting | RateLimited | Active) && to == Waiting,
        EventType::LeaseRevoked if from == Cancelled => to == Cancelled,
        EventType::LeaseExpired | EventType::LeaseRevoked => (from, to) == (Active, Waiting),
        EventType::PriorityChanged => (from, to) == (Waiting, Waiting),
        EventType::Rescheduled => {
            matches!(from, Waiting | Delayed) && matches!(to, Waiting | Delayed)
        }
        // With its flow, whatever has ended runs again, behind its parents.
        EventType::Replayed if details(event)["branch"] == "flow" => {
            from.is_finished() && matches!(to, Waiting | WaitingChildren)
        }
        EventType::Replayed => matches!(from, Completed | Failed | Expired) && to == Waiting,
        _ => false,
    }
}

/// Who cancels the members of a header.
pub(super) const BY_HEADER: &str = "cancel_flow_header";

pub(super) fn details(event: &EventRow) -> Value {
    let details = event.details.as_deref();
    details.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default()
}

fn reason(event: &EventRow) -> String {
    details(event)["reason"].as_str().unwrap_or_default().to_owned()
}

/// The moment until which an event says that the execution waits.
fn named_instant(event: &EventRow) -> Option<TimestampMs> {
    let details = details(event);
    let at = ["delay_until", "not_before"].iter().find_map(|name| details[*name].as_i64());
    at.map(TimestampMs)
}

fn without_jitter(backoff: &Backoff) -> Backoff {
    let mut plain = backoff.clone();
    if let Backoff::Exponential { jitter, .. } = &mut plain {
        *jitter = false;
    }
    plain
}
