//! Every route of the table with every kind of wrong caller.

use std::sync::Arc;
use std::time::Duration;

use ff_api::Scope;
use ff_core::engine::clock::ManualClock;
use ff_server::{Access, Reach, Route};
use serde_json::json;

use crate::server::{Server, config};

/// An address of a route that names things that do not exist.
pub fn address(route: &Route) -> String {
    route
        .path
        .replace("{execution_id}", "0:0193b3c4-0000-7000-8000-000000000001")
        .replace("{flow_id}", "0193b3c4-0000-7000-8000-000000000001")
        .replace("{lane_id}", "l")
        .replace("{token_id}", "0193b3c4-0000-7000-8000-000000000001")
        .replace("{waitpoint_id}", "0193b3c4-0000-7000-8000-000000000001")
        .replace("{token}", "ffw1.k1.x.y")
        .replace("{signal_name}", "approve")
        .replace("{worker_instance_id}", "w-1")
        .replace("{budget_id}", "b")
        .replace("{quota_id}", "q")
        .replace("{kid}", "k1")
        .replace("{webhook_id}", "0193b3c4-0000-7000-8000-000000000001")
        .replace("{schedule_name}", "s")
        .replace("{bulk_id}", "0193b3c4-0000-7000-8000-000000000001")
}

/// Whether no API token is asked for.
fn is_open(route: &Route) -> bool {
    matches!(route.access, Access::Public | Access::Waitpoint)
}

