//! What PostgreSQL can do without the engine: one table of jobs and the statements that a careful
//! author would write by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sqlx::{Connection, PgConnection, Row};
use tokio::task::JoinSet;

use crate::measure::per_second;
use crate::workload::{BATCH, take};

/// How many connections work at the same time.
const WORKERS: usize = 16;

/// A claim and a completion each leave a dead version of the row. Room in its page lets the new
/// version stay there, so that fewer pages are written.
const SCHEMA: [&str; 2] = [
    "CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, \
     state smallint NOT NULL DEFAULT 0, lane text NOT NULL, priority int NOT NULL, \
     created bigint NOT NULL, payload bytea NOT NULL) WITH (fillfactor = 70)",
    "CREATE INDEX jobs_claim ON jobs (lane, priority, id) WHERE state = 0",
];

const LANE: &str = "bench";

/// One table of jobs in a database of its own, and connections to it.
pub(crate) struct Floor {
    connections: Vec<PgConnection>,
    payload: Arc<[u8]>,
}

impl Floor {
    pub(crate) async fn open(url: &str, payload: &[u8]) -> Result<Self> {
        let mut connections = Vec::new();
        for _ in 0..WORKERS {
            connections.push(PgConnection::connect(url).await?);
        }
        for sql in SCHEMA {
            sqlx::query(sql).execute(&mut connections[0]).await?;
        }
        Ok(Self { connections, payload: payload.into() })
    }

    pub(crate) async fn close(self) -> Result<()> {
        for connection in self.connections {
            connection.close().await?;
        }
        Ok(())
    }

    /// Jobs inserted per second by all connections, each in a transaction of its own.
    pub(crate) async fn insert_single(&mut self, time: Duration) -> Result<f64> {
        let payload = self.payload.clone();
        self.all(move |mut connection| {
            let payload = payload.clone();
            async move {
                let (start, mut count) = (Instant::now(), 0);
                while start.elapsed() < time {
                    let sql = "INSERT INTO jobs (lane, priority, created, payload) \
                               VALUES ($1, $2, $3, $4)";
                    let insert = sqlx::query(sql).bind(LANE).bind(0).bind(count as i64);
                    insert.bind(&*payload).execute(&mut connection).await?;
                    count += 1;
                }
                Ok((connection, count))
            }
        })
        .await
    }

    /// Jobs inserted per second by one connection, a thousand in a statement.
    pub(crate) async fn insert_grouped(&mut self, count: usize) -> Result<f64> {
        let start = Instant::now();
        for done in (0..count).step_by(BATCH) {
            let group = BATCH.min(count - done);
            let sql = "INSERT INTO jobs (lane, priority, created, payload) \
                       SELECT * FROM unnest($1::text[], $2::int[], $3::bigint[], $4::bytea[])";
            let insert = sqlx::query(sql)
                .bind(vec![LANE; group])
                .bind(vec![0; group])
                .bind(vec![done as i64; group])
                .bind(vec![&*self.payload; group]);
            insert.execute(&mut self.connections[0]).await?;
        }
        Ok(per_second(count, start))
    }

    /// Makes jobs to drain. Without statistics, which the server gathers by itself only after a
    /// minute, the planner would read the whole table for each claim.
    pub(crate) async fn fill(&mut self, count: usize) -> Result<()> {
        self.insert_grouped(count).await?;
        sqlx::query("ANALYZE jobs").execute(&mut self.connections[0]).await?;
        Ok(())
    }

