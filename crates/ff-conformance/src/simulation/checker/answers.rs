//! Holds every answer that reached its caller against the log: what was acknowledged has happened,
//! and has happened once.

use std::collections::BTreeMap;
use std::sync::Arc;

use ff_core::backend::Handle;
use ff_core::contracts::EventType;
use ff_core::rows::{Blob, EventRow};
use ff_core::state::PublicState;
use ff_core::types::ExecutionKey;

use super::super::history::Op;
use super::super::message::{Answer, Lease, Seen, Verb};
use super::super::{Checked, broken};
use super::Evidence;

pub(super) fn check(evidence: &Evidence) -> Checked {
    let mut granted = BTreeMap::new();
    let mut by_key = BTreeMap::new();
    for (id, op, answer) in evidence.history.acks() {
        match (&op.verb, answer) {
            (Verb::Submit(key), answer) => check_submit(evidence, &mut by_key, *key, answer)?,
            (_, Answer::Granted(leases)) => {
                for lease in leases {
                    check_grant(evidence, &mut granted, id, lease)?;
                }
            }
            (Verb::Complete { handle, result }, Answer::Done) => {
                check_complete(evidence, handle, result)?;
            }
            (Verb::Fail { handle, .. }, Answer::Done) => {
                let kinds = [EventType::RetryScheduled, EventType::Failed];
                check_written(evidence, handle, &kinds)?;
            }
            (Verb::Delay { handle, .. }, Answer::Done) => {
                check_written(evidence, handle, &[EventType::Delayed])?;
            }
            (Verb::Suspend(handle, _), Answer::Waitpoints(_)) => {
                check_written(evidence, handle, &[EventType::Suspended])?;
            }
            (Verb::Sleep(handle, _), Answer::Slept { until: None, .. }) => {
                check_written(evidence, handle, &[EventType::Delayed])?;
            }
            (Verb::WaitChildren(handle), Answer::Done) => {
                // It is held back if its flow was cancelled meanwhile.
                check_written(evidence, handle, &[EventType::WaitingChildren, EventType::Held])?;
            }
            (Verb::GiveUp(handle), Answer::Done) => {
                check_written(evidence, handle, &[EventType::Cancelled])?;
            }
            (Verb::Cancel(key), Answer::Done) => check_cancel(evidence, *key)?,
            (Verb::Revoke(key), Answer::Revoked { epoch }) => {
                let at = |event: &&EventRow| {
                    event.event_type == EventType::LeaseRevoked && event.lease_epoch == *epoch
                };
                once(evidence, *key, at, "I9 an acknowledged revocation happened")?;
            }
            (Verb::Read(key), Answer::Seen(Some(seen))) => check_read(evidence, *key, seen)?,
            _ => {}
        }
    }
    check_renewals(evidence)?;
    evidence.history.ops.iter().try_for_each(|op| check_repeats(evidence, op))?;
    check_counts(evidence)
}

type ByKey<'a> = BTreeMap<(&'a str, &'a [u8]), ExecutionKey>;

fn check_submit<'a>(
    evidence: &Evidence<'a>,
    by_key: &mut ByKey<'a>,
    key: ExecutionKey,
    answer: &Answer,
) -> Checked {
    let plan = &evidence.history.plans[&key].submission;
    let own = plan.idempotency.as_ref().map(|own| own.key.as_str());
    let Answer::Submitted(stands) = answer else {
        if own.is_none() || evidence.tables.executions.contains_key(&key) {
            let what = format!("it was answered with {answer:?}");
            return Err(broken("I2 a refusal leaves nothing", key, what));
        }
        return Ok(());
    };
    if !evidence.tables.executions.contains_key(stands) {
        let what = format!("{} was acknowledged and is not there", stands.id);
        return Err(broken("I1 an acknowledged submission is kept", *stands, what));
    }
    if evidence.history.plans[stands].submission.input_payload != plan.input_payload {
        return Err(broken("I3 one key, one body", *stands, "it stands for another body"));
    }
    let Some(own) = own else {
        let same = *stands == key;
        let what = "a submission without a key got another identity";
        return if same { Ok(()) } else { Err(broken("I1 the identity is kept", key, what)) };
    };
    let body = plan.input_payload.as_slice();
    if by_key.insert((own, body), *stands).is_some_and(|before| before != *stands)
        || by_key.keys().any(|known| known.0 == own && known.1 != body)
    {
        return Err(broken("I3 one key, one body", *stands, "two executions under one key"));
    }
    Ok(())
}

