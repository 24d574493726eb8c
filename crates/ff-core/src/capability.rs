//! Matching what an execution requires against what a worker offers.
//!
//! A requirement is a name (`gpu`), a value (`region=eu`) or a comparison (`cuda>=12`). An offer is
//! a name or a value. A name is met by any value that is offered under it; a comparison goes part
//! by part through numbers with dots, as versions are compared: 12.10 is more than 12.9, and 12
//! counts as 12.0.

use std::cmp::Ordering;

use crate::engine_error::{EngineError, ValidationKind};
use crate::limits;

/// How a requirement relates to the offered value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Equal,
    AtLeast,
    AtMost,
    More,
    Less,
}

impl Relation {
    /// The longer signs first, so that `>=` is not read as `>`.
    const SIGNS: [(&'static str, Self); 5] = [
        (">=", Self::AtLeast),
        ("<=", Self::AtMost),
        (">", Self::More),
        ("<", Self::Less),
        ("=", Self::Equal),
    ];

    fn holds(self, offered: &str, wanted: &str) -> bool {
        if self == Self::Equal {
            return offered == wanted;
        }
        compare(offered, wanted).is_some_and(|order| match self {
            Self::Equal => order == Ordering::Equal,
            Self::AtLeast => order != Ordering::Less,
            Self::AtMost => order != Ordering::Greater,
            Self::More => order == Ordering::Greater,
            Self::Less => order == Ordering::Less,
        })
    }
}

/// The requirement of an execution in canonical form: sorted tokens joined by commas. Executions
/// with the same requirement share a class, which is what the claim index is sorted by, so that
/// work nobody here can do never stands in front of work that somebody can.
pub fn class<'a>(tokens: impl IntoIterator<Item = &'a String>) -> Result<String, EngineError> {
    let mut tokens: Vec<&str> = tokens.into_iter().map(String::as_str).collect();
    tokens.sort_unstable();
    tokens.dedup();
    check_required(&tokens)?;
    Ok(tokens.join(","))
}

/// Whether every token of the class is met by what is offered.
pub fn satisfied(class: &str, offered: &[String]) -> bool {
    class.is_empty() || class.split(',').all(|token| is_met(token, offered))
}

/// The tokens of the class that nothing offered meets.
pub fn missing<'c>(class: &'c str, offered: &[String]) -> Vec<&'c str> {
    let tokens = class.split(',').filter(|token| !token.is_empty());
    tokens.filter(|token| !is_met(token, offered)).collect()
}

fn is_met(token: &str, offered: &[String]) -> bool {
    // Most tokens are plain, and most offers are spelled as they are required.
    if offered.iter().any(|have| have == token) {
        return true;
    }
    let Some((key, relation, wanted)) = split(token) else {
        return offered.iter().any(|have| value_of(have, token).is_some());
    };
    offered.iter().filter_map(|have| value_of(have, key)).any(|have| relation.holds(have, wanted))
}

/// What is offered under a key.
fn value_of<'o>(offer: &'o str, key: &str) -> Option<&'o str> {
    offer.strip_prefix(key)?.strip_prefix('=')
}

/// A token that is more than a name, taken apart at its first sign.
fn split(token: &str) -> Option<(&str, Relation, &str)> {
    let at = token.find(['<', '>', '='])?;
    let (key, rest) = token.split_at(at);
    let sign = |(sign, relation): (&str, Relation)| Some((relation, rest.strip_prefix(sign)?));
    let (relation, value) = Relation::SIGNS.into_iter().find_map(sign)?;
    Some((key, relation, value))
}

/// Orders two numbers with dots; nothing if either is none.
fn compare(left: &str, right: &str) -> Option<Ordering> {
    if !is_number(left) || !is_number(right) {
        return None;
    }
    let (mut left, mut right) = (left.split('.'), right.split('.'));
    loop {
        let parts = match (left.next(), right.next()) {
            (None, None) => return Some(Ordering::Equal),
            (left, right) => [left, right].map(|part| part.unwrap_or("").trim_start_matches('0')),
        };
        // Without leading zeros the longer one is the larger, however long they are.
        let order = parts[0].len().cmp(&parts[1].len()).then_with(|| parts[0].cmp(parts[1]));
        if order != Ordering::Equal {
            return Some(order);
        }
    }
}

