//! JSON that every reader understands alike: I-JSON (RFC 7493). Two readers may take different
//! values of a name that comes twice, half a surrogate pair or a number that no double holds.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Refuses JSON with a name twice in one object, half a surrogate pair or a number beyond a
/// double.
pub fn check(json: &[u8]) -> Result<(), serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let names = Cell::new(0);
    Strict { names: &names }.deserialize(&mut reader)?;
    reader.end()
}

/// How many names may be remembered at once: those of one object and of all around it.
const NAMES: usize = 200_000;

/// Looks at a value and keeps nothing of it but the names of open objects.
#[derive(Clone, Copy)]
struct Strict<'c> {
    names: &'c Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, given: D) -> Result<(), D::Error> {
        given.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut names = BTreeSet::new();
        while let Some(name) = fields.next_key_seed(Name)? {
            if let Some(twice) = names.replace(name) {
                let shown: String = twice.chars().take(40).collect();
                return Err(A::Error::custom(format!("the name {shown:?} comes twice")));
            }
            self.names.set(self.names.get() + 1);
            if self.names.get() > NAMES {
                return Err(A::Error::custom(format!("more than {NAMES} names in open objects")));
            }
            fields.next_value_seed(self)?;
        }
        self.names.set(self.names.get() - names.len());
        Ok(())
    }
}

/// A name without a copy of it, unless it has escapes.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, given: D) -> Result<Self::Value, D::Error> {
        given.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_readers_would_read_differently_is_refused() {
        for good in [
            "null",
            r#"{"a":1,"b":{"a":1},"A":[{"a":1},{"a":1}]}"#,
            r#""\ud83d\ude00""#,
            "1e308",
            "-0",
            "18446744073709551615",
            "123456789012345678901234567890",
            "1e-400",
        ] {
            assert!(check(good.as_bytes()).is_ok(), "{good}");
        }
        for bad in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"[{"b":{"x":[{"":0,"":0}]}}]"#,
            r#""\ud800""#,
            r#""\udc00""#,
            r#"{"\ud800":1}"#,
            "1e400",
            "[-1e309]",
            "",
            "1 2",
        ] {
            assert!(check(bad.as_bytes()).is_err(), "{bad}");
        }
        let object = |names: usize| {
            let fields: Vec<String> = (0..names).map(|at| format!("\"{at}\":{{}}")).collect();
            format!("{{{}}}", fields.join(","))
        };
        assert!(check(object(NAMES).as_bytes()).is_ok());
        assert!(check(object(NAMES + 1).as_bytes()).is_err());
        // What is closed again does not count.
        let half = object(NAMES / 2);
        assert!(check(format!("[{half},{half},{half}]").as_bytes()).is_ok());
    }
}
