//! A paused lane hands nothing out.

use ff_core::contracts::{ClaimArgs, PauseLaneArgs, Submission};
use ff_core::state::{LaneState, PublicState};
use ff_core::types::LaneId;

use super::{Fixture, LANE, claim_args, item};

fn pause(reason: &str) -> PauseLaneArgs {
    PauseLaneArgs { lane_id: LaneId::new(LANE), reason: reason.into(), by: "me".into() }
}

pub async fn pause_and_resume(f: &Fixture) {
    let (active, handle) = f.start(item()).await;
    let waiting = f.submit(item()).await;
    let elsewhere = f.submit(Submission::new("other", "kind")).await;
    f.backend.pause_lane(pause("maintenance")).await.unwrap();
    assert!(f.try_claim().await.is_none());
    let lanes = vec![LaneId::new(LANE), LaneId::new("other")];
    let args = ClaimArgs { lanes, max: 9, ..claim_args() };
    let claimed = f.backend.claim_many(args).await.unwrap();
    assert_eq!(claimed.len(), 1, "other lanes go on");
    assert_eq!(claimed[0].execution_id, elsewhere);
    // What is running runs on.
    f.backend.complete(&handle, None).await.unwrap();
    assert_eq!(f.state(&active).await, PublicState::Completed);

    let lanes = f.backend.list_lanes().await.unwrap();
    assert_eq!(lanes[0].lane_id, LaneId::new(LANE));
    assert_eq!(lanes[0].state, LaneState::Paused);
    assert_eq!(lanes[0].paused_reason.as_deref(), Some("maintenance"));
    assert_eq!(lanes[0].paused_by.as_deref(), Some("me"));
    assert_eq!(lanes[0].paused_at, Some(f.now()));
    assert_eq!(lanes[1].state, LaneState::Active);

    f.backend.resume_lane(&LaneId::new(LANE), "me").await.unwrap();
    assert_eq!(f.claim().await.execution_id, waiting);
    let lanes = f.backend.list_lanes().await.unwrap();
    assert_eq!((lanes[0].state, lanes[0].paused_at), (LaneState::Active, None));
}

pub async fn pause_survives_submissions(f: &Fixture) {
    // A lane can be paused before it is first used.
    f.backend.pause_lane(pause("not yet")).await.unwrap();
    let id = f.submit(item()).await;
    assert!(f.try_claim().await.is_none());
    assert_eq!(f.state(&id).await, PublicState::Waiting);
    f.backend.resume_lane(&LaneId::new(LANE), "").await.unwrap();
    assert_eq!(f.claim().await.execution_id, id);
}

pub async fn repeated_pause(f: &Fixture) {
    f.backend.pause_lane(pause("once")).await.unwrap();
    let before = f.backend.list_lanes().await.unwrap();
    f.advance(1_000).await;
    f.backend.pause_lane(pause("once")).await.unwrap();
    assert_eq!(f.backend.list_lanes().await.unwrap(), before, "a repeat changes nothing");
    f.backend.pause_lane(pause("for another reason")).await.unwrap();
    let lanes = f.backend.list_lanes().await.unwrap();
    assert_eq!(lanes[0].paused_reason.as_deref(), Some("for another reason"));
    for _ in 0..2 {
        f.backend.resume_lane(&LaneId::new(LANE), "").await.unwrap();
    }
}
