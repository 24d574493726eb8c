//! Refuses a line feed without a carriage return in the head of a request. The parser of HTTP takes
//! it for the end of a line, a proxy in front may not, and then both see different requests.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection whose heads are looked at as they arrive. Where bodies end is followed only to know
/// where the next head begins; what a request is, is decided by the parser behind this.
pub struct Heads<S> {
    stream: S,
    scan: Scan,
}

#[derive(Default)]
struct Scan {
    place: Place,
    /// The current line, as far as it can matter.
    line: Vec<u8>,
    last: u8,
    /// Whether the head has had its first line.
    begun: bool,
    chunked: bool,
    length: u64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Head,
    Body(u64),
    ChunkSize,
    Chunk(u64),
    Trailer,
    /// What follows does not matter: the connection will be closed.
    Refused,
}

/// Enough for the two headers that say where a body ends, and for the size of a chunk.
const LINE: usize = 128;
/// What the parser is given in place of a bare line feed. No head may contain it, so the answer is
/// 400 and the connection is closed.
const FORBIDDEN: u8 = 0;

impl<S> Heads<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, scan: Scan::default() }
    }
}

impl Scan {
    fn feed(&mut self, bytes: &mut [u8]) {
        let mut at = 0;
        while at < bytes.len() {
            match self.place {
                Place::Refused => return,
                Place::Body(left) | Place::Chunk(left) => {
                    let here = left.min((bytes.len() - at) as u64);
                    at += here as usize;
                    self.passed(left - here);
                }
                Place::Head | Place::ChunkSize | Place::Trailer => {
                    self.byte(&mut bytes[at]);
                    at += 1;
                }
            }
        }
    }

    /// So much of a body or a chunk is still to come.
    fn passed(&mut self, left: u64) {
        self.place = match (self.place, left) {
            (Place::Body(_), 0) => Place::Head,
            (Place::Body(_), left) => Place::Body(left),
            (_, 0) => Place::ChunkSize,
            (_, left) => Place::Chunk(left),
        };
    }

    fn byte(&mut self, byte: &mut u8) {
        let bare = *byte == b'\n' && self.last != b'\r';
        self.last = *byte;
        if bare {
            *byte = FORBIDDEN;
            self.place = Place::Refused;
        } else if *byte == b'\n' {
            self.line_ends();
            self.line.clear();
            self.last = 0;
        } else if self.line.len() < LINE && *byte != b'\r' {
            self.line.push(byte.to_ascii_lowercase());
        }
    }

    fn line_ends(&mut self) {
        match self.place {
            Place::Head if self.line.is_empty() && self.begun => {
                self.place = match (self.chunked, self.length) {
                    (true, _) => Place::ChunkSize,
                    (false, 0) => Place::Head,
                    (false, length) => Place::Body(length),
                };
                (self.begun, self.chunked, self.length) = (false, false, 0);
            }
            Place::Head if !self.line.is_empty() => self.header(),
            Place::ChunkSize => {
                let digits = self.line.iter().take_while(|byte| byte.is_ascii_hexdigit());
                let digits: String = digits.map(|byte| char::from(*byte)).collect();
                self.place = match u64::from_str_radix(&digits, 16) {
                    Ok(0) => Place::Trailer,
                    // The end of the line behind a chunk belongs to it.
                    Ok(size) => Place::Chunk(size.saturating_add(2)),
                    // The parser refuses it, too.
                    Err(_) => Place::Refused,
                };
            }
            Place::Trailer if self.line.is_empty() => self.place = Place::Head,
            _ => {}
        }
    }

    fn header(&mut self) {
        self.begun = true;
        if let Some(value) = self.line.strip_prefix(b"content-length:") {
            let value = std::str::from_utf8(value).unwrap_or_default();
            self.length = value.trim().parse().unwrap_or_default();
        } else if let Some(value) = self.line.strip_prefix(b"transfer-encoding:") {
            self.chunked = value.trim_ascii().ends_with(b"chunked");
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Heads<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if polled.is_ready() {
            self.scan.feed(&mut buf.filled_mut()[before..]);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heads<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the bytes pass, however they are cut into pieces.
    fn passes(bytes: &[u8]) -> bool {
        let verdicts: Vec<bool> = [1, 3, 7, bytes.len()]
            .map(|size| {
                let (mut scan, mut seen) = (Scan::default(), Vec::new());
                for piece in bytes.chunks(size) {
                    let mut piece = piece.to_vec();
                    scan.feed(&mut piece);
                    seen.extend(piece);
                }
                seen == bytes
            })
            .into();
        assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]), "{verdicts:?}");
        verdicts[0]
    }

    #[test]
    fn bare_line_feeds_are_refused_in_heads_alone() {
        let next = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
        let length = "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n\n\n\n";
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
            2;x=y\r\n\n\n\r\n0\r\ntrailer: x\r\n\r\n";
        for body in ["", length, chunked] {
            assert!(passes(format!("{body}{next}").as_bytes()), "{body}");
            assert!(passes(format!("{body}\r\n{next}").as_bytes()), "{body}");
            for bad in ["GET / HTTP/1.1\n\n", "\nGET", "GET / HTTP/1.1\r\nhost: x\n\r\n"] {
                assert!(!passes(format!("{body}{bad}").as_bytes()), "{body}{bad}");
                assert!(!passes(format!("{body}{next}{bad}").as_bytes()), "{body}{bad}");
            }
        }
        assert!(!passes(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\r\n"));
    }
}
