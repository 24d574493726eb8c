//! Lanes: what is in them, and whether anything is handed out.

use axum::http::Method;
use ff_api::{CountsAnswer, LanesAnswer, PauseLaneRequest, Scope};
use ff_core::contracts::PauseLaneArgs;

use crate::call::{Answer, Call};
use crate::refusal::Answered;
use crate::route::{Nothing, Reach, Route};

pub fn routes() -> Vec<Route> {
    vec![
        Route::new(
            (Method::GET, "/v1/lanes"),
            ("list_lanes", "Every lane that the namespace has executions in."),
            Scope::Read,
            list,
        ),
        Route::new(
            (Method::GET, "/v1/counts"),
            ("counts", "How many executions of each lane are in each state."),
            Scope::Read,
            counts,
        ),
        Route::new(
            (Method::POST, "/v1/lanes/{lane_id}/pause"),
            ("pause_lane", "Nothing of the lane is handed out until it is resumed."),
            Scope::Operate,
            pause,
        )
        .reach(Reach::Everything),
        Route::new(
            (Method::POST, "/v1/lanes/{lane_id}/resume"),
            ("resume_lane", "The lane is handed out again."),
            Scope::Operate,
            resume,
        )
        .reach(Reach::Everything),
    ]
}

async fn list(call: Call<Nothing, Nothing>) -> Answered<Answer<LanesAnswer>> {
    let lanes = call.door.backend().list_lanes().await?;
    Ok(Answer::json(LanesAnswer { lanes }))
}

async fn counts(call: Call<Nothing, Nothing>) -> Answered<Answer<CountsAnswer>> {
    let counts = call.door.backend().counts().await?;
    Ok(Answer::json(CountsAnswer { counts }))
}

async fn pause(call: Call<Nothing, PauseLaneRequest>) -> Answered<Answer<Nothing>> {
    let (lane_id, by) = (call.lane_id()?, call.door.principal().name.clone());
    let args = PauseLaneArgs { lane_id, reason: call.body.reason, by };
    call.door.backend().pause_lane(args).await?;
    Ok(Answer::nothing())
}

async fn resume(call: Call<Nothing, Nothing>) -> Answered<Answer<Nothing>> {
    let by = &call.door.principal().name;
    call.door.backend().resume_lane(&call.lane_id()?, by).await?;
    Ok(Answer::nothing())
}
