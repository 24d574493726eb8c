//! The texts of the reads inside a transaction and of all records, put together once.

use crate::columns::{ATTEMPT, EVENT, EXECUTION, FLOW, LANE, PAYLOAD, of_table};
use crate::records::Read;
use crate::texts::Texts;

pub(crate) struct Statements {
    pub executions: String,
    pub attempts: String,
    /// Each with its id and the transaction that wrote it before it.
    pub members: String,
    /// Each with the transaction that wrote it behind it, if it is locked.
    pub flows: String,
    pub flows_locked: String,
    pub claim: String,
    /// The same, and which classes of work some lanes have.
    pub claim_and_outline: String,
    /// The same two without locks: each execution comes with the transaction that wrote it.
    pub find: String,
    pub find_and_outline: String,
    pub unannounced: String,
    pub retired: String,
    pub records: Texts<Vec<Read>>,
}

/// The rank that the index `ff_exec_claim` is sorted by.
const RANK: &str = "(e.created_at_ms - e.priority::bigint * 600000)";

/// What `ExecutionRow::is_claimable` says. The index has the first half of it.
const CLAIMABLE: &str = "e.eligibility_state = 'eligible_now' \
     AND e.lifecycle_phase IN ('submitted', 'runnable')";

/// The index has the first half of it, which no transition moves but the announcement.
pub(crate) const UNANNOUNCED: &str = "NOT e.announced AND e.version = 0";

impl Default for Statements {
    fn default() -> Self {
        let execution = of_table("e", EXECUTION);
        let keys = "unnest($1::int2[], $2::uuid[]) AS k(partition_key, id)";
        let flows = |writer: &str, locked: &str| {
            format!(
                "SELECT {}, {writer} FROM {keys} JOIN ff_flow_core AS f \
                 ON f.partition_key = k.partition_key AND f.flow_id = k.id {locked}",
                of_table("f", FLOW)
            )
        };
        Self {
            executions: format!(
                "SELECT {execution} FROM {keys} JOIN ff_exec_core AS e \
                 ON e.partition_key = k.partition_key AND e.execution_id = k.id \
                 ORDER BY e.partition_key, e.execution_id FOR UPDATE OF e"
            ),
            attempts: format!(
                "SELECT a.partition_key, a.execution_id, {} \
                 FROM unnest($1::int2[], $2::uuid[], $3::int4[]) AS k(partition_key, id, index) \
                 JOIN ff_attempt AS a ON a.partition_key = k.partition_key \
                 AND a.execution_id = k.id AND a.attempt_index = k.index",
                of_table("a", ATTEMPT)
            ),
            members: format!(
                "SELECT e.execution_id, e.xmin::text, {execution} FROM ff_exec_core AS e \
                 WHERE e.partition_key = $1 AND e.flow_id = $2 AND e.execution_id > $3 \
                 ORDER BY e.execution_id LIMIT $4"
            ),
            flows: flows("NULL", ""),
            flows_locked: flows(
                "f.xmin::text",
                "ORDER BY f.partition_key, f.flow_id FOR UPDATE OF f",
            ),
            claim: claim(true, false),
            claim_and_outline: claim(true, true),
            find: claim(false, false),
            find_and_outline: claim(false, true),
            unannounced: format!(
                "SELECT {execution} FROM ff_exec_core AS e WHERE {UNANNOUNCED} \
                 LIMIT $1 FOR UPDATE SKIP LOCKED"
            ),
            retired: format!(
                "SELECT {EVENT} FROM ff_event WHERE shard = $1 AND seq >= $2 ORDER BY seq LIMIT $3"
            ),
            records: Texts::default(),
        }
    }
}

/// Stands for a lane in the index.
fn line(lane: &str) -> String {
    format!("hashtextextended({lane}, 0)")
}

/// Stands for a class of work in the index.
fn class(namespace: &str, capabilities: &str) -> String {
    format!("hashtextextended({capabilities}, hashtextextended({namespace}, 0))")
}

/// Rows with the same columns: lanes (-1) and executions, numbered by the part of the scan that
/// they belong to, and if so asked classes of work that lanes have (0).
fn claim(locked: bool, outlined: bool) -> String {
    let columns = format!("{EXECUTION}, {PAYLOAD}");
    let (nothing, execution) = (of_table("n", &columns), of_table("e", &columns));
    let (line_of, class_of) = (line("e.lane_id"), class("e.namespace", "e.required_capabilities"));
    let classes = if outlined { classes(&nothing) } else { String::new() };
    let lock = if locked { "FOR UPDATE SKIP LOCKED" } else { "" };
    let found = if locked { "" } else { ", e.xmin::text AS writer" };
    let writer = if locked { "NULL" } else { "e.writer" };
    format!(
        "SELECT -1::int8, {}, {nothing} \
         FROM ff_lane AS r LEFT JOIN ff_exec_core AS n ON false WHERE r.lane_id = ANY($6) \
         {classes} UNION ALL \
         SELECT s.scan, {writer}, NULL, NULL, NULL, NULL, NULL, {execution} \
         FROM unnest($1::text[], $2::text[], $3::text[], $4::int8[], $5::int8[]) \
         WITH ORDINALITY AS s(lane, namespace, class, from_rank, many, scan), \
         LATERAL (SELECT e.*{found} FROM ff_exec_core AS e WHERE {CLAIMABLE} \
           AND {line_of} = {} AND {class_of} = {} \
           AND e.lane_id = s.lane AND e.namespace = s.namespace \
           AND e.required_capabilities = s.class AND {RANK} >= s.from_rank \
           ORDER BY {RANK}, e.execution_id LIMIT s.many {lock}) AS e",
        of_table("r", LANE),
        line("s.lane"),
        class("s.namespace", "s.class")
    )
}

/// Each class is found with one seek, however much work lies between.
fn classes(nothing: &str) -> String {
    let class_of = class("e.namespace", "e.required_capabilities");
    let (line_of, line) = (line("e.lane_id"), line("l.lane"));
    let next = |after: &str| {
        format!(
            "(SELECT e.namespace, e.required_capabilities, {class_of} AS class \
             FROM ff_exec_core AS e \
             WHERE {CLAIMABLE} AND {line_of} = {line} AND e.lane_id = l.lane {after} \
             ORDER BY {class_of} LIMIT 1)"
        )
    };
    let (first, more) = (next(""), next(&format!("AND {class_of} > c.class")));
    format!(
        "UNION ALL \
         SELECT 0, l.lane, c.namespace, c.required_capabilities, NULL, NULL, NULL, {nothing} \
         FROM unnest($7::text[]) AS l(lane) CROSS JOIN LATERAL (WITH RECURSIVE class AS ( \
             {first} UNION ALL SELECT n.* FROM class AS c, LATERAL {more} AS n \
           ) SELECT * FROM class) AS c LEFT JOIN ff_exec_core AS n ON false"
    )
}
