//! The `Host` of requests, and heads that two readers could understand differently.

use ff_server::{Auth, Config};
use serde_json::json;

use crate::client::{Client, parse};
use crate::server::{Server, config};

async fn status(client: &Client, request: &str) -> u16 {
    let answer = client.raw(request.as_bytes()).await;
    parse(&answer).unwrap_or_else(|| panic!("{request}: {answer:?}")).status
}

#[tokio::test]
async fn a_head_that_can_be_read_in_two_ways_is_refused() {
    let server = Server::start().await;
    let client = &server.client;
    let end = "connection: close\r\n\r\n";
    for bad in [
        "GET /livez HTTP/1.1\r\n",
        "GET /nowhere HTTP/1.1\r\n",
        "GET /livez HTTP/1.1\r\nhost: a\r\nhost: a\r\n",
        "GET /livez HTTP/1.1\r\nhost: a\r\nhost: b\r\n",
        "GET /livez HTTP/1.1\r\nhost: a b\r\n",
        "GET /livez HTTP/1.1\nhost: a\r\n",
        "GET /livez HTTP/1.1\r\nhost: a\nx: y\r\n",
        "\nGET /livez HTTP/1.1\r\nhost: a\r\n",
    ] {
        assert_eq!(status(client, &format!("{bad}{end}")).await, 400, "{bad:?}");
    }
    assert_eq!(
        status(client, "GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\n\n").await,
        400
    );
    assert_eq!(status(client, &format!("GET /livez HTTP/1.1\r\nhost: a\r\n{end}")).await, 200);
    // Load balancers ask so.
    assert_eq!(status(client, "GET /livez HTTP/1.0\r\n\r\n").await, 200);
    // A second request on the same connection is looked at, too.
    let first = "POST /v1/executions HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n\n\n";
    let twice = format!("{first}GET /livez HTTP/1.1\r\nhost: a\n{end}");
    let answer = String::from_utf8(client.raw(twice.as_bytes()).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    assert!(!answer.contains("HTTP/1.1 200"), "{answer}");
    server.stop().await;
}

/// A page whose name was made to resolve to this machine sends its own name as the host.
#[tokio::test]
async fn a_server_without_tokens_answers_to_its_own_names_alone() {
    let without = Config { auth: Auth::None, root_token: None, ..config() };
    let server = Server::start_with(without.clone()).await;
    let mint = |host: &str| {
        let body = json!({ "name": host, "scopes": ["admin"], "namespaces": ["*"] }).to_string();
        format!(
            "POST /v1/tokens HTTP/1.1\r\nhost: {host}\r\norigin: http://{host}\r\n\
             content-type: application/json\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let port = server.client.address.port();
    let answer = server.client.raw(mint(&format!("evil.example:{port}")).as_bytes()).await;
    let problem = parse(&answer).unwrap().refused(403, "host_not_allowed");
    assert!(problem["detail"].as_str().unwrap().contains("allowed_hosts"), "{problem}");
    let nameless = "GET /v1/executions HTTP/1.0\r\n\r\n";
    assert_eq!(status(&server.client, nameless).await, 403);
    for host in [format!("localhost:{port}"), format!("127.0.0.1:{port}"), "[::1]".to_owned()] {
        assert_eq!(status(&server.client, &mint(&host)).await, 201, "{host}");
    }
    server.stop().await;
    let named = Config { allowed_hosts: Some("flows.example".to_owned()), ..without };
    let server = Server::start_with(named).await;
    assert_eq!(status(&server.client, &mint("flows.example")).await, 201);
    assert_eq!(status(&server.client, &mint("evil.example")).await, 403);
    server.stop().await;
    // With tokens a name proves nothing and harms nothing.
    let server = Server::start().await;
    let request = format!(
        "GET /version HTTP/1.1\r\nhost: flows.example\r\nauthorization: Bearer {}\r\n\
         connection: close\r\n\r\n",
        crate::server::ROOT
    );
    assert_eq!(status(&server.client, &request).await, 200);
    server.stop().await;
}