fn is_number(text: &str) -> bool {
    text.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Refuses what cannot be required.
pub fn check_required(tokens: &[&str]) -> Result<(), EngineError> {
    check(tokens)?;
    for token in tokens {
        let Some((key, relation, value)) = split(token) else { continue };
        check_pair(token, key, value)?;
        if relation != Relation::Equal && !is_number(value) {
            let detail = format!("{token:?} compares with {value:?}, which is not like 12 or 12.4");
            return refuse(detail);
        }
    }
    Ok(())
}

/// Refuses what cannot be offered.
pub fn check_offered(tokens: &[&str]) -> Result<(), EngineError> {
    check(tokens)?;
    for token in tokens {
        let Some((key, relation, value)) = split(token) else { continue };
        if relation != Relation::Equal {
            return refuse(format!("{token:?} is a requirement; an offer is a name or name=value"));
        }
        check_pair(token, key, value)?;
    }
    Ok(())
}

fn check_pair(token: &str, key: &str, value: &str) -> Result<(), EngineError> {
    if key.is_empty() || key.ends_with('!') {
        return refuse(format!("{token:?} has no name before its sign"));
    }
    if value.is_empty() {
        return refuse(format!("{token:?} has no value"));
    }
    Ok(())
}

fn check(tokens: &[&str]) -> Result<(), EngineError> {
    if tokens.len() > limits::CAPABILITIES {
        return refuse(format!("{} tokens, the limit is {}", tokens.len(), limits::CAPABILITIES));
    }
    let bytes: usize = tokens.iter().map(|token| token.len() + 1).sum();
    if bytes > limits::CAPABILITIES_BYTES {
        return refuse(format!("{bytes} bytes, the limit is {}", limits::CAPABILITIES_BYTES));
    }
    for token in tokens {
        let bad = |c: char| c == ',' || c.is_whitespace() || c.is_control();
        if token.is_empty() || token.contains(bad) {
            return refuse(format!("token {token:?} is empty or has a comma, space or control"));
        }
    }
    Ok(())
}

fn refuse(detail: String) -> Result<(), EngineError> {
    Err(EngineError::validation(ValidationKind::InvalidCapabilities, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(tokens: &[&str]) -> Vec<String> {
        tokens.iter().map(|token| (*token).to_owned()).collect()
    }

    #[test]
    fn subset_rule() {
        assert!(satisfied("", &offered(&[])));
        assert!(satisfied("gpu", &offered(&["ssd", "gpu"])));
        assert!(!satisfied("gpu,ssd", &offered(&["gpu"])));
    }

    #[test]
    fn requirement_table() {
        let cases = [
            ("gpu", "gpu", true),
            ("gpu", "gpu=a100", true),
            ("gpu", "gpus", false),
            ("gpu=a100", "gpu", false),
            ("region=eu", "region=eu", true),
            ("region=eu", "region=eu-west", false),
            ("cuda>=12", "cuda=12.4", true),
            ("cuda>=12", "cuda=12", true),
            ("cuda>=12.0", "cuda=12", true),
            ("cuda>12", "cuda=12.0.0", false),
            ("cuda>12", "cuda=12.0.1", true),
            ("cuda>=12.10", "cuda=12.9", false),
            ("cuda<12", "cuda=11.8", true),
            ("cuda<=11.8", "cuda=11.8", true),
            ("cuda<=11.8", "cuda=11.8.1", false),
            ("cuda>=12", "cuda=twelve", false),
            ("cuda>=12", "cuda", false),
            ("cuda>=12", "cudax=13", false),
            ("memory>=010", "memory=9", false),
            ("memory>=10", "memory=0010", true),
            ("serial>=99999999999999999999998", "serial=99999999999999999999999", true),
        ];
        for (class, offer, expected) in cases {
            assert_eq!(satisfied(class, &offered(&[offer])), expected, "{class} from {offer}");
        }
    }

    #[test]
    fn any_of_several_offers_will_do() {
        let both = offered(&["cuda=11.8", "cuda=12.4"]);
        assert!(satisfied("cuda<12,cuda>=12", &both));
        assert!(!satisfied("cuda>=13", &both));
        assert_eq!(
            missing("cuda>=13,gpu,region=eu", &offered(&["gpu"])),
            ["cuda>=13", "region=eu"]
        );
        assert!(missing("", &both).is_empty());
    }

    #[test]
    fn classes_are_canonical() {
        assert_eq!(class(&offered(&["b", "a", "b"])).unwrap(), "a,b");
        for bad in
            ["a b", "", "a,b", "cuda>=new", "cuda>=", ">=12", "=x", "cuda!=12", "a>1.", "a<>1"]
        {
            assert!(class(&offered(&[bad])).is_err(), "{bad:?} was required");
        }
        for good in ["a", "a=b", "a=b=c", "cuda>=12", "a.b/c<3.1", "a=1.2rc1", "a+b"] {
            assert!(class(&offered(&[good])).is_ok(), "{good:?} was refused");
        }
    }

    #[test]
    fn offers_are_names_and_values() {
        for good in ["gpu", "cuda=12.4", "a=b=c"] {
            assert!(check_offered(&[good]).is_ok(), "{good:?} was refused");
        }
        for bad in ["cuda>=12", "cuda<1", "=x", "cuda=", "a b", "", "a!=b"] {
            assert!(check_offered(&[bad]).is_err(), "{bad:?} was offered");
        }
    }
}
