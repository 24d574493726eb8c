//! What pages say in numbers and lists, compared with the code.

use std::fs;
use std::path::Path;

use ff_core::limits::{self, Limits};

use super::Violation;

const MIB: usize = 1024 * 1024;
const KIB: usize = 1024;
const HOUR_MS: u32 = 60 * 60 * 1000;

/// Every fact that its page does not have, word for word.
pub fn missing(root: &Path) -> Result<Vec<Violation>, String> {
    let mut violations = Vec::new();
    for (page, facts) in [("docs/operating.md", operating()), ("docs/concepts.md", concepts())] {
        let text = read(root, page)?;
        let words: Vec<&str> = text.split_whitespace().collect();
        let text = words.join(" ");
        for fact in facts.iter().filter(|fact| !text.contains(*fact)) {
            violations.push(Violation::new(page, 1, format!("does not say {fact:?}")));
        }
    }
    violations.extend(groups(root)?);
    violations.extend(modules(root)?);
    violations.extend(exercises(root)?);
    Ok(violations)
}

fn read(root: &Path, page: &str) -> Result<String, String> {
    fs::read_to_string(root.join(page)).map_err(|error| format!("{page}: {error}"))
}

/// 10000 as 10,000.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn operating() -> Vec<String> {
    let own = Limits::default();
    let row = |what: &str, limit: String| format!("| {what} | {limit} |");
    let bytes = |bytes: usize| format!("{} bytes", grouped(bytes));
    let claimed = grouped(limits::CLAIM_BATCH);
    let years = limits::HORIZON.as_secs() / (366 * 24 * 60 * 60);
    vec![
        row(
            "payload, result",
            format!("{} MiB (`Limits::payload_bytes`)", own.payload_bytes / MIB),
        ),
        row("submissions in a call", grouped(limits::SUBMIT_BATCH)),
        row("executions in a claim", format!("{claimed}, from {} lanes", limits::CLAIM_LANES)),
        row("handles in a renewal", grouped(limits::RENEW_BATCH)),
        row("lease", format!("1 ms to {} hours", limits::LEASE_TTL_MAX_MS / HOUR_MS)),
        row("page of a list or a history", grouped(limits::PAGE)),
        row(
            "tags",
            format!(
                "{}; keys {} bytes, values {}",
                limits::TAGS,
                limits::TAG_KEY_BYTES,
                bytes(limits::TAG_VALUE_BYTES)
            ),
        ),
        row(
            "capabilities",
            format!("{} tokens, {}", limits::CAPABILITIES, bytes(limits::CAPABILITIES_BYTES)),
        ),
        row("lane", format!("{} bytes, printable ASCII", limits::LANE_BYTES)),
        row("namespace, worker, kind, idempotency key", bytes(limits::NAME_BYTES)),
        row("reason, progress message", bytes(limits::REASON_BYTES)),
        row("policy", format!("{} KiB as JSON", limits::POLICY_BYTES / KIB)),
        row("delay, deadline", format!("{} years", if years == 10 { "ten" } else { "?" })),
        row("waiting operations", format!("{} (`Limits::queue`)", grouped(own.queue))),
        row(
            "weight of a batch",
            format!("{} (`Limits::batch`), half of it on Postgres", grouped(own.batch)),
        ),
    ]
}

fn concepts() -> Vec<String> {
    let own = Limits::default();
    vec![
        format!("accepts up to {} nodes and", grouped(own.flow_nodes)),
        format!("{} edges in one transaction", grouped(own.flow_edges)),
        format!("page has much more than {} MiB of results", limits::PARENTS_PAGE_BYTES / MIB),
        format!("count up to {} signals", limits::CONDITION_SIGNALS),
        format!("is kept, up to {} signals", limits::SIGNALS_BUFFERED),
        format!(
            "takes {} signals, an execution {}",
            grouped(limits::SIGNALS_PER_WAITPOINT as usize),
            grouped(limits::SIGNALS_PER_EXECUTION as usize)
        ),
        format!("({} bytes or more each)", limits::WAITPOINT_SECRET_BYTES),
        format!("A result may be {} KiB long", limits::STEP_BYTES / KIB),
        format!("{} steps of {} MiB", grouped(limits::STEPS), limits::STEPS_BYTES / MIB),
        format!(
            "up to {} frames and {} MiB in a call, {} KiB in a frame",
            grouped(limits::APPEND_FRAMES),
            limits::APPEND_BYTES / MIB,
            limits::FRAME_BYTES / KIB
        ),
        format!("up to {} seconds if there is nothing yet", limits::STREAM_WAIT.as_secs()),
    ]
}

