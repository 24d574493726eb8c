//! Tokens: made, shown once, used, revoked.

use std::sync::Arc;
use std::time::Duration;

use ff_core::engine::clock::ManualClock;
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

#[tokio::test]
async fn an_admin_of_a_namespace_keeps_its_tokens_and_no_others() {
    let clock = Arc::new(ManualClock::new(1_800_000_000_000));
    let server = Server::start_on(config(), clock).await;
    let everywhere = json!({ "name": "all", "scopes": ["read"], "namespaces": ["*"] });
    let everywhere = server.client.post("/v1/tokens", everywhere).await.expect(201);
    let theirs = json!({ "name": "theirs", "scopes": ["read"], "namespaces": ["b"] });
    let theirs = server.client.post("/v1/tokens", theirs).await.expect(201);
    let body = json!({
        "name": "boss", "scopes": ["admin"], "namespaces": ["a"], "expires_in": "1h",
    });
    let made = server.client.post("/v1/tokens", body).await.expect(201);
    let boss = server.client.with(made["token"].as_str());
    let token = |name: &str, namespaces: &[&str], expires_in: &str| {
        json!({
            "name": name, "scopes": ["admin"], "namespaces": namespaces, "expires_in": expires_in,
        })
    };
    for (body, why) in [
        (token("x", &["b"], "1h"), "another namespace"),
        (token("x", &["a", "b"], "1h"), "more than its own"),
        (token("x", &["*"], "1h"), "everywhere"),
        (token("x", &["a"], "2h"), "it would outlive its maker"),
        (json!({ "name": "x", "scopes": ["read"], "namespaces": ["a"] }), "it would not end"),
    ] {
        assert_eq!(boss.post("/v1/tokens", body).await.status, 403, "{why}");
    }
    boss.post("/v1/tokens?namespace=b", token("x", &["b"], "1h")).await.refused(403, "forbidden");
    let own = boss.post("/v1/tokens", token("ci", &["a"], "1h")).await.expect(201);
    let ci = server.client.with(own["token"].as_str());
    assert_eq!(ci.get("/v1/executions").await.status, 200);
    let listed = boss.get("/v1/tokens").await.expect(200);
    let mut names: Vec<_> =
        listed["tokens"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["boss", "ci"]);
    for foreign in [&everywhere, &theirs] {
        let path = format!("/v1/tokens/{}", foreign["token_id"].as_str().unwrap());
        boss.send("DELETE", &path, &[], None).await.refused(404, "not_found");
    }
    let path = format!("/v1/tokens/{}", own["token_id"].as_str().unwrap());
    boss.send("DELETE", &path, &[], None).await.expect(200);
    ci.get("/v1/executions").await.refused(401, "unauthorized");
    let events = boss.get("/v1/events?audit=true").await.expect(200);
    let actors: Vec<_> = events["events"].as_array().unwrap().iter().map(|e| &e["by"]).collect();
    assert_eq!(actors, ["root", "boss", "boss"], "its own namespace's events alone");
    server.stop().await;
}

#[tokio::test]
async fn names_of_tokens_tell_them_apart() {
    let clock = Arc::new(ManualClock::new(1_800_000_000_000));
    let server = Server::start_on(config(), clock.clone()).await;
    let make = async |name: &str, namespaces: &[&str]| {
        let body = json!({
            "name": name, "scopes": ["read"], "namespaces": namespaces, "expires_in": "1h",
        });
        server.client.post("/v1/tokens", body).await
    };
    let first = make("ci", &["a"]).await.expect(201);
    make("ci", &["b"]).await.expect(201);
    for namespaces in [&["a"][..], &["c", "a"], &["*"]] {
        make("ci", namespaces).await.refused(409, "token_name_taken");
    }
    let path = format!("/v1/tokens/{}", first["token_id"].as_str().unwrap());
    server.client.send("DELETE", &path, &[], None).await.expect(200);
    make("ci", &["a"]).await.expect(201);
    clock.advance(Duration::from_secs(60 * 60));
    make("ci", &["*"]).await.expect(201);
    for bad in ["root", "anonymous", "a\nb", "a\u{7f}", "a\u{0}", ""] {
        make(bad, &["a"]).await.refused(400, "invalid_input");
    }
    server.stop().await;
}
