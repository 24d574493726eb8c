//! Everything that the engine can do has a route, or a reason why not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Operations without a route of their own name.
const EXCEPTIONS: [(&str, &str); 12] = [
    ("create_execution", "`submit` takes an `execution_id` and does the same"),
    ("claim", "`claim_many` claims one by default"),
    ("cancel_flow_header", "half of `cancel_flow`, for callers that cancel members themselves"),
    ("ack_cancel_member", "the other half of `cancel_flow_header`"),
    ("read_question", "the page behind a waitpoint's link is `approve_page`"),
    ("find_token", "the gate looks tokens up; nobody else needs their hashes"),
    ("touch_token", "the gate notes the use of a token"),
    ("claim_webhook", "deliverers are servers"),
    ("report_webhook", "deliverers are servers"),
    ("check_timers", "`flowfabric doctor` looks at the store itself"),
    ("recount_flow", "`flowfabric doctor` looks at the store itself"),
    ("recount_limits", "`flowfabric doctor` looks at the store itself"),
];

/// Traits whose routes come in one piece: until the first of them is there, none is missed.
const AWAITED: [(&str, &str); 2] = [("schedule.rs", "/v1/schedules"), ("bulk.rs", "/v1/bulk")];

/// The operations of every trait of the engine, read from their sources.
fn operations() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ff-core/src/engine_backend");
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let (mut in_trait, mut hidden) = (false, false);
        for line in text.lines() {
            match line.trim_start() {
                _ if line.starts_with("pub trait ") => in_trait = true,
                _ if line == "}" => in_trait = false,
                "#[doc(hidden)]" => hidden = true,
                text if in_trait && line.starts_with("    async fn ") => {
                    let name = text["async fn ".len()..].split('(').next().unwrap();
                    if !std::mem::take(&mut hidden) {
                        let file = path.file_name().unwrap().to_string_lossy().into_owned();
                        found.insert(name.to_owned(), file);
                    }
                }
                _ => {}
            }
        }
    }
    found
}

#[test]
fn every_operation_has_a_route_or_a_reason() {
    let operations = operations();
    assert!(operations.len() > 60, "only {} operations were found", operations.len());
    let table = ff_server::table();
    let routes: BTreeSet<&str> = table.iter().map(|route| route.name).collect();
    let excepted: BTreeSet<&str> = EXCEPTIONS.iter().map(|(name, _)| *name).collect();
    let awaited = |file: &str| {
        let mut awaited = AWAITED.iter().filter(|(awaited, _)| *awaited == file);
        awaited.any(|(_, path)| !table.iter().any(|route| route.path.starts_with(path)))
    };
    let without: Vec<_> = operations
        .iter()
        .filter(|(_, file)| !awaited(file))
        .filter(|(name, _)| !routes.contains(&***name) && !excepted.contains(&***name))
        .collect();
    assert!(without.is_empty(), "neither a route nor a reason: {without:?}");
    for (name, reason) in EXCEPTIONS {
        assert!(operations.contains_key(name), "{name} is excepted and does not exist: {reason}");
        assert!(!routes.contains(name), "{name} is excepted and has a route: {reason}");
    }
}
