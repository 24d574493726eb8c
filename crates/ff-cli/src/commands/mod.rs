//! One file for each word after `flowfabric`.

pub mod bench;
pub mod budget;
pub mod bulk;
pub mod config;
pub mod dev;
pub mod doctor;
pub mod events;
pub mod flow;
pub mod lane;
pub mod migrate;
pub mod quota;
pub mod run;
pub mod schedule;
pub mod serve;
pub mod token;
pub mod top;
pub mod waitpoint;
pub mod webhook;
pub mod worker;

use crate::client::Client;
use crate::failure::Failure;
use crate::output::Output;

/// What a command that asks the server has at hand.
pub struct Session {
    pub client: Client,
    pub output: Output,
}

/// A name or an identity as one segment of a path.
pub fn segment(text: &str) -> String {
    let mut path = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                path.push(char::from(byte));
            }
            _ => path += &format!("%{byte:02X}"),
        }
    }
    path
}

/// A value as JSON: as it stands, `@file`, or `@-` for what comes in.
pub fn input(text: &str) -> Result<String, Failure> {
    let read = match text.strip_prefix('@') {
        Some("-") => std::io::read_to_string(std::io::stdin()),
        Some(path) => std::fs::read_to_string(path),
        None => Ok(text.to_owned()),
    };
    let read = read.map_err(|error| Failure::usage(format!("{text}: {error}")))?;
    match serde_json::from_str::<serde::de::IgnoredAny>(&read) {
        Ok(_) => Ok(read),
        Err(error) => Err(Failure::usage(format!("the input is no JSON: {error}"))
            .hint("a plain text needs quotes of its own: --input '\"text\"'")),
    }
}

#[cfg(test)]
mod tests {
    use super::segment;

    #[test]
    fn identities_are_one_segment() {
        assert_eq!(segment("{fp:3}:ab-1"), "%7Bfp%3A3%7D%3Aab-1");
        assert_eq!(segment("a/b é"), "a%2Fb%20%C3%A9");
    }
}
