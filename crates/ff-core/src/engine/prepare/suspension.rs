//! Checks what is asked about suspensions, waitpoints and signals, and turns it into operations.

use std::collections::HashSet;
use std::time::Duration;

use uuid::Uuid;

use super::{check_count, check_duration, check_text};
use crate::backend::Handle;
use crate::condition::{ResumeCondition, check_signal_name};
use crate::contracts::{
    CreateWaitpointArgs, DeliverSignalArgs, ResumeArgs, RotateWaitpointSecretArgs, SignalEffect,
    SignalSource, SignalTarget, SuspendArgs, TokenTerms, WaitpointBinding,
};
use crate::engine_error::{EngineError, ValidationKind};
use crate::limits::{self, Limits};
use crate::operations::suspension::{
    CreateWaitpoint, DeliverSignal, KnownKeys, Resume, RotateWaitpointSecret, SeedWaitpointSecret,
    SignalAuthority, Suspend, dedup,
};
use crate::rows::{SignalKey, SignalRow, Word};
use crate::token::{Keyring, check_kid};
use crate::types::{TimestampMs, WaitpointId};

pub fn prepare_suspend(
    handle: &Handle,
    args: SuspendArgs,
    keyring: &Keyring,
) -> Result<Suspend, EngineError> {
    args.condition.check()?;
    if args.condition == ResumeCondition::TimeoutOnly && args.timeout_ms.is_none() {
        return Err(EngineError::invalid("a timeout-only condition needs a time-out"));
    }
    check_ms("the time-out of a suspension", args.timeout_ms)?;
    check_ms("the resume delay", Some(args.resume_delay_ms))?;
    let continuation = args.continuation.as_deref().unwrap_or_default();
    check_text("continuation", continuation, 0, limits::REASON_BYTES)?;
    if let Some(key) = &args.idempotency_key {
        check_text("idempotency key", key, 1, limits::IDEMPOTENCY_KEY_BYTES)?;
    }
    let bound = args.waitpoints.len();
    if bound > limits::WAITPOINTS {
        let most = limits::WAITPOINTS;
        return Err(EngineError::invalid(format!("{bound} waitpoints, the limit is {most}")));
    }
    let ids: HashSet<WaitpointId> = args.waitpoints.iter().map(WaitpointBinding::id).collect();
    if ids.len() < bound {
        return Err(EngineError::invalid("two waitpoints have the same id"));
    }
    for binding in &args.waitpoints {
        if let WaitpointBinding::Fresh { waitpoint_key, token, .. } = binding {
            check_waitpoint_key(waitpoint_key)?;
            check_terms(token.as_ref())?;
            let names = args.condition.signal_names(waitpoint_key).unwrap_or_default();
            check_names(names.len())?;
        }
    }
    for key in args.condition.waitpoint_keys() {
        check_waitpoint_key(key)?;
    }
    let (keys, nonce) = (known_keys(keyring), nonce());
    Ok(Suspend { handle: handle.clone(), args, keys, nonce })
}

pub fn prepare_create_waitpoint(
    handle: &Handle,
    args: CreateWaitpointArgs,
    keyring: &Keyring,
) -> Result<CreateWaitpoint, EngineError> {
    check_waitpoint_key(&args.waitpoint_key)?;
    check_ms("the lifetime of a waitpoint", Some(args.expires_in_ms))?;
    check_terms(args.token.as_ref())?;
    check_names(args.signal_names.len())?;
    args.signal_names.iter().try_for_each(|name| check_signal_name(name))?;
    let (keys, nonce) = (known_keys(keyring), nonce());
    Ok(CreateWaitpoint { handle: handle.clone(), args, keys, nonce })
}

