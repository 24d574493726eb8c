//! One cancelled member has been dealt with; the last one takes the backlog's header along.

use std::sync::Arc;

use super::backlog_members;
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{BacklogKey, BacklogMemberRow, BacklogRow, FlowKey};
use crate::store::{Change, Needs, World};

#[derive(Debug)]
pub struct AckCancelMember {
    pub flow: FlowKey,
    /// The wire form.
    pub execution_id: Arc<str>,
}

impl Operation for AckCancelMember {
    type Reply = ();

    const NAME: &'static str = "ack_cancel_member";

    fn needs(&self, needs: &mut Needs) {
        needs.flows.insert(self.flow);
        needs.record::<BacklogRow>(&BacklogKey { flow: self.flow });
        needs.scan(&backlog_members(self.flow));
    }

    fn decide(&self, world: &World) -> Result<((), Change), EngineError> {
        let mut change = Change::default();
        // Acknowledging what is not there is fine, so a foreign flow is simply not there.
        if world.scope().is_some() && world.flow(self.flow).is_none() {
            return Ok(((), change));
        }
        let members = world.scan::<BacklogMemberRow>(&backlog_members(self.flow));
        let (acknowledged, others): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|row| row.key.execution_id == self.execution_id);
        for row in acknowledged {
            change.delete::<BacklogMemberRow>(&row.key);
        }
        let header = BacklogKey { flow: self.flow };
        if others.is_empty() && world.record::<BacklogRow>(&header).is_some() {
            change.delete::<BacklogRow>(&header);
        }
        Ok(((), change))
    }
}
