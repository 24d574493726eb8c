//! The tables that are described are there, with the columns, keys and orders of their description.

use ff_backend_sqlite::SqliteBackend;
use ff_core::rows::{Kind, RECORDS};
use sqlx::Row;

#[tokio::test]
async fn every_described_table_is_there_as_described() {
    let backend = SqliteBackend::new("file:records?mode=memory&cache=shared").await.expect("open");
    let pool = backend.pool_for_test();
    for spec in RECORDS {
        let sql = format!("SELECT name, type, pk FROM pragma_table_info('{}')", spec.table);
        let found = sqlx::query(&sql).fetch_all(pool).await.expect("columns");
        let mut found: Vec<(String, String, i64)> =
            found.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
        let described = spec.columns.iter().enumerate().map(|(at, column)| {
            let kind = match column.kind {
                Kind::Small | Kind::Int4 | Kind::Int | Kind::Bool => "INTEGER",
                Kind::Text | Kind::Json => "TEXT",
                Kind::Bytes | Kind::Uuid => "BLOB",
            };
            let place = if at < spec.key { at as i64 + 1 } else { 0 };
            (column.name.to_owned(), kind.to_owned(), place)
        });
        let mut described: Vec<_> = described.collect();
        found.sort();
        described.sort();
        assert_eq!(found, described, "{}", spec.table);
        for order in spec.orders {
            let sql = format!(
                "SELECT (SELECT group_concat(name, ',') FROM \
                   (SELECT name FROM pragma_index_info(i.name) ORDER BY seqno)) \
                 FROM pragma_index_list('{}') AS i",
                spec.table
            );
            let indexes: Vec<String> =
                sqlx::query_scalar(&sql).fetch_all(pool).await.expect("indexes");
            let wanted = order.columns.join(",");
            let serves = |index: &String| index.starts_with(&wanted) || wanted.starts_with(index);
            assert!(indexes.iter().any(serves), "{}: {wanted} in {indexes:?}", spec.table);
        }
    }
}