#[tokio::test]
async fn no_route_answers_strangers() {
    let server = Server::start().await;
    let mut walked = 0;
    for route in ff_server::table() {
        let (method, path) = (route.method.as_str(), address(&route));
        if route.access == Access::Public {
            assert!(["/livez", "/readyz"].contains(&route.path), "{} is public", route.path);
            continue;
        }
        if route.access == Access::Waitpoint {
            let body = json!({ "token": "ffw1.k1.x.y", "signal": { "signal_name": "x" } });
            let body = (route.name == "deliver_signal").then_some(body);
            let answer = server.client.with(None).send(method, &path, &[], body).await;
            assert_eq!(answer.status, 401, "{}", route.path);
            continue;
        }
        for token in [None, Some("wrong"), Some("ff_wrong"), Some("")] {
            let answer = server.client.with(token).send(method, &path, &[], None).await;
            let problem = answer.refused(401, "unauthorized");
            assert_eq!(problem["retryable"], false);
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
        let twice = [("authorization", "Bearer x")];
        let answer = server.client.send(method, &path, &twice, None).await;
        answer.refused(401, "unauthorized");
        walked += 1;
    }
    assert!(walked > 25);
    server.stop().await;
}

#[tokio::test]
async fn no_route_answers_tokens_that_are_over() {
    let clock = Arc::new(ManualClock::new(1_800_000_000_000));
    let server = Server::start_on(config(), clock.clone()).await;
    let body = json!({
        "name": "short", "scopes": ["admin"], "namespaces": ["*"], "expires_in": "1h",
    });
    let made = server.client.post("/v1/tokens", body).await.expect(201);
    let expired = server.client.with(made["token"].as_str());
    let revoked = server.user(&["admin"], &["*"]).await;
    assert_eq!(expired.get("/version").await.status, 200);
    let tokens = revoked.get("/v1/tokens").await.expect(200);
    let of_user = tokens["tokens"].as_array().unwrap().iter().find(|t| t["name"] != "short");
    let id = of_user.unwrap()["token_id"].as_str().unwrap().to_owned();
    clock.advance(Duration::from_secs(60 * 60));
    server.client.send("DELETE", &format!("/v1/tokens/{id}"), &[], None).await.expect(200);
    for route in ff_server::table().iter().filter(|route| !is_open(route)) {
        for client in [&expired, &revoked] {
            let answer = client.send(route.method.as_str(), &address(route), &[], None).await;
            answer.refused(401, "unauthorized");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn no_route_answers_the_wrong_scope() {
    let server = Server::start().await;
    let mut users = Vec::new();
    for scope in Scope::ALL.into_iter().filter(|scope| *scope != Scope::Admin) {
        users.push((scope, server.user(&[scope.as_str()], &["*"]).await));
    }
    for route in ff_server::table() {
        let Access::Scoped(needed) = route.access else { continue };
        for (scope, client) in &users {
            let path = address(&route);
            if *scope == needed {
                // Streams stay open, and the others are answered as what they are.
                continue;
            }
            let answer = client.send(route.method.as_str(), &path, &[], None).await;
            answer.refused(403, "forbidden");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn no_route_answers_the_wrong_namespace() {
    let server = Server::start().await;
    let foreign = server.user(&["admin"], &["own", "other"]).await;
    for route in ff_server::table() {
        let method = route.method.as_str();
        let paths = match (route.access, route.reach) {
            (Access::Public | Access::Known | Access::Waitpoint, _) => continue,
            (_, Reach::Everything) => vec![address(&route)],
            _ => {
                ["default", "*"].map(|name| format!("{}?namespace={name}", address(&route))).into()
            }
        };
        for path in paths {
            foreign.send(method, &path, &[], None).await.refused(403, "forbidden");
        }
    }
    server.stop().await;
}

/// What belongs to others and what does not exist are told in the same words.
#[tokio::test]
async fn foreign_things_do_not_exist() {
    let server = Server::start().await;
    let id = server.submit("l", json!("theirs")).await;
    let (handle, _) = server.claim("l").await;
    let stranger = server.user(&["admin"], &["own"]).await;
    let absent = "{fp:0}:0193b3c4-0000-7000-8000-000000000001";
    let routes = ff_server::table();
    let of_execution = routes.iter().filter(|route| route.path.contains("{execution_id}"));
    for route in of_execution {
        let method = route.method.as_str();
        let body = match route.name {
            "change_priority" => Some(json!({ "priority": 1 })),
            "reschedule" => Some(json!({ "delay": "1s" })),
            "set_tags" => Some(json!({ "a.b": "c" })),
            "signal_waitpoint" => Some(json!({ "signal_name": "x" })),
            _ => None,
        };
        let mut answers = Vec::new();
        for id in [&*id, absent] {
            let short = id.replace("{fp:", "").replace('}', "");
            let path = address(route).replace("0:0193b3c4-0000-7000-8000-000000000001", &short);
            let mut problem =
                stranger.send(method, &path, &[], body.clone()).await.refused(404, "not_found");
            problem["request_id"].take();
            answers.push(problem);
        }
        assert_eq!(answers[0], answers[1], "{}", route.path);
    }
    for verb in ["complete", "progress", "cancel"] {
        let body = json!({ "handle": handle });
        stranger.post(&format!("/v1/leases/{verb}"), body).await.refused(404, "not_found");
    }
    let batch = json!({ "operations": [{ "complete": { "handle": handle } }] });
    let outcomes = stranger.post("/v1/leases/batch", batch).await.expect(200);
    assert_eq!(outcomes["outcomes"][0]["problem"]["code"], "not_found");
    let renewed = stranger.post("/v1/leases/renew", json!({ "handles": [handle] })).await;
    assert_eq!(renewed.expect(200)["outcomes"][0]["problem"]["code"], "not_found");
    let list = stranger.get("/v1/executions").await.expect(200);
    assert_eq!(list["executions"], json!([]));
    let claim = crate::server::claim("l");
    assert_eq!(stranger.post("/v1/claims", claim).await.expect(200)["executions"], json!([]));
    let untouched = server.client.get(&crate::server::at(&id)).await.expect(200);
    assert_eq!(untouched["public_state"], "active");
    server.stop().await;
}

#[tokio::test]
async fn paths_that_look_public_are_not() {
    let server = Server::start().await;
    let stranger = server.client.with(None);
    for path in ["/livez/", "/v1/lanes/livez", "/v1/executions/readyz", "//livez", "/livez%2f"] {
        let status = stranger.get(path).await.status;
        assert!(matches!(status, 401 | 404 | 405), "{path}: {status}");
    }
    server.stop().await;
}

#[tokio::test]
async fn routes_without_a_namespace_refuse_one() {
    let server = Server::start().await;
    let fixed = |route: &&Route| matches!(route.reach, Reach::Nothing | Reach::Everything);
    for route in ff_server::table().iter().filter(fixed) {
        let path = format!("{}?namespace=x", address(route));
        let answer = server.client.send(route.method.as_str(), &path, &[], None).await;
        answer.refused(400, "invalid_input");
    }
    server.stop().await;
}

/// A chosen id is answered alike, whether another namespace uses it or nothing does.
#[tokio::test]
async fn a_submission_does_not_tell_which_ids_others_use() {
    let server = Server::start().await;
    let theirs = server.submit("l", json!("theirs")).await;
    let node = |id: &str| {
        let work = json!({ "lane_id": "l", "execution_kind": "k", "execution_id": id });
        json!({ "name": "n", "work": work })
    };
    let graph = json!({ "nodes": [{
        "name": "n", "work": { "lane_id": "l", "execution_kind": "k" },
    }] });
    let flow = server.client.post("/v1/flows", graph.clone()).await.expect(201);
    let stranger = server.user(&["admin"], &["own"]).await;
    let fresh = "{fp:0}:0193b3c4-0000-7000-8000-000000000001";
    let mut answers = Vec::new();
    for id in [theirs.as_str(), fresh] {
        let work = json!({ "lane_id": "l", "execution_kind": "k", "execution_id": id });
        let batch = json!({ "executions": [work] });
        let flow = json!({ "nodes": [node(id)] });
        let mut told = Vec::new();
        for (path, body) in
            [("/v1/executions", work), ("/v1/executions/batch", batch), ("/v1/flows", flow)]
        {
            let mut answer = stranger.post(path, body).await.json();
            if let Some(answer) = answer.as_object_mut() {
                answer.remove("request_id");
            }
            told.push(answer);
        }
        answers.push(told);
    }
    assert_eq!(answers[0], answers[1]);
    let mut graphs = [graph.clone(), graph];
    graphs[0]["flow_id"] = flow["flow_id"].clone();
    graphs[1]["flow_id"] = json!("0193b3c4-0000-7000-8000-000000000001");
    for graph in graphs {
        stranger.post("/v1/flows", graph).await.refused(403, "forbidden");
    }
    server.stop().await;
}
