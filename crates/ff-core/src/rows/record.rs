//! Records: rows whose table is described once, and that every store reads and writes by its
//! description.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::spelling::Spelling;
use super::{FlowKey, Row};
use crate::engine_error::StoreError;
use crate::types::{ExecutionKey, TimestampMs};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 16 bits, for partitions.
    Small,
    Int4,
    Int,
    Bool,
    Text,
    Bytes,
    Uuid,
    /// A text that is JSON.
    Json,
}

#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub name: &'static str,
    pub kind: Kind,
}

/// An order in which rows are read, other than that of their keys. Its columns tell every row from
/// every other.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// The index that has it, in stores that speak SQL.
    pub index: &'static str,
    pub columns: &'static [&'static str],
}

/// A table.
#[derive(Debug)]
pub struct Spec {
    pub table: &'static str,
    /// The columns of the key come first.
    pub columns: &'static [Column],
    /// How many of them are the key.
    pub key: usize,
    /// Its key begins with an execution, and its rows are forgotten with that execution.
    pub owned: bool,
    /// Whoever writes such a row writes its execution too, as long as that has not ended: whoever
    /// finds the execution unchanged knows that its rows are.
    pub guarded: bool,
    pub orders: &'static [Order],
}

impl Spec {
    pub fn key_columns(&self) -> &'static [Column] {
        &self.columns[..self.key]
    }

    /// The execution that a row hangs on whose key begins with these values.
    pub fn owner(&self, values: &[Value]) -> Option<ExecutionKey> {
        self.owned.then(|| ExecutionKey::take(&mut values.iter()).ok()).flatten()
    }

    /// Where a column stands.
    pub fn place(&self, name: &str) -> usize {
        let found = self.columns.iter().position(|column| column.name == name);
        found.unwrap_or_else(|| panic!("{} has no column {name}", self.table))
    }
}

/// What has a name is compared by it, and by nothing else.
macro_rules! known_by {
    ($name:ident of $what:ty) => {
        impl PartialEq for $what {
            fn eq(&self, other: &Self) -> bool {
                std::ptr::eq(self.$name, other.$name) || self.$name == other.$name
            }
        }

        impl Eq for $what {}

        impl PartialOrd for $what {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $what {
            fn cmp(&self, other: &Self) -> Ordering {
                match std::ptr::eq(self.$name, other.$name) {
                    true => Ordering::Equal,
                    false => self.$name.cmp(other.$name),
                }
            }
        }

        impl Hash for $what {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.$name.hash(state);
            }
        }
    };
}

known_by!(table of Spec);
known_by!(index of Order);

/// One column of one row. Values of one column are compared as every store compares them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    Null,
    Int(i64),
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
    Uuid(Uuid),
}

/// The key of a record, whatever its table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AnyKey {
    pub spec: &'static Spec,
    pub values: Vec<Value>,
}

/// A record, whatever its table.
#[derive(Clone, Debug, PartialEq)]
pub struct AnyRow {
    pub spec: &'static Spec,
    pub values: Arc<[Value]>,
}

impl Row for AnyRow {
    type Key = AnyKey;

    fn key(&self) -> AnyKey {
        AnyKey { spec: self.spec, values: self.values[..self.spec.key].to_vec() }
    }
}

impl AnyRow {
    /// The record, if it is of this type. The error for one that cannot be read names the record
    /// and the column.
    pub fn decode<R: Record>(&self) -> Result<Option<R>, StoreError> {
        self.decode_or_damage().map_err(|error| match error {
            StoreError::Corrupt(damage) => {
                StoreError::Corrupt(format!("{} {}: {damage}", self.spec.table, self.key_text()))
            }
            error => error,
        })
    }

    /// The record, if it is of this type. The error for one that cannot be read names the column.
    pub fn decode_or_damage<R: Record>(&self) -> Result<Option<R>, StoreError> {
        if self.spec != R::SPEC {
            return Ok(None);
        }
        let mut values = self.values.iter();
        R::take(&mut values).map(Some).map_err(|error| match error {
            StoreError::Corrupt(why) => {
                // A field takes its column before it looks at the value.
                let at = (self.values.len() - values.len()).saturating_sub(1);
                let column = self.spec.columns.get(at).map_or("?", |column| column.name);
                StoreError::Corrupt(format!("{column} cannot be read: {why}"))
            }
            error => error,
        })
    }

    /// The values of its key, for messages.
    pub fn key_text(&self) -> String {
        let key = self.values.iter().take(self.spec.key).map(|value| match value {
            Value::Null => "?".to_owned(),
            Value::Int(number) => number.to_string(),
            Value::Text(text) => text.to_string(),
            Value::Uuid(id) => id.to_string(),
            Value::Bytes(bytes) => format!("{} bytes", bytes.len()),
        });
        key.collect::<Vec<_>>().join("/")
    }
}

