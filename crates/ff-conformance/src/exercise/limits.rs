//! Everything too large, empty, malformed or unknown is refused by name and changes nothing.

use std::time::Duration;

use ff_core::backend::CapabilitySet;
use ff_core::contracts::{
    CancelExecutionArgs, ClaimArgs, ExtendFlowArgs, FailArgs, FailureClass, FlowNode, Idempotency,
    IdempotencyScope, ListExecutionsArgs, PauseLaneArgs, RenewOutcome, RescheduleArgs,
    RevokeLeaseArgs, SetTagsArgs, Submission, SubmitFlowArgs, SubmitOutcome,
};
use ff_core::engine::{EngineConfig, StartAt};
use ff_core::engine_backend::FlowOperations;
use ff_core::limits::Limits;
use ff_core::policy::{Backoff, ExecutionPolicy};
use ff_core::types::{CancelSource, LaneId, Namespace, WorkerId, WorkerInstanceId};

use super::{
    Fixture, LANE, cancel_args, claim_args, claim_from, code, create_args, failure, item, new_id,
    revoke_args,
};

/// Longer than anything may reach.
const TOO_FAR: Duration = Duration::from_secs(11 * 366 * 24 * 60 * 60);
/// One byte more than the default limit.
const TOO_LARGE: usize = 1024 * 1024 + 1;

fn long(bytes: usize) -> String {
    "x".repeat(bytes)
}

fn check(rows: &[(&str, &str, &str)]) {
    for (what, expected, answer) in rows {
        assert_eq!(answer, expected, "{what}");
    }
}

fn bad_submissions() -> Vec<(&'static str, Submission)> {
    let keyed =
        |key: String, scope| Submission { idempotency: Some(Idempotency { key, scope }), ..item() };
    let default = IdempotencyScope::Default;
    let many_tags = (0..33).fold(item(), |item, at| item.tag(format!("a.t{at}"), ""));
    let mut bad = vec![
        ("invalid_input", item().namespace("")),
        ("invalid_input", item().namespace(long(256))),
        ("invalid_input", item().namespace("a\0b")),
        ("invalid_input", Submission::new("", "kind")),
        ("invalid_input", Submission::new(long(65), "kind")),
        ("invalid_input", Submission::new("läne", "kind")),
        ("invalid_input", Submission::new(LANE, "")),
        ("invalid_input", Submission::new(LANE, long(256))),
        ("invalid_input", Submission::new(LANE, "a\0b")),
        ("invalid_input", Submission { creator_identity: long(256), ..item() }),
        ("invalid_input", Submission { payload_encoding: Some(long(256)), ..item() }),
        ("payload_too_large", item().payload(vec![0; TOO_LARGE])),
        ("invalid_input", many_tags),
        ("invalid_tag_key", item().tag("plain", "")),
        ("invalid_tag_key", item().tag("", "")),
        ("invalid_tag_key", item().tag(format!("a.{}", long(127)), "")),
        ("invalid_input", item().tag("a.b", long(1_025))),
        ("invalid_input", item().tag("a.b", "\0")),
        ("invalid_input", item().delay(TOO_FAR)),
        ("invalid_input", item().deadline(TOO_FAR)),
        ("invalid_input", keyed(String::new(), default)),
        ("invalid_input", keyed(long(256), default)),
        ("invalid_input", keyed("key".into(), IdempotencyScope::Ttl(TOO_FAR))),
    ];
    bad.extend(bad_policies().into_iter().map(|(code, policy)| (code, item().policy(policy))));
    bad
}

