//! One cancelled member has been dealt with; the last one takes the backlog's header along.

use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{BacklogMemberKey, FlowKey};
use crate::store::{Change, Needs, World, Write};

#[derive(Debug)]
pub struct AckCancelMember {
    pub flow: FlowKey,
    /// The wire form.
    pub execution_id: String,
}

impl Operation for AckCancelMember {
    type Reply = ();

    const NAME: &'static str = "ack_cancel_member";

    fn needs(&self, needs: &mut Needs) {
        needs.flows.insert(self.flow);
        needs.backlogs.insert(self.flow);
    }

    fn decide(&self, world: &World) -> Result<((), Change), EngineError> {
        let mut change = Change::default();
        // Acknowledging what is not there is fine, so a foreign flow is simply not there.
        if world.scope().is_some() && world.flow(self.flow).is_none() {
            return Ok(((), change));
        }
        let key = BacklogMemberKey { flow: self.flow, execution_id: self.execution_id.clone() };
        let others = world
            .backlog_members
            .rows()
            .any(|row| row.key.flow == self.flow && row.key.execution_id != self.execution_id);
        if world.backlog_members.get(&key).is_some() {
            change.backlog_members.push(Write::Delete(key));
        }
        if !others && world.backlogs.get(&self.flow).is_some() {
            change.backlogs.push(Write::Delete(self.flow));
        }
        Ok(((), change))
    }
}
