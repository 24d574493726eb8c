//! Counters of the server in Prometheus' text form. They have one label, the route, and say
//! nothing about tenants.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use axum::http::StatusCode;

use crate::route::Route;

/// Upper bounds in milliseconds.
const BUCKETS: [u64; 10] = [1, 2, 5, 10, 25, 50, 100, 250, 1_000, 10_000];

pub struct Metrics {
    routes: Vec<PerRoute>,
    pub connections: AtomicI64,
    pub connections_total: AtomicU64,
    pub connections_refused_total: AtomicU64,
    pub tls_reloads_total: AtomicU64,
    pub tls_reload_failures_total: AtomicU64,
}

struct PerRoute {
    name: &'static str,
    /// By the first digit of the status.
    by_class: [AtomicU64; 5],
    buckets: [AtomicU64; BUCKETS.len() + 1],
    sum_us: AtomicU64,
}

impl Metrics {
    pub fn new(routes: &[Route]) -> Self {
        let per_route = |route: &Route| PerRoute {
            name: route.name,
            by_class: Default::default(),
            buckets: Default::default(),
            sum_us: AtomicU64::default(),
        };
        Self {
            routes: routes.iter().map(per_route).collect(),
            connections: AtomicI64::default(),
            connections_total: AtomicU64::default(),
            connections_refused_total: AtomicU64::default(),
            tls_reloads_total: AtomicU64::default(),
            tls_reload_failures_total: AtomicU64::default(),
        }
    }

    pub fn count(&self, route: usize, status: StatusCode, elapsed: Duration) {
        let Some(route) = self.routes.get(route) else { return };
        let class = usize::from(status.as_u16() / 100).clamp(1, 5) - 1;
        route.by_class[class].fetch_add(1, Ordering::Relaxed);
        let ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let bucket = BUCKETS.iter().position(|bound| ms < *bound).unwrap_or(BUCKETS.len());
        route.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        route.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// Everything that was counted; routes that nobody called are left out.
    pub fn render(&self) -> String {
        let mut text = String::new();
        self.render_requests(&mut text);
        self.render_durations(&mut text);
        let connections = self.connections.load(Ordering::Relaxed);
        let total = self.connections_total.load(Ordering::Relaxed);
        let refused = self.connections_refused_total.load(Ordering::Relaxed);
        let reloads = self.tls_reloads_total.load(Ordering::Relaxed);
        let failures = self.tls_reload_failures_total.load(Ordering::Relaxed);
        let version = env!("CARGO_PKG_VERSION");
        let _ = write!(
            text,
            "# TYPE ff_http_connections gauge\n\
             ff_http_connections {connections}\n\
             # TYPE ff_http_connections_total counter\n\
             ff_http_connections_total {total}\n\
             # TYPE ff_http_connections_refused_total counter\n\
             ff_http_connections_refused_total {refused}\n\
             # TYPE ff_tls_reloads_total counter\n\
             ff_tls_reloads_total {reloads}\n\
             # TYPE ff_tls_reload_failures_total counter\n\
             ff_tls_reload_failures_total {failures}\n\
             # TYPE ff_build_info gauge\n\
             ff_build_info{{version=\"{version}\"}} 1\n"
        );
        text
    }

    fn render_requests(&self, text: &mut String) {
        text.push_str("# HELP ff_http_requests_total Requests by route and class of status.\n");
        text.push_str("# TYPE ff_http_requests_total counter\n");
        for route in &self.routes {
            for (at, count) in route.by_class.iter().enumerate() {
                let (name, class) = (route.name, at + 1);
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    let labels = format!("route=\"{name}\",status=\"{class}xx\"");
                    let _ = writeln!(text, "ff_http_requests_total{{{labels}}} {count}");
                }
            }
        }
    }

    fn render_durations(&self, text: &mut String) {
        text.push_str("# HELP ff_http_request_seconds How long requests were in hand.\n");
        text.push_str("# TYPE ff_http_request_seconds histogram\n");
        for route in &self.routes {
            let counts = route.buckets.each_ref().map(|count| count.load(Ordering::Relaxed));
            let total: u64 = counts.iter().sum();
            if total == 0 {
                continue;
            }
            let name = route.name;
            let mut so_far = 0;
            for (bound, count) in BUCKETS.iter().zip(counts) {
                so_far += count;
                let le = *bound as f64 / 1000.0;
                let labels = format!("route=\"{name}\",le=\"{le}\"");
                let _ = writeln!(text, "ff_http_request_seconds_bucket{{{labels}}} {so_far}");
            }
            let sum = route.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
            let _ = write!(
                text,
                "ff_http_request_seconds_bucket{{route=\"{name}\",le=\"+Inf\"}} {total}\n\
                 ff_http_request_seconds_sum{{route=\"{name}\"}} {sum}\n\
                 ff_http_request_seconds_count{{route=\"{name}\"}} {total}\n"
            );
        }
    }
}