/// A row that is described by its table. Made by [`record!`](crate::rows::record).
pub trait Record: Clone + Send + Sync + 'static {
    type Key: Clone + Ord + Send + Sync + 'static;

    const SPEC: &'static Spec;

    fn key(&self) -> Self::Key;

    fn key_values(key: &Self::Key) -> Vec<Value>;

    fn put(&self, values: &mut Vec<Value>);

    fn take(values: &mut std::slice::Iter<'_, Value>) -> Result<Self, StoreError>;

    fn erase(&self) -> AnyRow {
        let mut values = Vec::with_capacity(Self::SPEC.columns.len());
        self.put(&mut values);
        AnyRow { spec: Self::SPEC, values: values.into() }
    }

    fn erase_key(key: &Self::Key) -> AnyKey {
        AnyKey { spec: Self::SPEC, values: Self::key_values(key) }
    }
}

/// A value that fills one column or more.
pub trait Field: Sized {
    fn put(&self, values: &mut Vec<Value>);

    fn take(values: &mut std::slice::Iter<'_, Value>) -> Result<Self, StoreError>;
}

/// An enum by its word in storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Word<T>(pub T);

/// A value that is stored as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Json<T>(pub T);

fn next<'v>(values: &mut std::slice::Iter<'v, Value>) -> Result<&'v Value, StoreError> {
    values.next().ok_or_else(|| corrupt("a column is missing"))
}

fn corrupt(why: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt(why.to_string())
}

macro_rules! numbers {
    ($($type:ty),+) => { $(
        impl Field for $type {
            fn put(&self, values: &mut Vec<Value>) {
                // The largest numbers are counters that nothing reaches.
                values.push(Value::Int(i64::try_from(*self).unwrap_or(i64::MAX)));
            }

            fn take(values: &mut std::slice::Iter<'_, Value>) -> Result<Self, StoreError> {
                match next(values)? {
                    Value::Int(number) => Self::try_from(*number).map_err(corrupt),
                    other => Err(corrupt(format!("{other:?} is no number"))),
                }
            }
        }
    )+ };
}

numbers!(i16, u16, i32, u32, i64, u64, u8);

impl Field for bool {
    fn put(&self, values: &mut Vec<Value>) {
        values.push(Value::Int(i64::from(*self)));
    }

    fn take(values: &mut std::slice::Iter<'_, Value>) -> Result<Self, StoreError> {
        Ok(i64::take(values)? != 0)
    }
}

impl Field for TimestampMs {
    fn put(&self, values: &mut Vec<Value>) {
        values.push(Value::Int(self.0));
    }

    fn take(values: &mut std::slice::Iter<'_, Value>) -> Result<Self, StoreError> {
        i64::take(values).map(Self)
    }
}

impl Field for Arc<str> {
    fn put(&self, values: &mut Vec<Value>) {
        values.push(Value::Text(self.clone()));
    }

    fn take(values: &mut std::slice::Iter<'_, Value>) -> Result<Self, StoreError> {
        match next(values)? {
            Value::Text(text) => Ok(text.clone()),
            other => Err(corrupt(format!("{other:?} is no text"))),
        }
    }
}

impl Field for Arc<[u8]> {
    fn put(&self, values: &mut Vec<Value>) {
        values.push(Value::Bytes(self.clone()));
    }

    fn take(values: &mut std::slice::Iter<'_, Value>) -> Result<Self, StoreError> {
        match next(values)? {
            Value::Bytes(bytes) => Ok(bytes.clone()),
            other => Err(corrupt(format!("{other:?} are no bytes"))),
        }
    }
}

impl Field for Uuid {
    fn put(&self, values: &mut Vec<Value>) {
        values.push(Value::Uuid(*self));
    }

    fn take(values: &mut std::slice::Iter<'_, Value>) -> Result<Self, StoreError> {
        match next(values)? {
            Value::Uuid(id) => Ok(*id),
            other => Err(corrupt(format!("{other:?} is no id"))),
        }
    }
}

impl Field for ExecutionKey {
    fn put(&self, values: &mut Vec<Value>) {
        self.partition.put(values);
        self.id.put(values);
    }

    fn take(values: &mut std::slice::Iter<'_, Value>) -> Result<Self, StoreError> {
        Ok(Self { partition: u16::take(values)?, id: Uuid::take(values)? })
    }
}

impl Field for FlowKey {
    fn put(&self, values: &mut Vec<Value>) {
        self.partition.put(values);
        self.id.put(values);
    }

