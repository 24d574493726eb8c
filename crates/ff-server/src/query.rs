//! The part of an address after the question mark.

use axum::extract::Query;
use axum::http::Uri;
use serde::de::DeserializeOwned;

use crate::refusal::{Answered, Refusal};

/// Takes the namespace out of a query; what is left is for the handler.
pub fn split_namespace(query: &str) -> Answered<(Option<String>, String)> {
    let mut namespace = None;
    let mut rest = Vec::new();
    for segment in query.split('&').filter(|segment| !segment.is_empty()) {
        let pairs: Vec<(String, String)> = parse(segment)?;
        match pairs.into_iter().next() {
            Some((key, value)) if key == "namespace" => {
                if namespace.replace(value).is_some() {
                    return Err(Refusal::invalid("the namespace is given twice"));
                }
            }
            _ => rest.push(segment),
        }
    }
    Ok((namespace, rest.join("&")))
}

pub fn parse<Q: DeserializeOwned>(query: &str) -> Answered<Q> {
    let refuse = |detail: String| Refusal::invalid(format!("the query cannot be read: {detail}"));
    let uri: Uri = format!("/?{query}").parse().map_err(|_| refuse("it is no query".to_owned()))?;
    let parsed = Query::<Q>::try_from_uri(&uri);
    parsed.map(|query| query.0).map_err(|error| refuse(error.body_text()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_cannot_hide() {
        let split = |query: &str| split_namespace(query).map_err(|refusal| refusal.detail);
        assert_eq!(split(""), Ok((None, String::new())));
        assert_eq!(split("a=1&namespace=x%20y"), Ok((Some("x y".into()), "a=1".into())));
        assert_eq!(split("n%61mespace=x"), Ok((Some("x".into()), String::new())));
        assert!(split("namespace=x&n%61mespace=y").is_err());
    }
}
