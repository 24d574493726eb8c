//! Filters on executions and flows as SQL, for stores that speak it.

use super::{FlowListQuery, ListQuery};
use crate::contracts::ListOrder;
use crate::rows::spelling::{Spelling, words_of};
use crate::rows::{FlowState, Value};
use crate::types::TimestampMs;
use uuid::Uuid;

/// How one database spells what differs.
#[derive(Clone, Copy, Debug)]
pub struct Dialect {
    /// The parameter of a number, counted from 1.
    pub parameter: fn(usize) -> String,
    /// The tag that a parameter names.
    pub tag: fn(&str) -> String,
    /// What that parameter is for a tag's key.
    pub tag_name: fn(&str) -> String,
}

/// A statement and its parameters.
#[derive(Clone, Debug)]
pub struct Statement {
    dialect: Dialect,
    pub text: String,
    pub values: Vec<Value>,
}

impl ListQuery {
    /// A page of executions.
    pub fn page(&self, dialect: Dialect, columns: &str) -> Statement {
        let mut sql = Statement::new(dialect, format!("SELECT {columns} FROM ff_exec_core WHERE "));
        self.filter(&mut sql);
        self.window(&mut sql);
        self.ordered(&mut sql, self.limit);
        sql
    }

    /// How many there are, wherever the page begins.
    pub fn count(&self, dialect: Dialect) -> Statement {
        let text = "SELECT count(*) FROM ff_exec_core WHERE ".to_owned();
        let mut sql = Statement::new(dialect, text);
        self.filter(&mut sql);
        self.window(&mut sql);
        sql
    }

    /// The next executions in order, whether the filter names them or not, so that a look is short
    /// even if it names few: columns, the time of creation, the id, and whether it is named.
    pub fn walk(&self, dialect: Dialect, columns: &str, steps: usize) -> Statement {
        let text = format!("SELECT {columns}, created_at_ms, execution_id, coalesce(");
        let mut sql = Statement::new(dialect, text);
        self.filter(&mut sql);
        sql.text += ", false) FROM ff_exec_core WHERE true";
        self.window(&mut sql);
        self.ordered(&mut sql, steps);
        sql
    }

    fn filter(&self, sql: &mut Statement) {
        sql.text += "true";
        for (column, value) in [
            ("namespace", &self.namespace),
            ("lane_id", &self.lane),
            ("execution_kind", &self.kind),
        ] {
            if let Some(value) = value {
                sql.test(column, "=", Value::Text(value.clone()));
            }
        }
        if let Some(flow) = self.flow_id {
            sql.test("flow_id", "=", Value::Uuid(flow));
        }
        if !self.states.is_empty() {
            let words = self.states.iter().flat_map(|state| words_of(*state));
            sql.one_of("public_state", words);
        }
        if let Some((key, value)) = &self.tag {
            let name = Value::Text((sql.dialect.tag_name)(key).into());
            let tag = (sql.dialect.tag)(&sql.parameter(name));
            sql.test(&tag, "=", Value::Text(value.as_str().into()));
        }
    }

    fn window(&self, sql: &mut Statement) {
        if let Some(from) = self.created_from {
            sql.test("created_at_ms", ">=", Value::Int(from.0));
        }
        if let Some(before) = self.created_before {
            sql.test("created_at_ms", "<", Value::Int(before.0));
        }
        sql.behind(self.after, "execution_id", self.order);
    }

    fn ordered(&self, sql: &mut Statement, limit: usize) {
        sql.ordered("execution_id", self.order, limit);
    }
}

impl FlowListQuery {
    /// A page of flows, the newest first.
    pub fn page(&self, dialect: Dialect, columns: &str) -> Statement {
        let text = format!("SELECT {columns} FROM ff_flow_core WHERE true");
        let mut sql = Statement::new(dialect, text);
        if let Some(namespace) = &self.namespace {
            sql.test("namespace", "=", Value::Text(namespace.clone()));
        }
        if !self.states.is_empty() {
            // Every word but the three endings means that the flow lives.
            let state = "CASE WHEN public_flow_state IN ('completed', 'failed', 'cancelled') \
                         THEN public_flow_state ELSE 'open' END";
            sql.one_of(state, self.states.iter().map(|state| FlowState::word(*state)));
        }
        sql.behind(self.after, "flow_id", ListOrder::NewestFirst);
        sql.ordered("flow_id", ListOrder::NewestFirst, self.limit);
        sql
    }
}

impl Statement {
    fn new(dialect: Dialect, text: String) -> Self {
        Self { dialect, text, values: Vec::new() }
    }

    fn parameter(&mut self, value: Value) -> String {
        self.values.push(value);
        (self.dialect.parameter)(self.values.len())
    }

    fn test(&mut self, left: &str, compare: &str, value: Value) {
        let right = self.parameter(value);
        self.text += &format!(" AND {left} {compare} {right}");
    }

    fn one_of(&mut self, left: &str, words: impl Iterator<Item = &'static str>) {
        let words: Vec<String> =
            words.map(|word| self.parameter(Value::Text(word.into()))).collect();
        self.text += &format!(" AND {left} IN ({})", words.join(", "));
    }

    /// Only what comes after a place in the order of creation.
    fn behind(&mut self, after: Option<(TimestampMs, Uuid)>, id_column: &str, order: ListOrder) {
        let Some((at, id)) = after else { return };
        let (at, id) = (self.parameter(Value::Int(at.0)), self.parameter(Value::Uuid(id)));
        let compare = match order {
            ListOrder::NewestFirst => "<",
            ListOrder::OldestFirst => ">",
        };
        self.text += &format!(" AND (created_at_ms, {id_column}) {compare} ({at}, {id})");
    }

    fn ordered(&mut self, id_column: &str, order: ListOrder, limit: usize) {
        let order = match order {
            ListOrder::NewestFirst => " DESC",
            ListOrder::OldestFirst => "",
        };
        let limit = self.parameter(Value::Int(i64::try_from(limit).unwrap_or(i64::MAX)));
        self.text += &format!(" ORDER BY created_at_ms{order}, {id_column}{order} LIMIT {limit}");
    }
}