    fn take(values: &mut std::slice::Iter<'_, Value>) -> Result<Self, StoreError> {
        Ok(Self { partition: u16::take(values)?, id: Uuid::take(values)? })
    }
}

/// Only of values that fill one column.
impl<T: Field> Field for Option<T> {
    fn put(&self, values: &mut Vec<Value>) {
        match self {
            Some(value) => value.put(values),
            None => values.push(Value::Null),
        }
    }

    fn take(values: &mut std::slice::Iter<'_, Value>) -> Result<Self, StoreError> {
        match values.as_slice().first() {
            Some(Value::Null) => next(values).map(|_| None),
            _ => T::take(values).map(Some),
        }
    }
}

impl<T: Spelling + Copy> Field for Word<T> {
    fn put(&self, values: &mut Vec<Value>) {
        values.push(Value::Text(self.0.word().into()));
    }

    fn take(values: &mut std::slice::Iter<'_, Value>) -> Result<Self, StoreError> {
        let word = Arc::<str>::take(values)?;
        T::read(&word).map(Self).ok_or_else(|| corrupt(format!("unknown word {word:?}")))
    }
}

impl<T: Serialize + DeserializeOwned> Field for Json<T> {
    fn put(&self, values: &mut Vec<Value>) {
        // What is stored here is made of plain structs, lists and texts, which are always JSON.
        let json = serde_json::to_string(&self.0).unwrap_or_default();
        values.push(Value::Text(json.into()));
    }

    fn take(values: &mut std::slice::Iter<'_, Value>) -> Result<Self, StoreError> {
        let json = Arc::<str>::take(values)?;
        serde_json::from_str(&json).map(Self).map_err(corrupt)
    }
}

/// Describes a table and makes the structs of its key and its rows.
macro_rules! record {
    (
        $(#[$doc:meta])*
        pub struct $row:ident in $table:literal $(, $owned:ident)? {
            key $key:ident {
                $($(#[$key_doc:meta])* $kf:ident: $kt:ty = [$($kc:ident: $kk:ident),+]),+ $(,)?
            }
            $($(#[$field_doc:meta])* $f:ident: $t:ty = [$($c:ident: $k:ident),+]),* $(,)?
        }
        $(index $index:ident = $in:ident[$($ic:ident),+];)*
    ) => {
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $key {
            $($(#[$key_doc])* pub $kf: $kt),+
        }

        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $row {
            pub key: $key,
            $($(#[$field_doc])* pub $f: $t),*
        }

        impl $row {
            $(pub const $index: $crate::rows::Order = $crate::rows::Order {
                index: stringify!($in),
                columns: &[$(stringify!($ic)),+],
            };)*
        }

        impl $crate::rows::Record for $row {
            type Key = $key;

            const SPEC: &'static $crate::rows::Spec = &$crate::rows::Spec {
                table: $table,
                columns: &[
                    $($($crate::rows::Column {
                        name: stringify!($kc),
                        kind: $crate::rows::Kind::$kk,
                    }),+,)+
                    $($($crate::rows::Column {
                        name: stringify!($c),
                        kind: $crate::rows::Kind::$k,
                    }),+,)*
                ],
                key: [$($(stringify!($kc)),+),+].len(),
                owned: $crate::rows::record!(@owned $($owned)?),
                guarded: $crate::rows::record!(@guarded $($owned)?),
                orders: &[$(Self::$index),*],
            };

            fn key(&self) -> $key {
                self.key.clone()
            }

            fn key_values(key: &$key) -> Vec<$crate::rows::Value> {
                let mut values = Vec::with_capacity(Self::SPEC.key);
                $($crate::rows::Field::put(&key.$kf, &mut values);)+
                values
            }

            fn put(&self, values: &mut Vec<$crate::rows::Value>) {
                $($crate::rows::Field::put(&self.key.$kf, values);)+
                $($crate::rows::Field::put(&self.$f, values);)*
            }

            fn take(
                values: &mut std::slice::Iter<'_, $crate::rows::Value>,
            ) -> Result<Self, $crate::engine_error::StoreError> {
                let key = $key { $($kf: $crate::rows::Field::take(values)?),+ };
                Ok(Self { key, $($f: $crate::rows::Field::take(values)?),* })
            }
        }
    };
    (@owned) => { false };
    (@owned $any:ident) => { true };
    (@guarded guarded) => { true };
    (@guarded $($owned:ident)?) => { false };
}

/// The columns of some fields, one after the other.
macro_rules! values {
    ($($field:expr),* $(,)?) => {{
        #[allow(unused_mut)]
        let mut values = Vec::new();
        $($crate::rows::Field::put(&$field, &mut values);)*
        values
    }};
}

pub(crate) use {record, values};
