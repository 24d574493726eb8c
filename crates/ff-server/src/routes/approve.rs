//! The page behind a waitpoint's link: a person reads what is asked and decides. Opening the page
//! changes nothing, so whatever follows links by itself does no harm.

use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ff_api::Scope;
use ff_core::contracts::{DeliverSignalArgs, SignalOutcome, SignalTarget};
use ff_core::engine_backend::SuspensionOperations;
use ff_core::token::WaitpointToken;
use sha2::{Digest, Sha256};

use crate::call::{Answer, Call};
use crate::refusal::{Answered, Refusal};
use crate::route::{Access, Nothing, Reach, Route};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:4rem auto;\
    padding:0 1rem;color:#1b1b1f;background:#fff}h1{font-size:1.4rem}dt{color:#5b5b66}\
    dd{margin:0 0 .6rem;overflow-wrap:anywhere}form{display:inline}button{font:inherit;\
    padding:.5rem 1.2rem;margin:1rem .6rem 0 0;border:1px solid #5b5b66;border-radius:.4rem;\
    background:#f4f4f7;cursor:pointer}@media(prefers-color-scheme:dark){body{color:#e6e6ea;\
    background:#17171a}button{background:#26262b;color:inherit}dt{color:#a3a3ad}}";
const CSP: HeaderName = header::CONTENT_SECURITY_POLICY;
/// What a person may say where the waitpoint takes any signal.
const ANSWERS: [&str; 2] = ["approve", "reject"];

pub fn routes() -> Vec<Route> {
    vec![
        Route::new(
            (Method::GET, "/approve/{token}"),
            ("approve_page", "The page behind a waitpoint's link."),
            Scope::Signal,
            page,
        )
        .access(Access::Waitpoint)
        .reach(Reach::Nothing)
        .content("text/html"),
        Route::new(
            (Method::POST, "/approve/{token}/{signal_name}"),
            ("approve", "What the page's buttons do: signals the waitpoint once."),
            Scope::Signal,
            decide,
        )
        .access(Access::Waitpoint)
        .reach(Reach::Nothing)
        .remembered_by_engine()
        .content("text/html"),
    ]
}

async fn page(call: Call<Nothing, Nothing>) -> Answered<Answer<Nothing>> {
    match question(&call).await {
        Ok(html) => Ok(shown(StatusCode::OK, &html)),
        Err(refusal) => Ok(sorry(&refusal)),
    }
}

async fn decide(call: Call<Nothing, Nothing>) -> Answered<Answer<Nothing>> {
    let name = call.param("signal_name").to_owned();
    let token = WaitpointToken::new(call.param("token"));
    let args = DeliverSignalArgs::new(SignalTarget::Token(token), name.clone())
        // Whoever decides first has decided, however often the buttons are pressed.
        .idempotency_key("waitpoint_link");
    let html = match call.door.backend().deliver_signal(args).await {
        Ok(SignalOutcome::Accepted { .. }) => {
            format!("<h1>Thank you</h1><p>Your answer is <b>{}</b>.</p>", escaped(&name))
        }
        Ok(SignalOutcome::Duplicate { .. }) => {
            "<h1>Already answered</h1><p>The first answer counts.</p>".to_owned()
        }
        Err(error) => return Ok(sorry(&error.into())),
    };
    Ok(shown(StatusCode::OK, &html))
}

async fn question(call: &Call<Nothing, Nothing>) -> Answered<String> {
    let text = call.param("token");
    let question = call.door.backend().read_question(&WaitpointToken::new(text)).await?;
    if !question.is_open {
        return Ok("<h1>Nothing to decide</h1><p>This question is closed.</p>".to_owned());
    }
    let waitpoint = question.waitpoint;
    let names: Vec<String> = match waitpoint.signal_names.is_empty() {
        true => ANSWERS.map(str::to_owned).into(),
        false => waitpoint.signal_names,
    };
    let button = |name: &String| {
        let (place, shown) = (in_path(name), escaped(name));
        let token = escaped(text);
        format!(
            "<form method=\"post\" action=\"/approve/{token}/{place}\">\
             <button type=\"submit\">{shown}</button></form>"
        )
    };
    let buttons: String = names.iter().map(button).collect();
    Ok(format!(
        "<h1>{}</h1><dl><dt>Asked by</dt><dd>{}</dd><dt>Execution</dt><dd>{}</dd>\
         <dt>Since</dt><dd>{}</dd></dl>{buttons}",
        escaped(&waitpoint.waitpoint_key),
        escaped(&question.execution_kind),
        escaped(waitpoint.execution_id.as_str()),
        waitpoint.created_at.to_rfc3339(),
    ))
}

fn sorry(refusal: &Refusal) -> Answer<Nothing> {
    let html = format!("<h1>Sorry</h1><p>{}</p>", escaped(&refusal.detail));
    shown(refusal.status, &html)
}

fn shown(status: StatusCode, html: &str) -> Answer<Nothing> {
    let page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>FlowFabric</title>\
         <style>{STYLE}</style></head><body>{html}</body></html>"
    );
    let style = STANDARD.encode(Sha256::digest(STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{style}'; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'"
    );
    let answer = Answer::text("text/html; charset=utf-8", page).status(status);
    match HeaderValue::from_str(&policy) {
        Ok(policy) => answer.header(CSP, policy),
        Err(_) => answer,
    }
}

fn escaped(text: &str) -> String {
    let escape = |c: char| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        '\'' => "&#39;".to_owned(),
        other => other.to_string(),
    };
    text.chars().map(escape).collect()
}

fn in_path(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}
