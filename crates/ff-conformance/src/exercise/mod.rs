//! What every backend must do. Each exercise gets a fresh backend on a clock that stands still
//! until the exercise moves it, so nothing here sleeps and nothing depends on the host's speed.

mod budget;
mod budget_room;
mod bulk;
mod bytes;
mod claim;
mod complete;
mod concurrency;
mod counter;
mod delay_deadline;
mod explain;
mod fail;
mod fencing;
mod fixture;
mod flow_again;
mod flow_cancel;
mod flow_graph;
mod flow_grow;
mod flow_retention;
mod flow_wide;
mod idempotency;
mod lane;
mod lease;
mod limits;
mod namespaces;
mod operator;
mod panics;
mod quota;
mod rare;
mod read;
mod resubmit;
mod retention;
mod schedule;
mod signal;
mod signal_token;
mod step;
mod stream;
mod stream_follow;
mod submit;
mod subscription;
mod suspend;
mod suspend_timeout;
mod text;
mod timers;
mod token;
mod waits;
mod webhook;
mod worker;

pub use fixture::{
    Fixture, LANE, LEASE_MS, START_MS, Setup, cancel_args, claim_args, claim_from, code,
    create_args, failure, item, new_id, retries, revoke_args,
};

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ff_core::engine::EngineConfig;
use ff_core::engine_backend::EngineBackend;

/// No exercise may take longer than this; a hang is a failure with a name.
const PATIENCE: Duration = Duration::from_secs(120);

/// One thing that a backend must do.
pub struct Exercise {
    pub name: &'static str,
    pub config: fn() -> EngineConfig,
    pub run: fn(Fixture) -> Pin<Box<dyn Future<Output = ()> + Send>>,
}

macro_rules! exercises {
    ($($theme:ident { $($name:ident $(with $config:expr)?),+ $(,)? })+) => {
        vec![$($(Exercise {
            name: concat!(stringify!($theme), "::", stringify!($name)),
            config: exercises!(@config $($config)?),
            run: |fixture| Box::pin(async move { $theme::$name(&fixture).await }),
        }),+),+]
    };
    (@config) => { EngineConfig::default };
    (@config $config:expr) => { $config };
}

/// Every exercise by name.
pub fn all() -> Vec<Exercise> {
    let mut all = executions_and_waits();
    all.extend(steps_streams_and_workers());
    all.extend(budgets_and_quotas());
    all.extend(schedules_and_bulk());
    all
}

fn steps_streams_and_workers() -> Vec<Exercise> {
    exercises! {
        step {
            recorded_once, come_back_with_the_claim, keep_the_lease, limits, sleep, sleep_repeated,
            listed, forgotten with retention::by_age_config,
        }
        stream {
            numbered, bytes, refused, summary, summary_limits, trimmed, best_effort_goes_first,
            repeated, visibility, pages, foreign, forgotten with retention::by_age_config,
        }
        stream_follow { woken_by_frames, woken_by_the_end, ends, over_attempts, from_the_end }
        subscription {
            filters, resume, refused_cursors, sealed_cursors, trimmed with retention::by_age_config,
            forgotten_place with retention::by_age_config,
        }
        webhook {
            one_deliverer_at_a_time, failures_back_off_and_end, attempts_are_bounded,
            kept_apart_and_rotated,
        }
        text { nul_characters }
        worker { registered, silent_ones_drop_out, refused, explained, comparisons, confined }
    }
}

fn schedules_and_bulk() -> Vec<Exercise> {
    exercises! {
        rare {
            expired_runs_again, deadline_of_blocked_work, held_from_every_wait,
            replay_behind_every_end, blocked_late,
        }
        schedule {
            once_per_due_time, what_a_run_carries, cron_in_a_zone, missed_skip, missed_latest,
            missed_all, overlap_allow, overlap_skip, overlap_buffer_one, overlap_cancel_running,
            pause_and_resume, buffered_over_a_pause, trigger, backfill, put_again, delete, jitter,
            refused, refused_runs, lists_and_namespaces,
        }
        limits {
            submissions, worker_calls, operator_calls, reads, unknown_executions,
            bytes_of_a_call with limits::few_bytes,
        }
        resubmit {
            the_same_work, with_another_payload, refused, keys, unique_keys, of_a_flow_member,
        }
        bulk {
            preview_counts, cancels_all, goes_on_where_it_was, only_what_was_there,
            can_be_cancelled, replays, reprioritises_and_retags, tells_what_refused,
            lists_and_forgets, namespaces_are_apart, refused, once_per_request,
            names_its_caller,
        }
    }
}

