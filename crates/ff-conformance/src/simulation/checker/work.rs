//! Steps and streams: what was recorded first stands, and what was said is there once, in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use ff_core::rows::{FrameRow, StepRow, StreamKey, StreamRow};
use ff_core::types::{ExecutionKey, TimestampMs};

use super::super::limits::records;
use super::super::message::{Answer, Verb};
use super::super::{Checked, broken};
use super::Evidence;

pub(super) fn check(evidence: &Evidence) -> Checked {
    check_steps(evidence)?;
    check_sleeps(evidence)?;
    check_streams(evidence)
}

/// The steps of each execution, and what was told of them.
fn check_steps(evidence: &Evidence) -> Checked {
    let mut steps: BTreeMap<ExecutionKey, Vec<StepRow>> = BTreeMap::new();
    for step in records::<StepRow>(evidence.tables) {
        steps.entry(step.key.execution).or_default().push(step);
    }
    for (key, steps) in &mut steps {
        steps.sort_by_key(|step| step.sequence);
        let counted = evidence.tables.executions[key].step_count().count;
        let dense = steps.iter().zip(1..).all(|(step, at)| step.sequence == at);
        if !dense || counted as usize != steps.len() {
            let what = format!("{counted} steps were counted, and these are there: {steps:?}");
            return Err(broken("a step counts once", *key, what));
        }
    }
    let stored = |key: ExecutionKey, name: &str| {
        let step = steps.get(&key).and_then(|all| all.iter().find(|step| *step.key.name == *name));
        step.map(|step| step.result.clone())
    };
    for (op, answer) in evidence.history.answers() {
        let (Verb::Record(handle, name, _), Answer::Recorded { result, .. }) = (&op.verb, answer)
        else {
            continue;
        };
        let stands: Option<Arc<[u8]>> = stored(handle.key(), name);
        if stands.as_ref() != Some(result) {
            let what = format!("{name} was told to be {result:?} and is {stands:?}");
            return Err(broken("what is recorded first stands", handle.key(), what));
        }
    }
    Ok(())
}

/// A sleep ends when it was said to end, however often it is asked for.
fn check_sleeps(evidence: &Evidence) -> Checked {
    let mut known: BTreeMap<ExecutionKey, TimestampMs> = BTreeMap::new();
    for (op, answer) in evidence.history.answers() {
        let (Verb::Sleep(handle, _), Answer::Slept { due_at, .. }) = (&op.verb, answer) else {
            continue;
        };
        let first = *known.entry(handle.key()).or_insert(*due_at);
        if first != *due_at {
            let what = format!("its sleep was to end at {first:?} and then at {due_at:?}");
            return Err(broken("what is recorded first stands", handle.key(), what));
        }
    }
    Ok(())
}

fn check_streams(evidence: &Evidence) -> Checked {
    let mut frames: BTreeMap<(ExecutionKey, u32), Vec<FrameRow>> = BTreeMap::new();
    for frame in records::<FrameRow>(evidence.tables) {
        let of = (frame.key.execution, frame.key.attempt_index);
        frames.entry(of).or_default().push(frame);
    }
    let mut streams: BTreeMap<(ExecutionKey, u32), StreamRow> = BTreeMap::new();
    for stream in records::<StreamRow>(evidence.tables) {
        let StreamKey { execution, attempt_index } = stream.key;
        let kept = frames.entry((execution, attempt_index)).or_default();
        kept.sort_by_key(|frame| frame.key.sequence);
        let whole = kept.iter().map(|frame| frame.key.sequence);
        if !whole.eq(stream.first_sequence..stream.next_sequence) {
            let what = format!("{stream:?} has these frames: {kept:?}");
            return Err(broken("I43 frames are contiguous", execution, what));
        }
        let mut said: Vec<_> = kept.iter().map(|frame| frame.payload.clone()).collect();
        said.sort();
        said.dedup();
        if said.len() < kept.len() {
            let what = format!("something was said twice: {kept:?}");
            return Err(broken("I43 an append counts once", execution, what));
        }
        streams.insert((execution, attempt_index), stream);
    }
    for (op, answer) in evidence.history.answers() {
        let (Verb::Append(handle, id), Answer::Appended { sequence, .. }) = (&op.verb, answer)
        else {
            continue;
        };
        let of = (handle.key(), handle.attempt_index());
        let trimmed = streams.get(&of).is_some_and(|stream| *sequence < stream.first_sequence);
        let mut kept = frames.get(&of).into_iter().flatten();
        let found = kept.any(|frame| {
            frame.key.sequence == *sequence && *frame.payload == *id.as_bytes().as_slice()
        });
        if !trimmed && !found {
            let what = format!("frame {sequence} was acknowledged and is not there");
            return Err(broken("I43 an acknowledged frame is kept", handle.key(), what));
        }
    }
    Ok(())
}
