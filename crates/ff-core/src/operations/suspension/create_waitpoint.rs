//! The holder makes a waitpoint before it waits, so that no signal can come too early.

use serde_json::json;

use super::end::close_waitpoint;
use super::keys::{self, KnownKeys};
use super::suspend::{check_room, fresh, give_token};
use super::{mark, open_waitpoints};
use crate::backend::Handle;
use crate::contracts::{CreateWaitpointArgs, EventType, WaitEnd};
use crate::engine_error::{ConflictKind, EngineError};
use crate::operations::Operation;
use crate::operations::execution::{fence, transition};
use crate::rows::{Json, TimerKey, TimerKind, TimerMember, TimerRow, WaitpointKey, WaitpointRow};
use crate::store::{Change, Needs, World, Write};
use crate::token::NONCE_BYTES;

#[derive(Debug)]
pub struct CreateWaitpoint {
    pub handle: Handle,
    pub args: CreateWaitpointArgs,
    pub keys: KnownKeys,
    pub nonce: [u8; NONCE_BYTES],
}

impl Operation for CreateWaitpoint {
    type Reply = WaitpointRow;

    const NAME: &'static str = "create_waitpoint";

    fn needs(&self, needs: &mut Needs) {
        fence::needs(needs, &self.handle);
        let execution = self.handle.key();
        let waitpoint_id = self.args.waitpoint_id.0;
        needs.record::<WaitpointRow>(&WaitpointKey { execution, waitpoint_id });
        needs.scan(&open_waitpoints(execution));
        if self.args.token.is_some() {
            keys::needs(needs);
        }
    }

    fn decide(&self, world: &World) -> Result<(WaitpointRow, Change), EngineError> {
        let mut change = Change::default();
        let args = &self.args;
        let held = fence::held(world, &self.handle)?;
        let generation = held.row.replay_count();
        let mut open = world.scan::<WaitpointRow>(&open_waitpoints(held.row.key));
        // Waitpoints of an earlier life, or that nobody came for in time, are in nobody's way.
        for dead in
            open.extract_if(.., |one| !one.is_alive(world.now) || one.generation != generation)
        {
            close_waitpoint(&mut change, &mut { dead }, WaitEnd::NeverUsed, world.now);
        }
        if let Some(known) = open.iter().find(|one| *one.waitpoint_key == *args.waitpoint_key) {
            return match known.suspension {
                0 => Ok((known.clone(), Change::default())),
                _ => Err(EngineError::Conflict(ConflictKind::WaitpointAlreadyExists)),
            };
        }
        check_room(open.len() + 1)?;
        let mut made = fresh(world, held.row, args.waitpoint_id, &args.waitpoint_key)?;
        made.signal_names = Json(args.signal_names.clone());
        let expires_at = world.now.after_ms(args.expires_in_ms);
        made.expires_at = Some(expires_at);
        if let Some(terms) = &args.token {
            let kid = self.keys.active(world, &mut change)?;
            give_token(world, &mut made, terms, kid, &self.nonce);
        }
        change.insert(&made);
        let (execution, subject) = (held.row.key, made.key.waitpoint_id);
        let key = TimerKey { due_at: expires_at, kind: TimerKind::Waitpoint, subject };
        let members = vec![TimerMember { execution, lease_epoch: 0 }];
        change.timers.push(Write::Update(TimerRow { key, members }));
        let mut after = held.row.clone();
        mark(&mut after);
        let by = held.attempt.worker_instance_id.clone();
        let details = json!({
            "waitpoint_id": made.key.waitpoint_id,
            "waitpoint_key": &*made.waitpoint_key,
            "expires_at": expires_at.0,
        });
        transition(&mut change, held.row, after, EventType::WaitpointCreated, world.now, |event| {
            event.by(by).details(&details)
        });
        Ok((made, change))
    }
}
