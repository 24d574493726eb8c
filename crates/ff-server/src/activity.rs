//! When a connection last moved, so that one that stands still can be ended.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// When a connection last moved a byte, and how many of its requests are in hand.
pub struct Activity {
    since: Instant,
    moved_ms: AtomicU64,
    in_hand: AtomicUsize,
}

pub struct Handling(Arc<Activity>);

impl Activity {
    pub fn new() -> Self {
        let (moved_ms, in_hand) = (AtomicU64::new(0), AtomicUsize::new(0));
        Self { since: Instant::now(), moved_ms, in_hand }
    }

    fn moved(&self) {
        let ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved_ms.store(ms, Ordering::Relaxed);
    }

    pub fn handling(self: Arc<Self>) -> Handling {
        self.in_hand.fetch_add(1, Ordering::Relaxed);
        Handling(self)
    }

    /// Returns when nothing has moved for so long although no handler is at work. A handler has a
    /// time limit of its own.
    pub async fn stands_still(&self, idle: Duration) {
        loop {
            let moved = Duration::from_millis(self.moved_ms.load(Ordering::Relaxed));
            let still = self.since.elapsed().saturating_sub(moved);
            let busy = self.in_hand.load(Ordering::Relaxed) > 0;
            if !busy && still >= idle {
                return;
            }
            let rest = if busy { idle } else { idle - still };
            tokio::time::sleep(rest.max(Duration::from_millis(10))).await;
        }
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        self.0.moved();
        self.0.in_hand.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that notes when it moves.
pub struct Watched {
    pub stream: TcpStream,
    pub activity: Arc<Activity>,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if polled.is_ready() {
            self.activity.moved();
        }
        polled
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        if polled.is_ready() {
            self.activity.moved();
        }
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        if polled.is_ready() {
            self.activity.moved();
        }
        polled
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
