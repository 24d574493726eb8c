//! Reads of flows outside transactions.

use ff_core::engine_error::StoreError;
use ff_core::rows::FlowKey;
use ff_core::store::cells::{Words, state_counts};
use ff_core::store::{CountRow, FlowListQuery, Rows};
use sqlx::sqlite::SqliteRow;

use crate::columns::{FLOW, Read};
use crate::query::{DIALECT, Reads};
use crate::records::bind;

impl Reads<'_> {
    pub(crate) async fn flow(&self, rows: &mut Rows, flow: FlowKey) -> Result<(), StoreError> {
        let sql =
            format!("SELECT {FLOW} FROM ff_flow_core WHERE partition_key = 0 AND flow_id = ?1");
        flows(rows, &self.fetch(sqlx::query(&sql).bind(flow.id)).await?)
    }

    /// How many members of a flow are in each state.
    pub(crate) async fn member_counts(&self, flow: FlowKey) -> Result<Vec<CountRow>, StoreError> {
        let sql = "SELECT public_state, count(*) FROM ff_exec_core WHERE flow_id = ?1 \
                   GROUP BY public_state";
        let rows = self.fetch(sqlx::query(sql).bind(flow.id)).await?;
        state_counts(rows.iter().map(Read))
    }

    pub(crate) async fn list_flows(
        &self,
        rows: &mut Rows,
        list: &FlowListQuery,
    ) -> Result<(), StoreError> {
        let sql = list.page(DIALECT, FLOW);
        flows(rows, &self.fetch(bind(sqlx::query(&sql.text), &sql.values)).await?)
    }
}

fn flows(rows: &mut Rows, found: &[SqliteRow]) -> Result<(), StoreError> {
    let mut words = Words::default();
    for cells in found {
        let flow = rows.flow(&Read(cells), &mut words, FLOW)?;
        rows.flows.push(flow);
    }
    Ok(())
}
