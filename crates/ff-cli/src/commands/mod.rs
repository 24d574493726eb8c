//! One file for each word after `flowfabric`.

pub mod bench;
pub mod budget;
pub mod bulk;
pub mod config;
pub mod dev;
pub mod doctor;
mod doctor_server;
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

use serde_json::{Value, json};

use crate::client::Client;
use crate::failure::Failure;
use crate::output::Output;

/// As many as the server puts on one page.
const PAGE: usize = 1000;

/// What a command that asks the server has at hand.
pub struct Session {
    pub client: Client,
    pub output: Output,
}

/// All things of one kind, page by page, under the name that they have in the answers.
pub async fn all(
    client: &Client,
    path: &str,
    name: &str,
    query: &[(&'static str, String)],
) -> Result<Value, Failure> {
    let (mut found, mut place) = (Vec::new(), None);
    loop {
        let mut query = query.to_vec();
        query.push(("limit", PAGE.to_string()));
        query.extend(place.take());
        let mut page = client.get(path, &query).await?;
        if let Value::Array(items) = page[name].take() {
            found.extend(items);
        }
        for (next, again) in [("next_after", "after"), ("next_cursor", "cursor")] {
            let at = match &page[next] {
                Value::String(at) => Some(at.clone()),
                Value::Number(at) => Some(at.to_string()),
                _ => None,
            };
            place = place.or_else(|| at.map(|at| (again, at)));
        }
        if place.is_none() {
            return Ok(json!({ name: found }));
        }
    }
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers each request with what is on the page that it asks for.
    async fn pages(page: fn(&str) -> Value) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut request = [0; 2048];
                let read = socket.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..read]).into_owned();
                let body = page(request.lines().next().unwrap_or_default()).to_string();
                let head = format!("content-length: {}\r\nconnection: close", body.len());
                let answer = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}");
                socket.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        format!("http://{address}")
    }

    #[tokio::test]
    async fn every_page_is_read() {
        let url = pages(|request| match request {
            _ if !request.contains("limit=1000") || !request.contains("lane=a") => json!({}),
            _ if request.contains("after=b") => json!({ "things": [3] }),
            _ => json!({ "things": [1, 2], "next_after": "b" }),
        });
        let client = Client::new(&url.await, None, None).unwrap();
        let query = [("lane", "a".to_owned())];
        let found = all(&client, "/v1/things", "things", &query).await.unwrap();
        assert_eq!(found, json!({ "things": [1, 2, 3] }));
        let url = pages(|request| match request.contains("cursor=x%2By") {
            true => json!({ "things": [2] }),
            false => json!({ "things": [1], "next_cursor": "x+y" }),
        });
        let client = Client::new(&url.await, None, None).unwrap();
        let found = all(&client, "/v1/things", "things", &[]).await.unwrap();
        assert_eq!(found, json!({ "things": [1, 2] }));
        let url = pages(|request| match request.contains("after=7") {
            true => json!({ "things": [2], "next_after": null }),
            false => json!({ "things": [1], "next_after": 7 }),
        });
        let client = Client::new(&url.await, None, None).unwrap();
        let found = all(&client, "/v1/things", "things", &[]).await.unwrap();
        assert_eq!(found, json!({ "things": [1, 2] }));
    }

    #[test]
    fn identities_are_one_segment() {
        assert_eq!(segment("{fp:3}:ab-1"), "%7Bfp%3A3%7D%3Aab-1");
        assert_eq!(segment("a/b é"), "a%2Fb%20%C3%A9");
    }
}