    /// Jobs claimed and completed per second by all connections, so many at a time: a statement
    /// that claims and a statement that completes, each in a transaction of its own.
    pub(crate) async fn drain(
        &mut self,
        batch: usize,
        count: usize,
        limit: Duration,
    ) -> Result<f64> {
        let left = Arc::new(AtomicUsize::new(count));
        let bytes = self.payload.len();
        self.all(move |mut connection| {
            let left = left.clone();
            async move {
                let (start, mut done) = (Instant::now(), 0);
                while start.elapsed() < limit
                    && let Some(share) = take(&left, batch)
                {
                    let claimed = claim(&mut connection, batch, bytes).await?;
                    ensure!(!claimed.is_empty(), "the floor's table ran dry");
                    left.fetch_add(share.saturating_sub(claimed.len()), Ordering::Relaxed);
                    done += claimed.len();
                    complete(&mut connection, &claimed).await?;
                }
                Ok((connection, done))
            }
        })
        .await
    }

    /// Lets every connection do the same and adds up what they say they have done, per second.
    async fn all<W, F>(&mut self, work: W) -> Result<f64>
    where
        W: Fn(PgConnection) -> F,
        F: Future<Output = Result<(PgConnection, usize)>> + Send + 'static,
    {
        let start = Instant::now();
        let mut running: JoinSet<_> = self.connections.drain(..).map(work).collect();
        let mut total = 0;
        while let Some(ended) = running.join_next().await {
            let (connection, count) = ended??;
            self.connections.push(connection);
            total += count;
        }
        Ok(per_second(total, start))
    }
}

/// The limit stands in the statement, where the planner sees it however often the plan is used.
async fn claim(connection: &mut PgConnection, max: usize, bytes: usize) -> Result<Vec<i64>> {
    let sql = format!(
        "UPDATE jobs SET state = 1 FROM (SELECT id FROM jobs WHERE state = 0 AND lane = $1 \
         ORDER BY priority, id FOR UPDATE SKIP LOCKED LIMIT {max}) s WHERE jobs.id = s.id \
         RETURNING jobs.id, jobs.payload"
    );
    let rows = sqlx::query(&sql).bind(LANE).fetch_all(connection).await?;
    let mut ids = Vec::with_capacity(rows.len());
    for row in rows {
        let payload: &[u8] = row.try_get(1)?;
        ensure!(payload.len() == bytes, "a payload changed its length");
        ids.push(row.try_get(0)?);
    }
    Ok(ids)
}

async fn complete(connection: &mut PgConnection, ids: &[i64]) -> Result<()> {
    let sql = "UPDATE jobs SET state = 2 FROM unnest($1::bigint[]) AS done (id) \
               WHERE jobs.id = done.id AND jobs.state = 1";
    let changed = sqlx::query(sql).bind(ids).execute(connection).await?.rows_affected();
    ensure!(changed == ids.len() as u64, "a job was not there to complete");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres_server::{Readers, Server};

    #[test]
    fn floors_work_on_a_private_server() {
        let server = Server::start(&std::env::temp_dir()).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        server.prepare_pgbench().unwrap();
        let second = Duration::from_secs(1);
        assert!(server.pgbench_rate(second).unwrap() > 1.0);
        assert!(server.pgbench_latency(20).unwrap() > 1.0);

        let url = server.database("floor").unwrap();
        let counts = server.count_statements("floor").unwrap();
        runtime.block_on(async {
            let mut floor = Floor::open(&url, &[7; 256]).await.unwrap();
            floor.fill(2_500).await.unwrap();
            assert!(floor.insert_single(second / 10).await.unwrap() > 1.0);
            assert!(floor.drain(1, 500, second).await.unwrap() > 1.0);
            assert!(floor.drain(100, 2_000, second).await.unwrap() > 1.0);
            let connection = &mut floor.connections[0];
            sqlx::query("CREATE VIEW ff_exec_core AS SELECT * FROM jobs")
                .execute(connection)
                .await
                .unwrap();
            let readers = Readers::start(&url, second / 10).await.unwrap();
            tokio::time::sleep(second / 2).await;
            readers.stop().await.unwrap();
            floor.close().await.unwrap();
        });
        assert!(!counts || server.statements("floor").unwrap() > 1_000.0);
        server.remove("floor").unwrap();
    }
}
