//! Notes that a token was used, to the minute, so that use costs no write of its own.

use crate::engine_error::EngineError;
use crate::operations::Operation;
use crate::rows::{TokenKey, TokenRow};
use crate::store::{Change, Needs, World};

#[derive(Debug)]
pub struct TouchToken {
    pub key: TokenKey,
}

const MINUTE_MS: u64 = 60_000;

impl Operation for TouchToken {
    type Reply = ();

    const NAME: &'static str = "touch_token";

    fn needs(&self, needs: &mut Needs) {
        needs.record::<TokenRow>(&self.key);
    }

    fn decide(&self, world: &World) -> Result<((), Change), EngineError> {
        let mut change = Change::default();
        let fresh = |row: &TokenRow| {
            row.last_used_at.is_some_and(|used| used.after_ms(MINUTE_MS) > world.now)
        };
        if let Some(row) = world.record::<TokenRow>(&self.key).filter(|row| !fresh(row)) {
            change.update(&TokenRow { last_used_at: Some(world.now), ..row });
        }
        Ok(((), change))
    }
}
