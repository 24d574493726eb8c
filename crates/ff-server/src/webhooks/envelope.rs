//! What a receiver is sent: a CloudEvent, signed as Standard Webhooks says.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ff_core::contracts::Event;
use ff_core::types::TimestampMs;
use hmac::{Hmac, Mac};
use serde::Serialize;
use sha2::Sha256;

/// CloudEvents 1.0 in its structured form.
#[derive(Serialize)]
struct CloudEvent<'e> {
    specversion: &'static str,
    id: &'e str,
    source: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    time: TimestampMs,
    datacontenttype: &'static str,
    data: &'e Event,
}

pub fn body(id: &str, event: &Event) -> Vec<u8> {
    let log = id.split('-').next().unwrap_or_default();
    let (noun, subject) = match (&event.execution_id, &event.flow_id) {
        (Some(execution), _) => ("execution", Some(execution.as_str().to_owned())),
        (None, Some(flow)) => ("flow", Some(flow.to_string())),
        (None, None) => ("system", None),
    };
    let cloud_event = CloudEvent {
        specversion: "1.0",
        id,
        source: format!("urn:flowfabric:log:{log}"),
        kind: format!("dev.flowfabric.{noun}.{}.v1", event.event_type.as_str()),
        subject,
        time: event.at,
        datacontenttype: "application/json",
        data: event,
    };
    serde_json::to_vec(&cloud_event).unwrap_or_default()
}

/// One signature for each secret, so that a receiver can take over another one in its own time.
pub fn signature(secrets: &[Vec<u8>], id: &str, timestamp: i64, body: &[u8]) -> String {
    let mut signatures = String::new();
    for secret in secrets {
        // Keys of every length go.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { continue };
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        let space = if signatures.is_empty() { "" } else { " " };
        let signed = STANDARD.encode(mac.finalize().into_bytes());
        let _ = write!(signatures, "{space}v1,{signed}");
    }
    signatures
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification.
    #[test]
    fn signatures_are_those_of_the_specification() {
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let body = br#"{"test": 2432232314}"#;
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let signed = signature(std::slice::from_ref(&secret), id, 1_614_265_330, body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        let both = signature(&[secret.clone(), secret], id, 1_614_265_330, body);
        assert_eq!(both, format!("{signed} {signed}"));
    }
}