fn bad_policies() -> Vec<(&'static str, ExecutionPolicy)> {
    let with = |edit: &dyn Fn(&mut ExecutionPolicy)| {
        let mut policy = ExecutionPolicy::default();
        edit(&mut policy);
        policy
    };
    let multiplier = |multiplier| {
        with(&|policy| {
            policy.retry_policy.backoff = Backoff::Exponential {
                initial_delay_ms: 1,
                max_delay_ms: 1,
                multiplier,
                jitter: false,
            };
        })
    };
    let tokens = |tokens: Vec<String>| {
        with(&|policy| {
            let required = &mut policy.routing_requirements.required_capabilities;
            required.extend(tokens.iter().cloned());
        })
    };
    let too_far = u64::try_from(TOO_FAR.as_millis()).unwrap_or(u64::MAX);
    vec![
        ("invalid_policy_json", multiplier(f64::NAN)),
        ("invalid_policy_json", multiplier(f64::INFINITY)),
        (
            "invalid_policy_json",
            with(&|policy| {
                policy.retry_policy.retryable_categories.insert(long(16 * 1024));
            }),
        ),
        ("invalid_capabilities", tokens(vec!["a,b".into()])),
        ("invalid_capabilities", tokens(vec![String::new()])),
        ("invalid_capabilities", tokens(vec!["a b".into()])),
        ("invalid_capabilities", tokens((0..257).map(|at| at.to_string()).collect())),
        ("invalid_capabilities", tokens(vec![long(4_097)])),
        (
            "invalid_input",
            with(&|policy| {
                policy.timeout_policy.execution_deadline_ms = Some(too_far);
            }),
        ),
        (
            "invalid_input",
            with(&|policy| {
                policy.timeout_policy.attempt_timeout_ms = Some(too_far);
            }),
        ),
    ]
}

pub async fn submissions(f: &Fixture) {
    for (expected, bad) in bad_submissions() {
        let shown = format!("{bad:?}").chars().take(300).collect::<String>();
        let SubmitOutcome::Refused(error) = f.offer(bad).await else {
            panic!("accepted: {shown}");
        };
        assert_eq!(error.code(), expected, "{shown}");
    }
    assert_eq!(code(&f.backend.submit(Vec::new()).await), "invalid_input");
    let too_many = (0..10_001).map(|_| item()).collect();
    assert_eq!(code(&f.backend.submit(too_many).await), "invalid_input");
    let mut create = create_args(&new_id(), f.now());
    create.input_payload = vec![0; TOO_LARGE];
    assert_eq!(code(&f.backend.create_execution(create).await), "payload_too_large");
    let mut create = create_args(&new_id(), f.now());
    create.execution_kind = String::new();
    assert_eq!(code(&f.backend.create_execution(create).await), "invalid_input");

    let page = f.backend.list_executions(ListExecutionsArgs::default()).await.unwrap();
    assert!(page.executions.is_empty(), "a refused item was kept");
    assert!(f.backend.list_lanes().await.unwrap().is_empty(), "a refused item made a lane");
    let mut log = f.backend.subscribe(Default::default(), StartAt::Oldest).await.unwrap();
    assert!(log.try_next().await.unwrap().is_none(), "a refused item was logged");
}

pub async fn worker_calls(f: &Fixture) {
    let b = &f.backend;
    let (id, handle) = f.start(item()).await;
    let waiting = f.submit(item()).await;
    let before = (f.picture(&id).await, f.picture(&waiting).await);
    let claims = [
        ("no lanes", ClaimArgs { lanes: Vec::new(), ..claim_args() }),
        ("65 lanes", ClaimArgs { lanes: vec![LaneId::new(LANE); 65], ..claim_args() }),
        ("an empty lane", claim_from("")),
        ("a long lane", claim_from(&long(65))),
        ("none", ClaimArgs { max: 0, ..claim_args() }),
        ("1001", ClaimArgs { max: 1_001, ..claim_args() }),
        ("no lease", ClaimArgs { lease_ttl_ms: 0, ..claim_args() }),
        ("a long lease", ClaimArgs { lease_ttl_ms: 86_400_001, ..claim_args() }),
        ("no worker", ClaimArgs { worker_id: WorkerId::new(""), ..claim_args() }),
        (
            "no instance",
            ClaimArgs { worker_instance_id: WorkerInstanceId::new(""), ..claim_args() },
        ),
        (
            "a long instance",
            ClaimArgs { worker_instance_id: WorkerInstanceId::new(long(256)), ..claim_args() },
        ),
    ];
    for (what, args) in claims {
        assert_eq!(code(&b.claim_many(args).await), "invalid_input", "{what}");
    }
    for token in ["", "a,b", "a b", "a\0"] {
        let args = ClaimArgs { capabilities: CapabilitySet::new([token]), ..claim_args() };
        assert_eq!(code(&b.claim_many(args).await), "invalid_capabilities", "{token:?}");
    }
    let fail = |reason: String, category: String| {
        b.fail(&handle, FailArgs { reason, category, class: FailureClass::Fatal })
    };
    check(&[
        ("no handles", "invalid_input", code(&b.renew_many(&[]).await)),
        ("101 %", "invalid_input", code(&b.progress(&handle, Some(101), None).await)),
        (
            "a long message",
            "invalid_input",
            code(&b.progress(&handle, None, Some(long(4_097))).await),
        ),
        ("NUL", "invalid_input", code(&b.progress(&handle, None, Some("\0".into())).await)),
        (
            "a large result",
            "payload_too_large",
            code(&b.complete(&handle, Some(vec![0; TOO_LARGE])).await),
        ),
        ("a long reason", "invalid_input", code(&fail(long(4_097), String::new()).await)),
        ("a long category", "invalid_input", code(&fail(String::new(), long(256)).await)),
        ("a NUL", "invalid_input", code(&fail("\0".into(), String::new()).await)),
        ("a long goodbye", "invalid_input", code(&b.cancel(&handle, &long(4_097)).await)),
        ("a long delay", "invalid_input", code(&b.delay(&handle, TOO_FAR).await)),
    ]);
    assert_eq!((f.picture(&id).await, f.picture(&waiting).await), before);
}

