//! Base64 for URLs, without padding. Every text that it reads is the only text for its bytes, so
//! that no changed token reads as the same one.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut group = [0; 4];
        group[1..=chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes(group);
        for place in 0..=chunk.len() {
            let six = (bits >> (18 - 6 * place)) & 63;
            text.push(char::from(ALPHABET[six as usize]));
        }
    }
    text
}

pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for chunk in text.as_bytes().chunks(4) {
        if chunk.len() == 1 {
            return None;
        }
        let mut bits = 0_u32;
        for place in 0..4 {
            let six = match chunk.get(place) {
                Some(letter) => value(*letter)?,
                None => 0,
            };
            bits = bits << 6 | six;
        }
        let group = bits.to_be_bytes();
        let (used, rest) = group[1..].split_at(chunk.len() - 1);
        // Bits that belong to no byte could be anything, and then two texts would mean the same.
        if rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(used);
    }
    Some(bytes)
}

fn value(letter: u8) -> Option<u32> {
    Some(u32::from(match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'-' => 62,
        b'_' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_texts() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg"),
            (b"fo", "Zm8"),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg"),
            (&[0xfb, 0xff], "-_8"),
        ] {
            assert_eq!(encode(bytes), text);
            assert_eq!(decode(text).as_deref(), Some(bytes));
        }
    }

    #[test]
    fn every_accepted_text_is_the_only_one() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let len = rng.usize(0..9);
            let text: String = (0..len).map(|_| rng.char(' '..='~')).collect();
            if let Some(bytes) = decode(&text) {
                assert_eq!(encode(&bytes), text);
            }
        }
        for bad in ["Z", "Zh", "Zm9", "Zg==", "Zm+v", "Zm9v Zm9v", "Zü"] {
            assert_eq!(decode(bad), None, "{bad:?} was read");
        }
    }
}