/// Each epoch is one grant's, and the log has that grant.
fn check_grant(
    evidence: &Evidence,
    granted: &mut BTreeMap<(ExecutionKey, u64), usize>,
    op: usize,
    lease: &Lease,
) -> Checked {
    let (key, epoch) = (lease.handle.key(), lease.handle.lease_epoch().0);
    if granted.insert((key, epoch), op).is_some_and(|before| before != op) {
        let what = format!("epoch {epoch} was granted twice");
        return Err(broken("I6 one grant per epoch", key, what));
    }
    let holder = lease.handle.worker_instance_id().as_str();
    let grant = |event: &&EventRow| {
        event.event_type == EventType::Claimed
            && event.lease_epoch == epoch
            && event.by.as_deref() == Some(holder)
    };
    once(evidence, key, grant, "I6 an acknowledged grant happened")
}

/// An accepted write of a worker is in the log exactly once, under the fence that it showed.
fn check_written(evidence: &Evidence, handle: &Handle, kinds: &[EventType]) -> Checked {
    let written = |event: &&EventRow| {
        kinds.contains(&event.event_type)
            && event.from == Some(PublicState::Active)
            && event.lease_epoch == handle.lease_epoch().0
            && event.attempt_index == handle.attempt_index()
    };
    once(evidence, handle.key(), written, "I5, I7 an accepted write happened once, in its lease")
}

fn check_complete(evidence: &Evidence, handle: &Handle, result: &Arc<[u8]>) -> Checked {
    check_written(evidence, handle, &[EventType::Completed])?;
    let key = handle.key();
    let events = &evidence.events[&key];
    let last_end = events.iter().rfind(|event| event.event_type.is_finish());
    let row = &evidence.tables.executions[&key];
    let stands = last_end
        .is_some_and(|end| end.version == row.version && end.lease_epoch == handle.lease_epoch().0);
    if stands && row.result != Blob::Here(result.clone()) {
        return Err(broken("I4 an acknowledged result stays", key, "another result is stored"));
    }
    Ok(())
}

fn check_cancel(evidence: &Evidence, key: ExecutionKey) -> Checked {
    let state = evidence.tables.executions.get(&key).map(|row| row.public_state);
    let events = evidence.events.get(&key).map(Vec::as_slice).unwrap_or_default();
    // Somebody has asked for it again, with all that depends on it.
    let again = |event: &&EventRow| {
        event.event_type == EventType::Replayed && event.from == Some(PublicState::Cancelled)
    };
    if state != Some(PublicState::Cancelled) && !events.iter().any(again) {
        let what = format!("it was acknowledged as cancelled and is {state:?}");
        return Err(broken("I16 an acknowledged cancellation stays", key, what));
    }
    Ok(())
}

/// A reader sees a state that the log has, and results that do not change under it.
fn check_read(evidence: &Evidence, key: ExecutionKey, seen: &Seen) -> Checked {
    let events = evidence.events.get(&key).map(Vec::as_slice).unwrap_or_default();
    let at = events.iter().position(|event| event.version == seen.version);
    if at.is_none_or(|at| events[at].to != Some(seen.state)) {
        let what = format!("a reader saw {seen:?}");
        return Err(broken("I4 what was read stays true", key, what));
    }
    let result = seen.result.clone().map_or(Blob::Absent, Blob::Here);
    let row = &evidence.tables.executions[&key];
    if seen.version == row.version && row.result != result {
        let what = format!("a reader saw {seen:?}");
        return Err(broken("I4 an acknowledged result stays", key, what));
    }
    Ok(())
}

