//! Starting other work from a handler.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Ctx;
use crate::client::Run;
use crate::failure::Outcome;
use crate::task::Task;

impl Ctx {
    /// Starts another task, once under a name: a handler that begins again is given the same run.
    /// Nothing ties the two together; whoever waits for its result holds a slot meanwhile.
    pub async fn spawn<I, O>(
        &self,
        name: impl AsRef<str>,
        task: Task<I, O>,
        input: &I,
    ) -> Outcome<Run<O>>
    where
        I: Serialize,
        O: DeserializeOwned + 'static,
    {
        let name = name.as_ref();
        // The key covers a crash between the start and its record.
        let key = format!("{}/{name}", self.id());
        let start = self.client().start(task, input).idempotency_key(key);
        let id = self.step(name, || async { Ok(start.await?.id().clone()) }).await?;
        Ok(self.client().run(id))
    }
}
