//! Tokens: made, shown once, used, revoked.

use ff_server::{Config, root_token};
use serde_json::json;

use crate::server::{Server, config};

#[tokio::test]
async fn a_token_is_shown_once_and_stored_as_a_hash() {
    let server = Server::start().await;
    let body = json!({ "name": "ci", "scopes": ["submit", "read"], "namespaces": ["a", "b"] });
    let made = server.client.post("/v1/tokens", body).await.expect(201);
    let token = made["token"].as_str().unwrap();
    assert!(token.starts_with("ff_") && token.len() == 46, "{token}");
    assert_eq!(made["created_by"], "root");
    let list = server.client.get("/v1/tokens").await.expect(200);
    assert_eq!(list["tokens"].as_array().unwrap().len(), 1);
    assert!(!list.to_string().contains(token) && !list.to_string().contains("hash"));
    let user = server.client.with(Some(token));
    let work = json!({ "lane_id": "l", "execution_kind": "k" });
    user.post("/v1/executions?namespace=a", work.clone()).await.expect(201);
    let outcome = user.post("/v1/executions?namespace=b", work.clone()).await.expect(201);
    user.post("/v1/executions?namespace=c", work.clone()).await.refused(403, "forbidden");
    user.post("/v1/executions", work).await.refused(403, "forbidden");
    let id = outcome["execution_id"].as_str().unwrap();
    let path = format!("{}?namespace=b", crate::server::at(id));
    assert_eq!(user.get(&path).await.expect(200)["creator_identity"], "ci");
    let events = server.client.get("/v1/events?namespace=*&event_types=token_created").await;
    let events = events.expect(200);
    assert_eq!(events["events"][0]["details"]["name"], "ci");
    assert!(!events.to_string().contains(token));
    let stored = server.stored_bytes();
    assert!(!stored.windows(token.len()).any(|window| window == token.as_bytes()));
    server.stop().await;
}

#[tokio::test]
async fn tokens_that_make_no_sense_are_refused() {
    let server = Server::start().await;
    for body in [
        json!({ "name": "x", "scopes": [], "namespaces": ["a"] }),
        json!({ "name": "x", "scopes": ["read"], "namespaces": [] }),
        json!({ "name": "x", "scopes": ["read"], "namespaces": ["a", "*"] }),
        json!({ "name": "x", "scopes": ["all"], "namespaces": ["a"] }),
        json!({ "name": "", "scopes": ["read"], "namespaces": ["a"] }),
        json!({ "name": "x", "scopes": ["read"], "namespaces": ["a"], "expires_in": "soon" }),
        json!({ "name": "x", "scopes": ["read"], "namespaces": ["a"], "token": "ff_mine" }),
    ] {
        server.client.post("/v1/tokens", body).await.refused(400, "invalid_input");
    }
    let list = server.client.get("/v1/tokens").await.expect(200);
    assert_eq!(list, json!({ "tokens": [], "next_after": null }));
    server.stop().await;
}

#[tokio::test]
async fn a_revoked_token_ends_at_once() {
    let server = Server::start().await;
    let user = server.user(&["read"], &["default"]).await;
    assert_eq!(user.get("/v1/executions").await.status, 200);
    let list = server.client.get("/v1/tokens").await.expect(200);
    let id = list["tokens"][0]["token_id"].as_str().unwrap();
    let path = format!("/v1/tokens/{id}");
    let revoked = server.client.send("DELETE", &path, &[], None).await.expect(200);
    assert!(revoked["revoked_at"].is_string());
    user.get("/v1/executions").await.refused(401, "unauthorized");
    server.stop().await;
}

#[tokio::test]
async fn an_empty_store_gets_a_first_token() {
    let server = Server::start().await;
    let data = server.folder.path().join("data");
    let config = Config { data: data.clone(), root_token: None, ..config() };
    let first = root_token(&config, &*server.backend).await.unwrap().unwrap();
    let again = root_token(&config, &*server.backend).await.unwrap().unwrap();
    assert_eq!(first, again);
    let file = data.join("root-token");
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim_end(), first);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    // Whoever has tokens and took the file away does not get another one.
    std::fs::remove_file(&file).unwrap();
    server.user(&["admin"], &["*"]).await;
    assert_eq!(root_token(&config, &*server.backend).await.unwrap(), None);
    server.stop().await;
}
