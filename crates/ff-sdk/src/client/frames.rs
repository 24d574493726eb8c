//! Hears what an execution says while it runs.

use std::collections::VecDeque;
use std::time::Duration;

use ff_core::contracts::{Frame, ReadStreamArgs, StreamCursor};
use ff_core::types::ExecutionId;

use super::Client;
use crate::error::Error;

/// How long one request waits for something to be said.
const WAIT_MS: u64 = 20_000;
/// How soon an execution that will be tried again is looked at for its next attempt.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The frames of an execution, of one attempt after the other.
pub struct Frames {
    client: Client,
    next: ReadStreamArgs,
    read: VecDeque<Frame>,
    /// The attempt whose end has been heard.
    heard: Option<u32>,
    ended: bool,
}

impl Client {
    /// Follows what an execution says, from its current attempt on until it has ended.
    pub fn follow(&self, id: &ExecutionId) -> Frames {
        let next = ReadStreamArgs { wait_ms: WAIT_MS, ..ReadStreamArgs::new(id.clone()) };
        Frames { client: self.clone(), next, read: VecDeque::new(), heard: None, ended: false }
    }
}

impl Frames {
    /// The next frame; waits for it. `None` once the execution has ended and all is told.
    pub async fn next(&mut self) -> Result<Option<Frame>, Error> {
        loop {
            if let Some(frame) = self.read.pop_front() {
                return Ok(Some(frame));
            }
            if self.ended {
                return Ok(None);
            }
            self.read_page().await?;
        }
    }

    async fn read_page(&mut self) -> Result<(), Error> {
        let transport = self.client.transport.clone();
        let page = transport.read_stream(self.next.clone()).await?;
        if self.heard != Some(page.attempt_index) {
            self.read.extend(page.frames);
            self.next.attempt_index = Some(page.attempt_index);
            self.next.from = page.next;
        }
        if let Some(end) = page.closed {
            self.heard = Some(page.attempt_index);
            // Whichever attempt comes next is heard from its start.
            self.next.attempt_index = end.next_attempt;
            self.next.from = StreamCursor::Start;
            if end.next_attempt.is_none() {
                let id = &self.next.execution_id;
                self.ended = transport.wait_finished(id, LOOK_AGAIN).await?.is_some();
            }
        }
        Ok(())
    }
}