/// A token is verified here, before anything is looked up.
pub fn prepare_deliver_signal(
    args: DeliverSignalArgs,
    keyring: &Keyring,
    limits: &Limits,
) -> Result<DeliverSignal, EngineError> {
    let (authority, execution, waitpoint_id, source) = match args.target {
        SignalTarget::Token(token) => {
            let verified = keyring.verify(&token)?;
            let claims = &verified.claims;
            let (execution, waitpoint_id) = (claims.execution, claims.waitpoint);
            // Its bearer may say anything of itself, by one route or another, and stays one source.
            let source = SignalSource::WaitpointToken(WaitpointId(waitpoint_id));
            (SignalAuthority::Token(verified), execution, waitpoint_id, source)
        }
        SignalTarget::Waitpoint { execution_id, waitpoint_id } => {
            let (kind, identity) = (args.source_type, args.source_identity);
            let source = SignalSource::Named { kind, identity };
            (SignalAuthority::Operator, execution_id.key(), waitpoint_id.0, source)
        }
    };
    check_signal_name(&args.signal_name)?;
    check_text("signal category", &args.signal_category, 0, limits::NAME_BYTES)?;
    let (source_type, source_identity) = (source.kind(), source.identity());
    check_text("source type", source_type, 0, limits::NAME_BYTES)?;
    check_text("source identity", &source_identity, 0, limits::NAME_BYTES)?;
    for (what, text, min) in [
        ("payload encoding", &args.payload_encoding, 0),
        ("correlation id", &args.correlation_id, 0),
        ("idempotency key", &args.idempotency_key, 1),
    ] {
        if let Some(text) = text {
            check_text(what, text, min, limits::NAME_BYTES)?;
        }
    }
    let (len, most) = (args.payload.as_ref().map_or(0, Vec::len), limits.signal_bytes);
    if len > most {
        let detail = format!("the signal's payload has {len} bytes, the limit is {most}");
        return Err(EngineError::validation(ValidationKind::PayloadTooLarge, detail));
    }
    let dedup = dedup(args.idempotency_key.as_deref(), args.signal_id.0);
    let signal = SignalRow {
        key: SignalKey { execution, waitpoint_id, dedup },
        signal_id: args.signal_id.0,
        number: 0,
        suspension: 0,
        waitpoint_key: "".into(),
        name: args.signal_name.into(),
        category: args.signal_category.into(),
        source_type: source_type.into(),
        source_identity: source_identity.into(),
        correlation_id: args.correlation_id.map(Into::into),
        payload: args.payload.map(Into::into),
        payload_encoding: args.payload_encoding.map(Into::into),
        effect: Word(SignalEffect::AppendedToWaitpoint),
        accepted_at: TimestampMs::default(),
    };
    Ok(DeliverSignal { authority, signal, keys: known_keys(keyring) })
}

pub fn prepare_resume(args: ResumeArgs) -> Result<Resume, EngineError> {
    check_text("by", &args.by, 0, limits::NAME_BYTES)?;
    check_text("reason", &args.reason, 0, limits::REASON_BYTES)?;
    check_ms("the resume delay", Some(args.delay_ms))?;
    Ok(Resume {
        execution: args.execution_id.key(),
        by: args.by.into(),
        reason: args.reason.into(),
        delay_ms: args.delay_ms,
    })
}

pub fn prepare_seed(kid: &str, keyring: &Keyring) -> Result<SeedWaitpointSecret, EngineError> {
    let (kid, check) = configured(kid, keyring)?;
    Ok(SeedWaitpointSecret { kid, check })
}

pub fn prepare_rotate(
    args: &RotateWaitpointSecretArgs,
    keyring: &Keyring,
) -> Result<RotateWaitpointSecret, EngineError> {
    check_ms("the grace of a rotation", Some(args.grace_ms))?;
    let (kid, check) = configured(&args.new_kid, keyring)?;
    Ok(RotateWaitpointSecret { kid, check, grace_ms: args.grace_ms })
}

type KnownKey = (std::sync::Arc<str>, std::sync::Arc<str>);

/// A key that this host has the secret of.
fn configured(kid: &str, keyring: &Keyring) -> Result<KnownKey, EngineError> {
    check_kid(kid)?;
    let known = keyring.checks().find(|(known, _)| &***known == kid);
    known.map(|(kid, check)| (kid.clone(), check.clone())).ok_or_else(|| {
        let detail = format!(
            "this host has no secret for the waitpoint key {kid:?}: add it to \
             `EngineConfig::waitpoint_secrets` of every host first"
        );
        EngineError::validation(ValidationKind::WaitpointSecretMissing, detail)
    })
}

pub(crate) fn known_keys(keyring: &Keyring) -> KnownKeys {
    KnownKeys(keyring.checks().map(|(kid, check)| (kid.clone(), check.clone())).collect())
}

/// Random, so that no two tokens are alike.
fn nonce() -> [u8; crate::token::NONCE_BYTES] {
    Uuid::new_v4().into_bytes()
}

fn check_ms(what: &str, ms: Option<u64>) -> Result<(), EngineError> {
    check_duration(what, ms.map(Duration::from_millis))
}

fn check_terms(terms: Option<&TokenTerms>) -> Result<(), EngineError> {
    check_ms("the lifetime of a token", terms.and_then(|terms| terms.ttl_ms))
}

fn check_waitpoint_key(key: &str) -> Result<(), EngineError> {
    check_text("waitpoint key", key, 1, limits::WAITPOINT_KEY_BYTES)
}

fn check_names(count: usize) -> Result<(), EngineError> {
    if count == 0 {
        return Ok(());
    }
    check_count("signal names of a waitpoint", count, limits::SIGNAL_NAMES)
}
