//! Reads server-sent events out of bytes that come in pieces of any size.

use serde_json::Value;

/// More than this without an end is no stream of events.
const LONGEST: usize = 64 * 1024 * 1024;

/// What has come and does not make a whole block yet.
#[derive(Default)]
pub struct Blocks(Vec<u8>);

impl Blocks {
    /// Takes the next piece; says no if it makes no sense any more.
    pub fn feed(&mut self, piece: &[u8]) -> bool {
        self.0.extend_from_slice(piece);
        self.0.len() <= LONGEST
    }

    /// The data of the next message that is there as a whole. Comments and pings have none.
    pub fn next(&mut self) -> Option<Value> {
        loop {
            let end = self.0.windows(2).position(|pair| pair == b"\n\n")?;
            let block: Vec<u8> = self.0.drain(..end + 2).collect();
            // A character may have come in two pieces, and is whole by now.
            if let Some(message) = message(&String::from_utf8_lossy(&block)) {
                return Some(message);
            }
        }
    }
}

/// The data of one block.
fn message(block: &str) -> Option<Value> {
    let data: Vec<&str> =
        block.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim_start).collect();
    serde_json::from_str(&data.join("\n")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_with_data_are_messages() {
        let mut blocks = Blocks::default();
        assert!(blocks.feed(b": ping\n\nid: 7\nevent: completed\ndata: {\"a\":\ndata: 1}\n\nid"));
        assert_eq!(blocks.next().unwrap()["a"].as_i64(), Some(1));
        assert!(blocks.next().is_none());
    }

    #[test]
    fn characters_may_come_in_pieces() {
        let text = "id: 1\ndata: {\"name\":\"Grüße 🚀 東京\"}\n\n";
        for size in 1..8 {
            let mut blocks = Blocks::default();
            let mut found = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                assert!(blocks.feed(piece));
                found.extend(blocks.next());
            }
            assert_eq!(found.len(), 1, "in pieces of {size}");
            assert_eq!(found[0]["name"], "Grüße 🚀 東京", "in pieces of {size}");
        }
    }
}