fn budgets_and_quotas() -> Vec<Exercise> {
    exercises! {
        counter { of_flows, of_nodes_that_were_added, of_quotas, of_budgets }
        quota {
            window_edges, rate_limited_work_says_so, every_ending_gives_back, never_above_the_cap,
            blocked_work_is_in_nobodys_way, waiting_claims_hear_of_room, declared_anew,
            over_all_lanes, fair_shares, refusals, deleted_quotas_let_go, raised_for_many_keys,
            fair_twice, everybody_is_called_back,
        }
        budget {
            never_overspent, settled_and_refunded, reports, periods, refunds_wake,
            suspended_for_approval, pending_is_cancelled, scopes, own_estimates, refusals,
            namespaces, over_a_flow, deleted_budgets_let_go, raised_by_its_owner, bounded_number,
        }
        budget_room {
            what_fits_is_woken, far_behind, gone_meanwhile, held_over_a_period,
            settled_in_its_period, changed_periods, over_all_namespaces,
        }
    }
}

fn executions_and_waits() -> Vec<Exercise> {
    let mut all = of_executions();
    all.extend(of_waits());
    all.extend(of_flows());
    all
}

fn of_flows() -> Vec<Exercise> {
    exercises! {
        flow_again {
            fork_of_a_fork, replay_in_a_fork, replay_beside_an_open_parent,
            replay_behind_a_forgotten_flow with retention::by_age_config, replay_after_a_replay,
            late_failures_stay_forgotten with flow_wide::swept_by_hand,
            late_edge_to_a_reopened_parent with flow_wide::swept_by_hand,
            replays_of_flows_are_capped,
        }
        explain {
            which_parents, which_children, ended_flow_first, full_quota, another_keys_turn,
        }
        flow_cancel {
            cancel_all, cancel_pending, flow_only, header_and_acks, counts_every_member,
            revoke_after_header, unknown_flow,
        }
        flow_graph {
            chain, diamond, failure_skips, cancelled_and_expired_count_as_failed, any_of,
            quorum_cancels_the_rest, quorum_becomes_impossible, refused_as_a_whole, limits,
            idempotent_by_key, delays_count_from_submission, retries_do_not_tell, reads,
            whole_graph, parents_results, namespaces,
        }
        flow_grow {
            extend_with_nodes, extend_with_what_is_skipped_at_once, late_edges, extend_refusals,
            edges_once, grows_to_the_limits with flow_grow::small_flows, waits_for_children,
            waits_in_a_cancelled_flow, nobody_waits_for_itself, replay_one, replay_skipped,
            replay_from, fork, fork_with_steps,
        }
        flow_retention {
            with_their_members with retention::by_age_config,
            not_before_the_last_member with retention::by_age_config,
            with_members_that_are_held with retention::by_age_config,
            with_members_that_come_back with retention::by_age_config,
            in_chunks with retention::by_age_config,
        }
        flow_wide {
            fan_out_and_in, wide_failure, deep_skip, cancel_in_chunks, cancel_pending_in_chunks,
            hold_in_chunks, cancelled_amid_a_cascade with flow_wide::swept_by_hand,
            told_once with flow_wide::swept_by_hand, backlog_is_drained,
            late_backlog_is_drained with flow_wide::swept_by_hand, many_flows,
            thousands_of_parents, large_results_of_parents,
        }
    }
}