/// The groups of operations that ARCHITECTURE.md does not name.
fn groups(root: &Path) -> Result<Vec<Violation>, String> {
    let page = "ARCHITECTURE.md";
    let text = read(root, page)?;
    let groups = names(&root.join("crates/ff-core/src/operations"))?;
    let unnamed = groups.iter().filter(|name| *name != "mod" && !named(&text, name));
    let say = |name: &String| {
        Violation::new(page, 1, format!("does not name the group of operations `{name}`"))
    };
    Ok(unnamed.map(say).collect())
}

/// The modules that the code map names and that do not exist.
fn modules(root: &Path) -> Result<Vec<Violation>, String> {
    let page = "ARCHITECTURE.md";
    let text = read(root, page)?;
    let mut violations = Vec::new();
    for item in text.split("\n- ").skip(1) {
        let item = item.split("\n\n").next().unwrap_or_default();
        let Some((source, list)) =
            item.strip_prefix('`').and_then(|item| item.split_once("/src/`:"))
        else {
            continue;
        };
        let known = names_within(&root.join("crates").join(source))?;
        let words = list.split('`').skip(1).step_by(2).map(|word| word.trim_end_matches('/'));
        let modules = words.filter(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
        for module in modules.filter(|word| !known.iter().any(|name| name == word)) {
            let what = format!("names `{module}` of {source}, which does not exist");
            violations.push(Violation::new(page, 1, what));
        }
    }
    Ok(violations)
}

/// The exercises that `docs/proof.md` names, as `file::name` or `file::{one, other}`, and that do
/// not exist.
fn exercises(root: &Path) -> Result<Vec<Violation>, String> {
    let page = "docs/proof.md";
    let mut violations = Vec::new();
    for (at, line) in read(root, page)?.lines().enumerate() {
        for word in line.split('`').skip(1).step_by(2) {
            let Some((file, names)) = word.split_once("::") else { continue };
            let path = format!("crates/ff-conformance/src/exercise/{file}.rs");
            let code = fs::read_to_string(root.join(path)).unwrap_or_default();
            let names = names.trim_matches(['{', '}']).split(',').map(str::trim);
            for name in names.filter(|name| !code.contains(&format!("fn {name}("))) {
                let what = format!("names the exercise `{file}::{name}`, which does not exist");
                violations.push(Violation::new(page, at + 1, what));
            }
        }
    }
    Ok(violations)
}

fn named(text: &str, name: &str) -> bool {
    text.contains(&format!("`{name}`"))
}

/// The files and folders of a folder, without their endings.
fn names(folder: &Path) -> Result<Vec<String>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        names.push(name.trim_end_matches(".rs").to_owned());
    }
    Ok(names)
}

/// The same of everything within a folder.
fn names_within(folder: &Path) -> Result<Vec<String>, String> {
    let mut all = names(folder)?;
    for name in all.clone() {
        let inner = folder.join(name);
        if inner.is_dir() {
            all.extend(names_within(&inner)?);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(
            [1, 999, 1_000, 10_000, 1_234_567].map(grouped),
            ["1", "999", "1,000", "10,000", "1,234,567"]
        );
    }

    /// A tree whose pages say nothing: every fact is missed.
    #[test]
    fn pages_that_say_nothing_are_refused() {
        let folder = std::env::temp_dir().join(format!("ff-facts-{}", std::process::id()));
        for part in ["docs", "crates/ff-core/src/operations/flow", "crates/a/src"] {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        fs::write(folder.join("docs/operating.md"), "").unwrap();
        fs::write(folder.join("docs/concepts.md"), "").unwrap();
        fs::write(folder.join("docs/proof.md"), "| `flow::{gone, lost}` |").unwrap();
        let map = "# A\n\n- `a/src/`: `gone`, `gone.rs` and `A`.\n\nrest\n";
        fs::write(folder.join("ARCHITECTURE.md"), map).unwrap();
        let found = missing(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found.len(), operating().len() + concepts().len() + 4);
        let all: Vec<String> = found.iter().map(ToString::to_string).collect();
        let all = all.join("\n");
        assert!(all.contains("the group of operations `flow`"), "{all}");
        assert!(all.contains("names `gone` of a"), "{all}");
        assert!(all.contains("the exercise `flow::lost`"), "{all}");
    }
}