pub async fn operator_calls(f: &Fixture) {
    let b = &f.backend;
    let id = f.submit((0..32).fold(item(), |item, at| item.tag(format!("a.t{at}"), ""))).await;
    let before = f.picture(&id).await;
    let lanes = b.list_lanes().await.unwrap();
    let tags = |tags: &[(&str, &str)]| {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), Some((*value).to_owned()));
        SetTagsArgs { execution_id: id.clone(), tags: tags.iter().map(owned).collect() }
    };
    let pause = |lane: &str, reason: String, by: String| {
        b.pause_lane(PauseLaneArgs { lane_id: LaneId::new(lane), reason, by })
    };
    let reason = CancelExecutionArgs { reason: long(4_097), ..cancel_args(&id, f.now()) };
    let source = CancelExecutionArgs {
        source: CancelSource::Custom(String::new()),
        ..cancel_args(&id, f.now())
    };
    let revoke = RevokeLeaseArgs { reason: long(4_097), ..revoke_args(&id) };
    let later = RescheduleArgs { execution_id: id.clone(), delay: TOO_FAR };
    let no_text = String::new;
    let bad = "invalid_input";
    check(&[
        ("cancel: a long reason", bad, code(&b.cancel_execution(reason).await)),
        ("cancel: no source", bad, code(&b.cancel_execution(source).await)),
        ("revoke: a long reason", bad, code(&b.revoke_lease(revoke).await)),
        ("reschedule: too far", bad, code(&b.reschedule(later).await)),
        ("no tags", bad, code(&b.set_tags(tags(&[])).await)),
        ("a 33rd tag", bad, code(&b.set_tags(tags(&[("a.new", "")])).await)),
        ("a bad tag", "invalid_tag_key", code(&b.set_tags(tags(&[("Bad", "")])).await)),
        ("a long value", bad, code(&b.set_tags(tags(&[("a.t1", &long(1_025))])).await)),
        ("no lane", bad, code(&pause("", no_text(), no_text()).await)),
        ("a long lane", bad, code(&pause(&long(65), no_text(), no_text()).await)),
        ("a long pause", bad, code(&pause(LANE, long(4_097), no_text()).await)),
        ("a long name", bad, code(&pause(LANE, no_text(), long(256)).await)),
        ("unknown lane", "not_found", code(&b.resume_lane(&LaneId::new("new"), "").await)),
        ("resume: a long name", bad, code(&b.resume_lane(&LaneId::new(LANE), &long(256)).await)),
    ]);
    assert_eq!(f.picture(&id).await, before);
    assert_eq!(b.list_lanes().await.unwrap(), lanes);
}

pub async fn reads(f: &Fixture) {
    let b = &f.backend;
    let id = f.submit(item()).await;
    let list = |edit: &dyn Fn(&mut ListExecutionsArgs)| {
        let mut args = ListExecutionsArgs::default();
        edit(&mut args);
        b.list_executions(args)
    };
    check(&[
        ("no history", "invalid_input", code(&b.history(&id, 0, 0).await)),
        ("a long history", "invalid_input", code(&b.history(&id, 0, 1_001).await)),
        ("a large page", "invalid_input", code(&list(&|args| args.limit = 1_001).await)),
        (
            "a bad tag",
            "invalid_tag_key",
            code(
                &list(&|args| {
                    args.tag = Some(("bad".into(), String::new()));
                })
                .await,
            ),
        ),
    ]);
    for cursor in ["", "x", "ffl1.", "ffl1.1", "ffl1.x.0", "ffl1.1.zz"] {
        let page = list(&|args| args.cursor = Some(cursor.to_owned())).await;
        assert_eq!(code(&page), "invalid_cursor", "{cursor:?}");
    }
}