fn of_executions() -> Vec<Exercise> {
    exercises! {
        submit { outcomes, created_state, many_at_once, chosen_ids, create_is_claimable }
        idempotency {
            same_key_same_work, key_lapses, until_finished, within_one_call,
            replays_hold_their_key, replays_under_a_held_key, bulk_replays_of_one_key,
        }
        claim {
            oldest_first, priority_first, capabilities, many_lanes, everything_a_worker_needs,
            nothing_to_claim,
        }
        lease { renew, expiry, renew_after_expiry, reclaim_cap, revoke, revoke_mismatch }
        complete { once, repeated, without_result }
        fail { retry_count, backoff_bounds, categories, fatal, repeated }
        delay_deadline {
            delayed_submission, holder_delays, deadline_in_every_state, delay_keeps_deadline,
            attempt_timeout, two_timers_at_once,
        }
        operator {
            cancel, cancel_needs_fence, priority, replay, replay_cap, reschedule, tags,
            finished_is_final, time_of_the_caller,
        }
        lane { pause_and_resume, pause_survives_submissions, repeated_pause }
        fencing {
            after_expiry, after_revoke, after_retry, after_delay, after_cancel, after_replay,
            forged,
        }
        namespaces { reads_see_nothing_foreign, writes_reach_nothing_foreign, keys_are_apart }
        read { describe, list_filters, list_pages, history, result, counts_and_lanes, explain }
        token {
            kept_by_hash, listed_in_pages, used_expired_and_revoked, of_a_namespace, names, actors,
        }
        retention {
            by_age with retention::by_age_config,
            by_count with retention::by_count_config,
            live_history_stays with retention::by_age_config,
        }
        concurrency {
            claims_hand_out_once, completes_count_once, long_poll, long_poll_resumed_lane,
            subscriber_sees_everything,
        }
        bytes { payloads, results }
        timers {
            not_due_yet, lost_ones_are_armed_again,
            lost_ones_of_records with flow_wide::swept_by_hand,
            of_rows_by_hand with flow_wide::swept_by_hand,
            policies_are_read_as_far_as_they_go,
        }
        panics { of_operations, of_due_timers with flow_wide::swept_by_hand }
    }
}

fn of_waits() -> Vec<Exercise> {
    exercises! {
        suspend {
            released_and_resumed, conditions, operator_only, operator_overrides, resume_delay,
            repeated_call, named_wait, early_signal, early_and_late, pending_waitpoints, endings,
            races, replay, refused,
        }
        suspend_timeout {
            ends, auto_resume, timeout_signal_is_reserved, escalate, races_signal, old_timers,
        }
        signal {
            once_by_key, same_key_at_once, bytes, limits with signal::small_signals, listed,
            namespaces,
        }
        signal_token {
            bearer_may_signal with waits::with_secrets,
            forgeries with waits::with_secrets,
            expiry with waits::with_secrets,
            early_token with waits::with_secrets,
            of_another_life with waits::with_secrets,
            rotation with waits::with_secrets,
            seeding with waits::with_secrets,
            one_source with waits::with_secrets,
        }
    }
}

/// Runs every exercise on a backend of its own, and panics with the names of those that failed.
/// `FF_EXERCISE` leaves out those whose names do not contain it.
pub async fn exercise<F, Fut>(make: F)
where
    F: Fn(Setup) -> Fut,
    Fut: Future<Output = Arc<dyn EngineBackend>>,
{
    let only = std::env::var("FF_EXERCISE").unwrap_or_default();
    let mut failed = Vec::new();
    for exercise in all().into_iter().filter(|exercise| exercise.name.contains(&only)) {
        let setup = Setup::new((exercise.config)());
        let clock = setup.clock.clone();
        let backend = make(setup).await;
        let fixture = Fixture { backend, clock };
        let ran = (exercise.run)(fixture.clone());
        // In a task of its own, so that a panic can be told with the exercise's name.
        let run = tokio::spawn(async move {
            ran.await;
            counter::check(&fixture).await;
        });
        let outcome = tokio::time::timeout(PATIENCE, run).await;
        if !matches!(outcome, Ok(Ok(()))) {
            eprintln!("exercise {} failed: {outcome:?}", exercise.name);
            failed.push(exercise.name);
        }
    }
    assert!(failed.is_empty(), "failed exercises: {}", failed.join(", "));
}
