//! The texts of the reads inside a transaction, put together once.

use std::cell::RefCell;
use std::sync::Arc;

use ff_core::rows::Order;
use ff_core::store::Scan;
use foldhash::HashMap;

use crate::columns::{ATTEMPT, EVENT, EXECUTION, FLOW, LANE, of_table};
use crate::records::scan_sql;

/// The predicate of the index `ff_exec_claim`, letter by letter.
const CLAIMABLE: &str =
    "eligibility_state = 'eligible_now' AND lifecycle_phase IN ('submitted', 'runnable')";

/// How many executions one statement reads.
pub(crate) const CHUNK: usize = 16;

pub(crate) struct Statements {
    pub one: String,
    pub chunk: String,
    pub member: String,
    pub next: String,
    pub next_chunk: String,
    pub claim: String,
    pub first_class: String,
    pub first_class_of_namespace: String,
    pub next_class_of_namespace: String,
    pub next_namespace: String,
    pub attempt: String,
    pub payload: String,
    pub flow: String,
    pub lane: String,
    pub retired: String,
    scans: RefCell<HashMap<Shape, Arc<str>>>,
}

/// Scans of one shape differ in their parameters only: table, order, and how many columns are given
/// and come after.
type Shape = (&'static str, Option<&'static Order>, usize, usize);

impl Statements {
    pub fn scan(&self, scan: &Scan) -> Arc<str> {
        let shape = (scan.spec.table, scan.order, scan.prefix.len(), scan.after.len());
        let mut scans = self.scans.borrow_mut();
        scans.entry(shape).or_insert_with(|| scan_sql(scan).into()).clone()
    }
}

impl Default for Statements {
    fn default() -> Self {
        let (executions, attempts) = (of_table("e", EXECUTION), of_table("a", ATTEMPT));
        let attempt_join = "LEFT JOIN ff_attempt AS a ON a.partition_key = 0 \
                            AND a.execution_id = e.execution_id \
                            AND a.attempt_index = e.attempt_index";
        let execution = format!(
            "SELECT {executions}, {attempts}, e.rowid, e.last_event \
             FROM ff_exec_core AS e {attempt_join}"
        );
        let class = |after: &str| {
            format!(
                "SELECT namespace, required_capabilities \
                 FROM ff_exec_core INDEXED BY ff_exec_claim \
                 WHERE {CLAIMABLE} AND lane_id = ?1 {after} \
                 ORDER BY namespace, required_capabilities LIMIT 1"
            )
        };
        let next = format!(
            "SELECT {EXECUTION}, payload, payload_apart, rowid, last_event FROM ff_exec_core"
        );
        let claim = format!(
            "{next} INDEXED BY ff_exec_claim \
             WHERE {CLAIMABLE} AND lane_id = ?1 AND namespace = ?2 \
             AND required_capabilities = ?3 \
             ORDER BY (created_at_ms - priority * 600000), execution_id LIMIT ?4"
        );
        Self {
            first_class: class(""),
            first_class_of_namespace: class("AND namespace = ?2"),
            next_class_of_namespace: class("AND namespace = ?2 AND required_capabilities > ?3"),
            next_namespace: class("AND namespace > ?2"),
            one: format!("{execution} WHERE e.partition_key = 0 AND e.execution_id = ?1"),
            chunk: format!(
                "{execution} WHERE e.partition_key = 0 AND e.execution_id IN ({})",
                vec!["?"; CHUNK].join(", ")
            ),
            member: format!(
                "{execution} WHERE e.flow_id = ?1 AND e.execution_id > ?2 \
                 ORDER BY e.execution_id LIMIT ?3"
            ),
            claim,
            next: format!("{next} WHERE partition_key = 0 AND execution_id = ?1"),
            next_chunk: format!(
                "{next} WHERE partition_key = 0 AND execution_id IN ({})",
                vec!["?"; CHUNK].join(", ")
            ),
            attempt: format!(
                "SELECT {ATTEMPT} FROM ff_attempt \
                 WHERE partition_key = 0 AND execution_id = ?1 AND attempt_index = ?2"
            ),
            payload: "SELECT payload, payload_apart FROM ff_exec_core WHERE rowid = ?1".to_owned(),
            flow: format!(
                "SELECT {FLOW} FROM ff_flow_core WHERE partition_key = 0 AND flow_id = ?1"
            ),
            lane: format!("SELECT {LANE} FROM ff_lane WHERE lane_id = ?1"),
            retired: format!("SELECT {EVENT} FROM ff_event WHERE seq >= ?1 ORDER BY seq LIMIT ?2"),
            scans: RefCell::default(),
        }
    }
}
