//! What a handler says while it runs, for whoever follows it.

use ff_core::contracts::{AppendFramesArgs, FrameInput};
use uuid::Uuid;

use super::Ctx;
use crate::error::Error;

/// The type of frames that [`Ctx::log`] writes.
pub const LOG: &str = "log";

impl Ctx {
    /// Says something under a word of the handler's own, such as `token`. Frames of an attempt
    /// are kept in their order; `client.follow` hears them as they come.
    pub async fn stream(
        &self,
        frame_type: impl Into<String>,
        payload: impl Into<Vec<u8>>,
    ) -> Result<(), Error> {
        self.append(vec![FrameInput::new(frame_type, payload)]).await
    }

    /// A line for people.
    pub async fn log(&self, line: impl Into<String>) -> Result<(), Error> {
        self.append(vec![FrameInput::new(LOG, line.into().into_bytes())]).await
    }

    /// Says several things at once. A call that had to be repeated is heard once.
    pub async fn append(&self, frames: Vec<FrameInput>) -> Result<(), Error> {
        let args = AppendFramesArgs { frames, append_id: Some(Uuid::now_v7()) };
        let transport = self.inner.client.transport();
        self.insist(|| transport.append_frames(self.handle(), args.clone())).await
    }
}
