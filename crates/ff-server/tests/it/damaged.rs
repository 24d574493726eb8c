//! Rows that were damaged in the file: the lists of the API answer and name them.

use ff_backend_sqlite::rusqlite::Connection;
use serde_json::{Value, json};

use crate::server::{Server, config};

/// Each list: its path, the list in its answer that names what is unreadable, and how it is named.
const LISTS: &[(&str, &str, &str)] = &[
    ("/v1/schedules", "unreadable", "definition cannot be read"),
    ("/v1/budgets", "unreadable", "rule cannot be read"),
    ("/v1/quotas", "unreadable", "rule cannot be read"),
    ("/v1/webhooks", "unreadable", "event_types cannot be read"),
    ("/v1/tokens", "unreadable", "scopes cannot be read"),
    ("/v1/bulk", "unreadable", "definition cannot be read"),
];

#[tokio::test]
async fn lists_answer_and_name_what_is_unreadable() {
    let webhook_allow = Some("127.0.0.0/8".to_owned());
    let server = Server::start_with(ff_server::Config { webhook_allow, ..config() }).await;
    let client = &server.client;
    let put = async |path: &str, body: Value| {
        client.send("PUT", path, &[], Some(body)).await.expect(200);
    };
    for name in ["one", "two"] {
        put(&format!("/v1/budgets/{name}"), json!({ "dimensions": { "t": { "hard": 1 } } })).await;
        let quota = json!({ "lane_id": "elsewhere", "concurrency": 1 });
        put(&format!("/v1/quotas/{name}"), quota).await;
        let timing = json!({ "type": "cron", "expression": "30 3 * * *" });
        let template = json!({ "lane_id": "r", "execution_kind": "n" });
        let schedule = json!({ "timing": timing, "template": template });
        put(&format!("/v1/schedules/{name}"), schedule).await;
        let hook = json!({
            "name": name, "url": "http://127.0.0.1:9/", "event_types": ["cancelled"],
        });
        client.post("/v1/webhooks", hook).await.expect(201);
        let token = json!({ "name": name, "scopes": ["read"], "namespaces": ["*"] });
        client.post("/v1/tokens", token).await.expect(201);
        let bulk = json!({
            "filter": { "lane_id": "none" }, "action": { "type": "cancel", "reason": name },
        });
        client.post("/v1/bulk", bulk).await.expect(201);
        server.submit("l", json!(name)).await;
    }
    let damaged = server.submit("damaged", json!(1)).await;
    let file = Connection::open(server.folder.path().join("flowfabric.db")).unwrap();
    file.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
    for statement in [
        "UPDATE ff_schedule SET definition = '{}' WHERE schedule_name = 'two'",
        "UPDATE ff_limit SET rule = '{}' WHERE name = 'two'",
        "UPDATE ff_webhook SET event_types = '{}' WHERE name = 'two'",
        "UPDATE ff_api_token SET scopes = '{}' WHERE name = 'two'",
        "UPDATE ff_bulk SET definition = '{}' WHERE definition LIKE '%two%'",
        "UPDATE ff_exec_core SET lifecycle_phase = 'bogus' WHERE lane_id = 'damaged'",
    ] {
        assert!(file.execute(statement, []).unwrap() >= 1, "{statement}");
    }
    for (path, list, told) in LISTS {
        let answer = client.get(path).await.expect(200);
        let name = path.trim_start_matches("/v1/").replace("bulk", "operations");
        assert_eq!(answer[&name].as_array().map(Vec::len), Some(1), "{path}: {answer}");
        let named = answer[list].as_array().unwrap_or_else(|| panic!("{path}: {answer}"));
        assert_eq!(named.len(), 1, "{path}: {answer}");
        let detail = named[0]["detail"].as_str().unwrap();
        assert!(detail.starts_with(told), "{path}: {detail}");
    }
    let told = "lifecycle_phase cannot be read: unknown word \"bogus\"";
    let page = client.get("/v1/executions").await.expect(200);
    let preview = client.post("/v1/bulk/preview", json!({ "filter": {} })).await.expect(200);
    for rows in [&page["executions"], &preview["sample"]] {
        let rows = rows.as_array().unwrap();
        let mut named = rows.iter().filter(|row| row["unreadable"] == told);
        assert_eq!(named.next().unwrap()["execution_id"], damaged);
        assert_eq!((named.count(), rows.len()), (0, 3));
    }
    for path in ["/v1/schedules/two", "/v1/budgets/two", "/v1/quotas/two"] {
        let refused = client.get(path).await.expect(500);
        assert_eq!(refused["code"], "corruption", "{path}: {refused}");
    }
    server.stop().await;
}
