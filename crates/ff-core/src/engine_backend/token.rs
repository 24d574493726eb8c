//! API tokens. A caller that sees one namespace keeps the tokens that are good there alone.

use async_trait::async_trait;
use uuid::Uuid;

use super::{EngineBackend, check_unscoped};
use crate::contracts::{CreateTokenArgs, Listed, StoredToken};
use crate::engine::{check_count, check_duration, check_text};
use crate::engine_error::EngineError;
use crate::limits;
use crate::operations::token::{CreateToken, RevokeToken, TouchToken, belongs_to};
use crate::rows::{Record, TokenKey, TokenRow, values};
use crate::store::{Query, Scan};
use crate::views;

#[async_trait]
pub trait TokenOperations: EngineBackend {
    async fn create_token(&self, args: CreateTokenArgs) -> Result<StoredToken, EngineError> {
        if !belongs_to(&args.namespaces, self.scope()) {
            return Err(EngineError::invalid("the token must be for this namespace alone"));
        }
        check_text("token name", &args.name, 1, limits::NAME_BYTES)?;
        if args.name.chars().any(char::is_control) {
            return Err(EngineError::invalid("the token name contains a control character"));
        }
        check_text("creator", &args.created_by, 0, limits::NAME_BYTES)?;
        check_count("scopes", args.scopes.len(), limits::TOKEN_WORDS)?;
        check_count("namespaces", args.namespaces.len(), limits::TOKEN_WORDS)?;
        for word in args.scopes.iter().chain(&args.namespaces) {
            check_text("scope or namespace", word, 1, limits::NAME_BYTES)?;
        }
        check_duration("the token's lifetime", args.expires_in)?;
        let operation = CreateToken {
            key: token_key(&args.hash),
            hash: args.hash.as_slice().into(),
            name: args.name.into(),
            scopes: args.scopes,
            namespaces: args.namespaces,
            created_by: args.created_by.into(),
            expires_in: args.expires_in,
        };
        self.engine().run_as(self.caller(), operation).await
    }

    /// The token with this hash, good or not.
    async fn find_token(&self, hash: &[u8; 32]) -> Result<Option<StoredToken>, EngineError> {
        check_unscoped(self.scope(), "find_token")?;
        let keys = vec![TokenRow::erase_key(&token_key(hash))];
        let rows = self.engine().query(Query::Records { keys, scans: Vec::new() }).await?;
        let rows = rows.records::<TokenRow>().map_err(|error| self.engine().store_error(error))?;
        let found = rows.first().filter(|row| *row.hash == hash[..]);
        Ok(found.map(views::token))
    }

    /// Tokens in the order of their ids, after one of them.
    async fn list_tokens(
        &self,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Listed<StoredToken>, EngineError> {
        check_count("tokens", limit, limits::PAGE)?;
        let (mut after, mut found) = (after, Listed::default());
        loop {
            let scan = Scan::of::<TokenRow>(Vec::new()).limit(limits::PAGE);
            let scan = match after {
                Some(after) => scan.after(values![after]),
                None => scan,
            };
            let read = super::scan::find::<TokenRow>(self.engine(), scan).await?;
            // Whose they are cannot be told.
            let unreadable = read.unreadable.into_iter().filter(|_| self.scope().is_none());
            found.unreadable.extend(unreadable);
            let rows = read.records;
            let own = rows.iter().filter(|row| belongs_to(&row.namespaces.0, self.scope()));
            found.items.extend(own.take(limit - found.items.len()).map(views::token));
            if found.len() == limit || rows.len() < limits::PAGE {
                return Ok(found);
            }
            after = rows.last().map(|row| row.key.id);
        }
    }

    async fn revoke_token(&self, token_id: Uuid, by: &str) -> Result<StoredToken, EngineError> {
        check_text("by", by, 0, limits::NAME_BYTES)?;
        let (key, within) = (TokenKey { id: token_id }, self.scope().cloned());
        let operation = RevokeToken { key, by: by.into(), within };
        self.engine().run_as(self.caller(), operation).await
    }

    /// Notes that the token was used.
    async fn touch_token(&self, token_id: Uuid) -> Result<(), EngineError> {
        check_unscoped(self.scope(), "touch_token")?;
        self.engine().run(None, TouchToken { key: TokenKey { id: token_id } }).await
    }
}

impl<B: EngineBackend + ?Sized> TokenOperations for B {}

/// A token's id is half of its hash, so that it is found by its key; the other half is compared.
fn token_key(hash: &[u8; 32]) -> TokenKey {
    let mut id = [0; 16];
    id.copy_from_slice(&hash[..16]);
    TokenKey { id: Uuid::from_bytes(id) }
}
