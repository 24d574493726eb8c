//! Every route of the table with every kind of wrong caller.

use ff_server::{Access, Reach, Route};

use crate::server::Server;

/// An address of a route that names things that do not exist.
fn address(route: &Route) -> String {
    route
        .path
        .replace("{execution_id}", "0:0193b3c4-0000-7000-8000-000000000001")
        .replace("{flow_id}", "0193b3c4-0000-7000-8000-000000000001")
        .replace("{lane_id}", "l")
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
    for route in ff_server::table().iter().filter(|route| route.reach != Reach::Namespace) {
        let path = format!("{}?namespace=x", address(route));
        let answer = server.client.send(route.method.as_str(), &path, &[], None).await;
        answer.refused(400, "invalid_input");
    }
    server.stop().await;
}
