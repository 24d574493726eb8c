//! A real cluster is started, crashed, restarted and stopped.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ff_testkit::postgres::{Cluster, ClusterOptions};

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_cluster_survives_its_crash() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = ClusterOptions {
        durable: true,
        settings: vec![("max_connections".into(), "50".into())],
        folder: Some(folder.path().to_owned()),
        ..ClusterOptions::default()
    };
    let mut cluster = Cluster::start(options).unwrap();
    let show = |cluster: &Cluster, name: &str| {
        cluster.psql(&cluster.socket_url(), &format!("SHOW {name}")).unwrap()
    };
    assert_eq!(show(&cluster, "fsync"), "on");
    assert_eq!(show(&cluster, "max_connections"), "50", "the caller's settings win");
    assert_eq!(show(&cluster, "server_encoding"), "UTF8");
    assert!(cluster.bin("postgres").is_file());

    let url = cluster.database("orders").unwrap();
    assert!(cluster.database("or\"ders").is_err());
    cluster.psql(&url, "CREATE TABLE t (n int)").unwrap();
    for round in 1..=3 {
        cluster.psql(&url, &format!("INSERT INTO t VALUES ({round})")).unwrap();
        let busy = busy(&cluster, &url);
        let first = cluster.pid().unwrap();
        cluster.kill().unwrap();
        assert!(cluster.kill().is_err() && cluster.pid().is_none());
        assert!(!is_alive(first));
        assert!(TcpStream::connect(("127.0.0.1", cluster.port())).is_err());
        ended(busy);
        cluster.restart().unwrap();
        assert!(cluster.restart().is_err());
        assert_eq!(cluster.psql(&url, "SELECT count(*) FROM t").unwrap(), round.to_string());
    }

    cluster.stop().unwrap();
    assert!(cluster.psql(&url, "SELECT 1").is_err());
    cluster.restart().unwrap();
    assert_eq!(cluster.psql(&url, "SELECT sum(n) FROM t").unwrap(), "6");
    let first = cluster.pid().unwrap();
    drop(cluster);
    assert!(!is_alive(first));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
}

/// A connection in the middle of a long statement, which would not notice the crash by itself.
fn busy(cluster: &Cluster, url: &str) -> std::process::Child {
    let mut command = Command::new(cluster.bin("psql"));
    command.args(["-X", "-c", "SELECT count(*) FROM generate_series(1, 1000000000)", url]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%generate_series%' \
               AND pid <> pg_backend_pid()";
    while cluster.psql(url, sql).unwrap() == "0" {
        assert!(Instant::now() < deadline, "the statement never began");
    }
    child
}

fn ended(mut child: std::process::Child) {
    assert!(!child.wait().unwrap().success(), "its connection was cut");
}

#[test]
fn clusters_do_not_disturb_each_other() {
    let start = || Cluster::start(ClusterOptions::default()).unwrap();
    let (one, other) = (start(), start());
    assert_ne!(one.port(), other.port());
    let fsync = one.psql(&one.url(), "SHOW fsync").unwrap();
    assert_eq!(fsync, "off");
    drop(one);
    assert_eq!(other.psql(&other.url(), "SELECT 1").unwrap(), "1");
}
