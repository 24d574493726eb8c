//! Matching what an execution requires against what a worker offers.

use crate::engine_error::{EngineError, ValidationKind};
use crate::limits;

/// The requirement of an execution in canonical form: sorted tokens joined by commas. Executions
/// with the same requirement share a class, which is what the claim index is sorted by, so that
/// work nobody here can do never stands in front of work that somebody can.
pub fn class<'a>(tokens: impl IntoIterator<Item = &'a String>) -> Result<String, EngineError> {
    let mut tokens: Vec<&str> = tokens.into_iter().map(String::as_str).collect();
    tokens.sort_unstable();
    tokens.dedup();
    check(&tokens)?;
    Ok(tokens.join(","))
}

/// Whether every token of the class is offered.
pub fn satisfied(class: &str, offered: &[String]) -> bool {
    class.is_empty() || class.split(',').all(|token| offered.iter().any(|have| have == token))
}

pub fn check(tokens: &[&str]) -> Result<(), EngineError> {
    let refuse =
        |detail: String| Err(EngineError::validation(ValidationKind::InvalidCapabilities, detail));
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
    fn classes_are_canonical() {
        assert_eq!(class(&offered(&["b", "a", "b"])).unwrap(), "a,b");
        assert!(class(&offered(&["a b"])).is_err());
        assert!(class(&offered(&[""])).is_err());
    }
}