pub async fn unknown_executions(f: &Fixture) {
    let b = &f.backend;
    let (known, handle) = f.start(item()).await;
    let unknown = new_id();
    let stranger = handle
        .encode()
        .replace(&known.uuid().simple().to_string(), &unknown.uuid().simple().to_string());
    let stranger = ff_core::backend::Handle::decode(&stranger).unwrap();
    let tags = [("a.b".to_owned(), None)].into();
    let set_tags = SetTagsArgs { execution_id: unknown.clone(), tags };
    let missing = "not_found";
    check(&[
        ("cancel", missing, code(&f.cancel_execution(&unknown).await)),
        ("revoke", missing, code(&f.revoke(&unknown).await)),
        ("priority", missing, code(&f.change_priority(&unknown, 1).await)),
        ("replay", missing, code(&f.replay(&unknown).await)),
        ("reschedule", missing, code(&f.reschedule(&unknown, 1).await)),
        ("tags", missing, code(&b.set_tags(set_tags).await)),
        ("history", missing, code(&b.history(&unknown, 0, 10).await)),
        ("result", missing, code(&b.result(&unknown).await)),
        ("explain", missing, code(&b.explain(&unknown).await)),
        ("progress", missing, code(&b.progress(&stranger, None, None).await)),
        ("complete", missing, code(&b.complete(&stranger, None).await)),
        ("fail", missing, code(&b.fail(&stranger, failure(FailureClass::Fatal)).await)),
        ("cancel held", missing, code(&b.cancel(&stranger, "").await)),
        ("delay", missing, code(&b.delay(&stranger, Duration::ZERO).await)),
    ]);
    let renewed = b.renew_many(&[stranger]).await.unwrap();
    assert!(matches!(&renewed[0], RenewOutcome::Lost(error) if error.code() == missing));
    assert!(b.describe_execution(&unknown).await.unwrap().is_none());
    assert!(b.payload(&unknown).await.unwrap().is_none());
}

/// Small enough that a few items are too many.
pub fn few_bytes() -> EngineConfig {
    let limits = Limits { payload_bytes: 100, submission_bytes: 1_000, ..Limits::default() };
    EngineConfig { limits, ..EngineConfig::default() }
}

/// A thousand of the largest payloads are refused, although neither their number nor one of them
/// is too large.
pub async fn bytes_of_a_call(f: &Fixture) {
    let items = |count| vec![item().payload(vec![b'x'; 96]); count];
    let refused = f.backend.submit(items(11)).await;
    assert_eq!(code(&refused), "payload_too_large");
    let told = refused.unwrap_err().to_string();
    assert!(told.contains("1100 bytes") && told.contains("limit is 1000"), "{told}");
    let tagged = item().tag("a.b", long(1_000));
    assert_eq!(code(&f.backend.submit(vec![tagged]).await), "payload_too_large");
    assert!(f.try_claim().await.is_none(), "nothing of it was accepted");
    assert_eq!(f.backend.submit(items(10)).await.unwrap().len(), 10);

    let nodes = |names: &[&str]| -> Vec<FlowNode> {
        let node = |name: &&str| FlowNode::new(*name, item().payload(vec![b'x'; 96]));
        names.iter().map(node).collect()
    };
    let flow = |names: &[&str]| SubmitFlowArgs {
        namespace: Namespace::new("default"),
        flow_kind: "kind".into(),
        nodes: nodes(names),
        ..SubmitFlowArgs::default()
    };
    let ten = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    assert_eq!(code(&f.backend.submit_flow(flow(&ten)).await), "payload_too_large");
    let mut first = flow(&ten[..9]);
    for node in &mut first.nodes {
        node.work.lane_id = LaneId::new("flow");
    }
    f.backend.submit_flow(first).await.unwrap();
    let claimed = f.backend.claim_many(claim_from("flow")).await.unwrap().remove(0);
    let more = ExtendFlowArgs { nodes: nodes(&ten), edges: Vec::new() };
    let refused = f.backend.extend_flow(&claimed.handle, more).await;
    assert_eq!(code(&refused), "payload_too_large");
}