/// An operation that was accepted and is sent again gets the first outcome, until a replay begins
/// anew.
fn check_repeats(evidence: &Evidence, op: &Op) -> Checked {
    let key = match &op.verb {
        Verb::Submit(key) => *key,
        Verb::Complete { handle, .. } | Verb::Fail { handle, .. } | Verb::GiveUp(handle) => {
            handle.key()
        }
        _ => return Ok(()),
    };
    let Some(first) = op.committed.iter().position(|(answer, _)| answer.is_ok()) else {
        return Ok(());
    };
    let since = op.committed[first].1;
    let events = evidence.events.get(&key).map(Vec::as_slice).unwrap_or_default();
    let replayed = |event: &&EventRow| event.event_type == EventType::Replayed && event.seq > since;
    let refused = op.committed[first..].iter().find(|(answer, _)| !answer.is_ok());
    match refused {
        Some((answer, _)) if !events.iter().any(replayed) => {
            let what = format!("{:?} was accepted and then answered with {answer:?}", op.verb);
            Err(broken("I5 a repeat gets the first outcome", key, what))
        }
        _ => Ok(()),
    }
}

/// A renewal is only accepted from the holder of the lease that stands. What ended the lease in an
/// earlier transaction is before it in the log.
fn check_renewals(evidence: &Evidence) -> Checked {
    for op in &evidence.history.ops {
        let Verb::Renew(handles) = &op.verb else {
            continue;
        };
        for (answer, head) in &op.committed {
            let Answer::Renewed(outcomes) = answer else {
                continue;
            };
            let kept = handles.iter().zip(outcomes).filter(|(_, until)| until.is_some());
            for (handle, _) in kept {
                check_renewal(evidence, handle, *head)?;
            }
        }
    }
    Ok(())
}

fn check_renewal(evidence: &Evidence, handle: &Handle, head: u64) -> Checked {
    let key = handle.key();
    let events = evidence.events.get(&key).map(Vec::as_slice).unwrap_or_default();
    let epoch = handle.lease_epoch().0;
    let grant =
        |event: &&EventRow| event.event_type == EventType::Claimed && event.lease_epoch == epoch;
    let Some(granted) = events.iter().position(grant) else {
        return Err(broken("I7 the fence holds", key, format!("{handle:?} was never granted")));
    };
    let ends = |event: &&&EventRow| event.to != Some(PublicState::Active);
    let end = events[granted + 1..].iter().find(ends);
    if let Some(end) = end.filter(|end| end.seq <= head) {
        let what = format!("{handle:?} was renewed after{}", super::line(end));
        return Err(broken("I7 the fence holds", key, what));
    }
    Ok(())
}

/// Operations without an identity of their own leave at least one event per acknowledgement.
fn check_counts(evidence: &Evidence) -> Checked {
    let mut acked: BTreeMap<(ExecutionKey, EventType), usize> = BTreeMap::new();
    let done = |op: &&Op| op.acked.iter().any(|answer| matches!(answer, Answer::Done));
    for op in evidence.history.ops.iter().filter(done) {
        let effect = match op.verb {
            Verb::Replay(key) | Verb::ReplayFlow(key) => (key, EventType::Replayed),
            Verb::ChangePriority(key, _) => (key, EventType::PriorityChanged),
            Verb::Reschedule(key, _) => (key, EventType::Rescheduled),
            _ => continue,
        };
        *acked.entry(effect).or_default() += 1;
    }
    for ((key, kind), acked) in acked {
        let events = evidence.events.get(&key).map(Vec::as_slice).unwrap_or_default();
        let happened = events.iter().filter(|event| event.event_type == kind).count();
        if happened < acked {
            let what = format!("{} was acknowledged {acked} times", kind.as_str());
            return Err(broken("I5 what was acknowledged happened", key, what));
        }
    }
    Ok(())
}

fn once(
    evidence: &Evidence,
    key: ExecutionKey,
    wanted: impl Fn(&&EventRow) -> bool,
    invariant: &'static str,
) -> Checked {
    let events = evidence.events.get(&key).map(Vec::as_slice).unwrap_or_default();
    let found = events.iter().filter(|event| wanted(event)).count();
    match found {
        1 => Ok(()),
        _ => Err(broken(invariant, key, format!("the log has it {found} times"))),
    }
}
