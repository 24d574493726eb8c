//! One cancelled member has been dealt with; the last one takes the backlog's header along.

use std::sync::Arc;

use super::backlog;
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{BacklogKey, BacklogMemberKey, BacklogMemberRow, BacklogRow, FlowKey};
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
        needs.record::<BacklogMemberRow>(&self.member());
        needs.scan(&backlog::a_few_members(self.flow));
    }

    fn decide(&self, world: &World) -> Result<((), Change), EngineError> {
        let mut change = Change::default();
        // Acknowledging what is not there is fine, so a foreign flow is simply not there.
        if world.scope().is_some() && world.flow(self.flow).is_none() {
            return Ok(((), change));
        }
        let member = self.member();
        if world.record::<BacklogMemberRow>(&member).is_some() {
            change.delete::<BacklogMemberRow>(&member);
        }
        let scan = backlog::a_few_members(self.flow);
        let others = world.scan::<BacklogMemberRow>(&scan).iter().any(|row| row.key != member);
        let header = BacklogKey { flow: self.flow };
        // If others of this batch have acknowledged all that was seen, the sweeper looks again.
        let last = !others && !world.scan_is_cut(&scan);
        if last && world.record::<BacklogRow>(&header).is_some() {
            change.delete::<BacklogRow>(&header);
        }
        Ok(((), change))
    }
}

impl AckCancelMember {
    fn member(&self) -> BacklogMemberKey {
        BacklogMemberKey { flow: self.flow, execution_id: self.execution_id.clone() }
    }
}
