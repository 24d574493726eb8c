//! Declares a quota, and says to claims where to look for it.

use std::sync::Arc;

use serde_json::json;

use super::drafts::Drafts;
use super::{declared, gate, mark_lane};
use crate::contracts::PutQuotaArgs;
use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{
    Json, LimitKey, LimitKind, LimitRow, LimitStateKey, LimitStateRow, Rule, Word, limit_id,
};
use crate::store::{Change, Needs, World};

#[derive(Debug)]
pub struct PutQuota {
    pub args: PutQuotaArgs,
}

impl Operation for PutQuota {
    type Reply = ();

    const NAME: &'static str = "put_quota";

    fn needs(&self, needs: &mut Needs) {
        needs.record::<LimitRow>(&self.key());
        needs.record::<LimitStateRow>(&LimitStateKey { id: self.key().id });
        needs.written_lane(self.lane());
        needs.scan(&gate::rules_of(&self.lane()));
    }

    fn decide(&self, world: &World) -> Result<((), Change), EngineError> {
        let mut change = Change::default();
        let args = &self.args;
        let namespace: Arc<str> = args.namespace.as_str().into();
        let known = world.record::<LimitRow>(&self.key());
        gate::check_room(world, known.as_ref(), &self.lane())?;
        let row = LimitRow {
            key: self.key(),
            kind: Word(LimitKind::Quota),
            namespace: namespace.clone(),
            name: args.quota_id.as_str().into(),
            lane: Some(self.lane()),
            rule: Json(Rule::Quota(args.clone())),
            created_at: known.as_ref().map_or(world.now, |known| known.created_at),
        };
        if known.is_some() {
            change.update(&row);
            // There may be room for those who wait.
            let mut drafts = Drafts::new(world);
            drafts.look_at_all_keys(&mut change, row.key.id);
            drafts.write(&mut change);
        } else {
            change.insert(&row);
        }
        mark_lane(world, &mut change, &self.lane());
        let details = json!({ "limit": "quota", "quota_id": args.quota_id });
        declared(&mut change, namespace, world.now, &details);
        Ok(((), change))
    }
}

impl PutQuota {
    fn key(&self) -> LimitKey {
        let PutQuotaArgs { namespace, quota_id, .. } = &self.args;
        let id = limit_id(LimitKind::Quota, namespace.as_str(), quota_id.as_str());
        LimitKey { id }
    }

    fn lane(&self) -> Arc<str> {
        self.args.lane_id.as_ref().map_or_else(|| "".into(), |lane| lane.as_str().into())
    }
}
