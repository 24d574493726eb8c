//! The tables that are described are there, with the columns, keys and orders of their description.

use ff_core::rows::{Kind, RECORDS};

use crate::database::{Schema, pool, url};

#[tokio::test]
async fn every_described_table_is_there_as_described() {
    let schema = Schema::new();
    let backend = schema.open().await;
    let pool = pool(&url(), 1).await;
    for spec in RECORDS {
        let sql = "SELECT column_name::text, data_type::text FROM information_schema.columns \
                   WHERE table_schema = $1 AND table_name = $2";
        let mut found: Vec<(String, String)> = sqlx::query_as(sql)
            .bind(&schema.0)
            .bind(spec.table)
            .fetch_all(&pool)
            .await
            .expect("columns");
        let described = spec.columns.iter().map(|column| {
            let kind = match column.kind {
                Kind::Small => "smallint",
                Kind::Int4 => "integer",
                Kind::Int => "bigint",
                Kind::Bool => "boolean",
                Kind::Text => "text",
                Kind::Bytes => "bytea",
                Kind::Uuid => "uuid",
                Kind::Json => "jsonb",
            };
            (column.name.to_owned(), kind.to_owned())
        });
        let mut described: Vec<_> = described.collect();
        found.sort();
        described.sort();
        assert_eq!(found, described, "{}", spec.table);
        let sql = "SELECT indexdef FROM pg_indexes WHERE schemaname = $1 AND tablename = $2";
        let indexes: Vec<String> = sqlx::query_scalar(sql)
            .bind(&schema.0)
            .bind(spec.table)
            .fetch_all(&pool)
            .await
            .expect("indexes");
        let key: Vec<_> = spec.key_columns().iter().map(|column| column.name).collect();
        for columns in spec.orders.iter().map(|order| order.columns).chain([&key[..]]) {
            // An index may leave out what only tells equals apart.
            let serves = |many: &usize| {
                let list = format!("({})", columns[..*many].join(", "));
                indexes.iter().any(|index| index.contains(&list))
            };
            let enough =
                (columns.len().saturating_sub(1).max(1)..=columns.len()).any(|n| serves(&n));
            assert!(enough, "{}: {columns:?} in {indexes:?}", spec.table);
        }
    }
    pool.close().await;
    backend.close().await;
    schema.drop().await;
}
