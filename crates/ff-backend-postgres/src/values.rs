//! The values of records: how their columns are named, read and bound.

use ff_core::rows::{Column, Kind, Value};
use uuid::Uuid;

use crate::binding::Bound;
use crate::load::Prepared;

pub(crate) fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Small => "int2",
        Kind::Int4 => "int4",
        Kind::Int => "int8",
        Kind::Bool => "bool",
        Kind::Text => "text",
        Kind::Bytes => "bytea",
        Kind::Uuid => "uuid",
        Kind::Json => "json",
    }
}

pub(crate) fn columns(described: &[Column]) -> Vec<(&'static str, &'static str)> {
    described.iter().map(|column| (column.name, kind(column.kind))).collect()
}

pub(crate) fn read(column: &Column) -> String {
    match column.kind {
        Kind::Json => format!("{}::text", column.name),
        _ => column.name.to_owned(),
    }
}

/// The parameters of a statement, each as what it is.
pub(crate) fn bind<'q>(query: Prepared<'q>, values: &'q [Value]) -> Prepared<'q> {
    values.iter().fold(query, |query, value| match value {
        Value::Null => query.bind(None::<i64>),
        Value::Int(number) => query.bind(*number),
        Value::Text(text) => query.bind(&**text),
        Value::Bytes(bytes) => query.bind(&**bytes),
        Value::Uuid(id) => query.bind(*id),
    })
}

/// One array for each column, or its value if there is one row.
pub(crate) fn bind_rows(bound: &mut Bound, described: &[Column], rows: &[&[Value]]) {
    match rows {
        [row] => {
            described.iter().zip(*row).for_each(|(column, value)| single(bound, column, value))
        }
        rows => arrays(bound, described, rows),
    }
}

/// One array for each column.
pub(crate) fn arrays(bound: &mut Bound, described: &[Column], rows: &[&[Value]]) {
    for (at, column) in described.iter().enumerate() {
        let values = rows.iter().map(|row| &row[at]);
        match column.kind {
            // The bits of a partition fit, whatever their sign.
            Kind::Small => bound.value(
                values.map(|value| number(value).map(|number| number as i16)).collect::<Vec<_>>(),
            ),
            Kind::Int4 => bound.value(
                values.map(|value| number(value).map(|number| number as i32)).collect::<Vec<_>>(),
            ),
            Kind::Int => bound.value(values.map(number).collect::<Vec<_>>()),
            Kind::Bool => bound.value(
                values.map(|value| number(value).map(|number| number != 0)).collect::<Vec<_>>(),
            ),
            Kind::Text | Kind::Json => bound.value(values.map(text).collect::<Vec<_>>()),
            Kind::Bytes => bound.value(values.map(bytes).collect::<Vec<_>>()),
            Kind::Uuid => bound.value(values.map(id).collect::<Vec<_>>()),
        }
    }
}

/// One value of a column.
fn single(bound: &mut Bound, column: &Column, value: &Value) {
    match column.kind {
        Kind::Small => bound.value(number(value).map(|number| number as i16)),
        Kind::Int4 => bound.value(number(value).map(|number| number as i32)),
        Kind::Int => bound.value(number(value)),
        Kind::Bool => bound.value(number(value).map(|number| number != 0)),
        Kind::Text | Kind::Json => bound.value(text(value)),
        Kind::Bytes => bound.value(bytes(value)),
        Kind::Uuid => bound.value(id(value)),
    }
}

fn number(value: &Value) -> Option<i64> {
    if let Value::Int(number) = value { Some(*number) } else { None }
}

fn text(value: &Value) -> Option<&str> {
    if let Value::Text(text) = value { Some(text) } else { None }
}

fn bytes(value: &Value) -> Option<&[u8]> {
    if let Value::Bytes(bytes) = value { Some(bytes) } else { None }
}

fn id(value: &Value) -> Option<Uuid> {
    if let Value::Uuid(id) = value { Some(*id) } else { None }
}
